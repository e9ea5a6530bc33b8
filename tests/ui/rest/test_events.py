"""The event stream: order, resuming, heartbeats, slow readers."""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections.abc import AsyncIterator

import aiohttp
import pytest
from tests.head.committing import commit
from tests.ui.rest.serving import KEY, Served, served
from tests.waiting import DEADLINE_S, until

from bedplate.api import headapi
from bedplate.client import Event, HeadClient
from bedplate.client.following import Parser, Raw
from bedplate.core import errors
from bedplate.head.entities import SCHEMA
from bedplate.head.notices import Notices
from bedplate.head.objects import Obj
from bedplate.head.service import Head
from bedplate.head.session import Edit
from bedplate.head.vault import Vault
from bedplate.ui import rest


async def take(stream: AsyncIterator[Event], count: int) -> list[Event]:
    found: list[Event] = []
    async with asyncio.timeout(DEADLINE_S):
        async for event in stream:
            found.append(event)
            if len(found) == count:
                break
    await stream.aclose()  # type: ignore[attr-defined]
    return found


async def raw(http: aiohttp.ClientSession, count: int, **headers: str) -> list[Raw]:
    found: list[Raw] = []
    parser = Parser()
    async with asyncio.timeout(DEADLINE_S), http.get("/api/v1/events", headers=headers) as answer:
        assert answer.status == 200
        assert answer.content_type == "text/event-stream"
        async for chunk in answer.content.iter_any():
            found.extend(one for one in parser.feed(chunk))
            if len(found) >= count:
                break
    return found[:count]


async def test_revisions_notices_and_results_come_as_they_happen(client: HeadClient, server: Served) -> None:
    reading = asyncio.create_task(take(client.events(after="1.0.0"), 4))
    await client.put("category", "default", {"notes": "x"}, message="why", replace=True)
    await client.report(
        "node001",
        actions=[headapi.Action(kind="service", name="nginx", verb="reloaded")],
        results=[headapi.Result(check="a", status="PASS", value=2.0)],
    )
    await client.delete("device", "node007")
    events = await reading
    revisions = [event.revision for event in events if event.revision is not None]
    assert [(one.number, one.author, one.message) for one in revisions] == [(2, "admin", "why"), (3, "admin", "")]
    assert [event.notice.text for event in events if event.notice is not None] == ["Service nginx was reloaded"]
    health = [event.health for event in events if event.health is not None]
    assert [(one.node, one.check, one.status, one.value) for one in health] == [("node001", "a", "PASS", 2.0)]
    assert server.notices.last == 1


async def test_whoever_comes_back_misses_nothing_and_sees_nothing_twice(client: HeadClient, server: Served) -> None:
    for number in range(3):
        await client.put("category", "default", {"notes": str(number)}, replace=True)
        await server.notices.add("node001", f"notice {number}")
    seen = await take(client.events(after=1, types=["revision", "notice"]), 3)
    for number in range(3, 6):
        await client.put("category", "default", {"notes": str(number)}, replace=True)
        await server.notices.add("node001", f"notice {number}")
    first = [one.revision.number for one in seen if one.revision is not None]
    assert first == [2, 3, 4], "a revision's number alone has missed no notices"
    rest_of = await take(client.events(after=seen[-1].id, types=["revision", "notice"]), 6)
    assert [one.revision.number for one in rest_of if one.revision is not None] == [5, 6, 7]
    assert [one.notice.text for one in rest_of if one.notice is not None] == ["notice 3", "notice 4", "notice 5"]


async def test_a_head_that_is_behind_another_one_tells_nothing_twice(client: HeadClient, server: Served) -> None:
    async with Head(server.store, SCHEMA, Vault(KEY)) as ahead, Notices(server.store) as told:
        for name in ("a", "b"):
            await commit(ahead, [Edit("category", name, None, Obj("Category", name))])
        await told.add("node001", "notice 1")
    assert (server.head.revision, server.notices.last) == (1, 0)
    reading = asyncio.create_task(take(client.events(after="3.1.0", types=["revision", "notice"]), 2))
    await until(lambda: server.service.registry.get_sample_value("bedplate_head_event_readers"))
    await until(lambda: server.notices.last == 1)
    await client.put("category", "default", {"notes": "c"}, replace=True)
    await server.notices.add("node001", "notice 2")
    events = await reading
    assert [one.revision.number for one in events if one.revision is not None] == [4]
    assert [one.notice.text for one in events if one.notice is not None] == ["notice 2"]


async def test_an_id_is_told_before_anything_happens(http: aiohttp.ClientSession) -> None:
    found = await raw(http, 1)
    assert [(one.id[:6], one.type, one.data) for one in found] == [("1.0.0.", "message", b"")]


async def test_the_latest_results_are_told_to_whoever_was_away(
    client: HeadClient, http: aiohttp.ClientSession, server: Served
) -> None:
    await client.report(
        "node001", results=[headapi.Result(check="a", status="FAIL"), headapi.Result(check="b", status="PASS")]
    )
    await client.report("node001", results=[headapi.Result(check="a", status="PASS")])
    found = await raw(http, 3, **{"Last-Event-ID": f"1.{server.notices.last}.0"})
    told = [json.loads(one.data) for one in found if one.type == "health"]
    assert {(one["check"], one["status"]) for one in told} == {("a", "PASS"), ("b", "PASS")}


async def test_types_are_chosen(client: HeadClient, server: Served) -> None:
    reading = asyncio.create_task(take(client.events(after=1, types=["revision"]), 2))
    await server.notices.add("node001", "something")
    await client.put("category", "default", {"notes": "a"}, replace=True)
    await client.put("category", "default", {"notes": "b"}, replace=True)
    assert all(event.revision is not None for event in await reading)


async def test_silence_is_filled_with_comments(tmp_path: pathlib.Path) -> None:
    async with served(tmp_path, limits=rest.Limits(heartbeat_s=0.05)) as server:
        headers = {"Authorization": f"Bearer {server.tokens['admin']}"}
        async with aiohttp.ClientSession(server.url, headers=headers) as http, http.get("/api/v1/events") as answer:
            text = b""
            async with asyncio.timeout(DEADLINE_S):
                while text.count(b"\n: ") + text.startswith(b": ") < 3:
                    text += await answer.content.readany()


async def test_a_stream_ends_when_its_time_is_over(http: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(DEADLINE_S), http.get("/api/v1/events", params={"wait": "1"}) as answer:
        assert (await answer.read()).startswith(b"id: 1.0.0.")


async def test_a_reader_that_takes_nothing_is_dropped_and_harms_nobody(tmp_path: pathlib.Path) -> None:
    limits = rest.Limits(stall_s=0.2, backlog=100)
    async with served(tmp_path, limits=limits) as server, server.client() as client:
        host, port = server.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1)
        ask = (
            f"GET /api/v1/events?after=0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.tokens['admin']}\r\n\r\n"
        )
        writer.write(ask.encode())
        await writer.drain()
        good = asyncio.create_task(take(client.events(after=1), 60))
        large = "x" * 200_000
        for number in range(60):
            await client.put("category", "default", {"notes": f"{number} {large}"}, replace=True)
        assert [one.revision.number for one in await good if one.revision is not None] == list(range(2, 62))
        async with asyncio.timeout(DEADLINE_S):
            while await reader.read(2**20):
                pass
        writer.close()
        with pytest.raises(ConnectionError):
            await writer.wait_closed()
            raise ConnectionResetError


async def test_many_readers_see_every_revision_in_order(server: Served) -> None:
    async with server.client() as client:
        readers = [asyncio.create_task(take(client.events(after=1), 40)) for _ in range(20)]
        for number in range(40):
            await client.put("category", "default", {"notes": str(number)}, replace=True)
        for reader in readers:
            assert [one.revision.number for one in await reader if one.revision is not None] == list(range(2, 42))


async def test_a_head_that_stops_lets_its_readers_go(tmp_path: pathlib.Path) -> None:
    async with served(tmp_path) as server:
        http = aiohttp.ClientSession(headers={"Authorization": f"Bearer {server.tokens['admin']}"})
        answer = await http.get(f"{server.url}/api/v1/events")
        assert await answer.content.readany()
    async with asyncio.timeout(DEADLINE_S):
        assert await answer.content.read() == b""
    await http.close()


async def test_a_stream_outlives_a_store_that_fails_for_a_while(
    server: Served, client: HeadClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, failures = server.head.read, [errors.Unavailable("the store is away"), RuntimeError("a bug")]

    async def failing(number: int) -> object:
        if failures:
            raise failures.pop()
        return await read(number)

    reading = asyncio.create_task(take(client.events(after=1), 2))
    await until(lambda: server.service.registry.get_sample_value("bedplate_head_event_readers"))
    monkeypatch.setattr(server.head, "read", failing)
    for number in range(2):
        await commit(
            server.head,
            [Edit("category", f"c{number}", None, Obj("Category", f"c{number}"))],
            "anna",
            f"commit {number}",
        )
    assert [one.revision.message for one in await reading if one.revision is not None] == ["commit 0", "commit 1"]
    assert not failures
