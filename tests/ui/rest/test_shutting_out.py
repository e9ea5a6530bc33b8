"""Who is shut out is out of what lasts, too; and nobody without a credential can cost much."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import aiohttp
import pytest
from tests.head.committing import commit_session
from tests.ui.rest.serving import Served, served
from tests.waiting import DEADLINE_S, until

from bedplate.core.clock import ManualClock
from bedplate.head.access import USER
from bedplate.head.notices import Notices
from bedplate.head.signins import Failures
from bedplate.head.tokens import Tokens
from bedplate.store.sqlite import SqliteStore
from bedplate.ui import rest
from bedplate.ui.rest import app


@pytest.fixture
async def beating(tmp_path: pathlib.Path) -> AsyncIterator[Served]:
    async with served(tmp_path, limits=rest.Limits(heartbeat_s=0.2, body_s=0.5)) as server:
        yield server


async def revoke(server: Served, user: str) -> None:
    token = next(token for token in server.service.access.tokens.list() if token.subject == user)
    await server.service.access.tokens.revoke(token.id)


async def disable(server: Served, user: str) -> None:
    session = server.head.session()
    session.set(("user", user), "enabled", "no")
    await commit_session(server.head, session)


async def remove(server: Served, user: str) -> None:
    session = server.head.session()
    session.remove(("user", user))
    await commit_session(server.head, session)


def session_of(server: Served, user: str) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(server.url, headers={"Authorization": f"Bearer {server.tokens[user]}"})


@pytest.mark.parametrize("end", [revoke, disable, remove])
@pytest.mark.parametrize("has_events", [True, False], ids=["event", "heartbeat"])
async def test_an_event_stream_ends_with_its_credential(
    beating: Served, end: Callable[[Served, str], Awaitable[None]], has_events: bool
) -> None:
    async with session_of(beating, "arno") as http, http.get("/api/v1/events") as answer:
        assert answer.status == 200
        await answer.content.readuntil(b"\n\n")
        await end(beating, "arno")
        if has_events:
            await beating.notices.add("node001", "after the end")
        async with asyncio.timeout(DEADLINE_S):
            rest_ = await answer.content.read()
        assert b"after the end" not in rest_ and b"revision" not in rest_
    await until(lambda: not beating.service.registry.get_sample_value("bedplate_head_event_readers"))


async def test_an_event_stream_ends_when_its_token_expires(tmp_path: pathlib.Path) -> None:
    clock = ManualClock()
    async with served(tmp_path, clock=clock) as server:
        tokens = server.service.access.tokens
        _, server.tokens["arno"] = await tokens.create(USER, "arno", "short", lasts=timedelta(hours=1))
        async with session_of(server, "arno") as http, http.get("/api/v1/events") as answer:
            await answer.content.readuntil(b"\n\n")
            clock.jump(3599)
            await server.notices.add("node001", "before the end")
            async with asyncio.timeout(DEADLINE_S):
                assert b"before the end" in await answer.content.readuntil(b"before the end")
                clock.jump(1)
                await server.notices.add("node001", "after it")
                assert b"after it" not in await answer.content.read()


async def test_ordinary_events_ask_for_credentials_once_per_stream(
    beating: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, find = [], Tokens.find
    monkeypatch.setattr(Tokens, "find", lambda self, text: asked.append(text) or find(self, text))  # type: ignore[func-returns-value]
    streams, events = 10, 40
    async with session_of(beating, "arno") as http:
        answers = [await http.get("/api/v1/events") for _ in range(streams)]
        for number in range(events):
            session = beating.head.session()
            session.set(("device", "node001"), "notes", f"event {number}.")
            await commit_session(beating.head, session)
            async with asyncio.timeout(DEADLINE_S):
                for answer in answers:
                    await answer.content.readuntil(f"event {number}.".encode())
        assert len(asked) == 2 * streams, f"at the request and at its first event, not at each of {streams * events}"
        await disable(beating, "arno")
        async with asyncio.timeout(DEADLINE_S):
            for answer in answers:
                await answer.content.read()


async def test_a_long_poll_ends_with_its_credential(beating: Served) -> None:
    async with session_of(beating, "node001") as http:
        async with http.get("/api/v1/nodes/node001/desired") as answer:
            tag = answer.headers["ETag"]
        waiting = asyncio.create_task(
            http.get("/api/v1/nodes/node001/desired", params={"wait": "300"}, headers={"If-None-Match": tag})
        )
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await revoke(beating, "node001")
        async with asyncio.timeout(DEADLINE_S), await waiting as answer:
            assert answer.status == 401
            assert "WWW-Authenticate" in answer.headers


async def test_a_body_that_does_not_arrive_is_given_up(beating: Served) -> None:
    host, port = beating.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = (
        f"POST /api/v1/commits HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {beating.tokens['admin']}\r\n"
        "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    )
    writer.write(head.encode())
    async with asyncio.timeout(DEADLINE_S):
        text = await reader.read()
    writer.close()
    assert text.startswith(b"HTTP/1.1 408") and b"did not arrive in time" in text


async def test_a_body_of_a_stranger_is_not_read(beating: Served) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b"x" * 65536

    async with aiohttp.ClientSession(beating.url) as http:
        try:
            async with http.post("/api/v1/import", data=endless()) as answer:
                assert answer.status == 401
        except aiohttp.ClientConnectionError:
            pass


# Connections


async def test_connections_of_one_address_are_limited(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "peer_of", lambda transport: "192.0.2.1")
    async with served(tmp_path, limits=rest.Limits(connections=3)) as server:
        host, port = server.url.removeprefix("http://").split(":")
        async with asyncio.timeout(DEADLINE_S):
            held = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
            await asyncio.sleep(0.1)
            reader, writer = await asyncio.open_connection(host, int(port))
            with pytest.raises(ConnectionError):
                if await reader.read() == b"":
                    raise ConnectionResetError
            writer.close()
            held[0][1].close()
            await asyncio.sleep(0.1)
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert b"200 OK" in await reader.read()
            for _, other in held[1:]:
                other.close()
            writer.close()


@pytest.mark.parametrize(
    ("peer", "counted"),
    [
        (("127.0.0.1", 1), ""),
        (("::1", 1, 0, 0), ""),
        (("192.0.2.1", 1), "192.0.2.1"),
        (("fe80::1%eth0", 1, 0, 2), "fe80::1%eth0"),
        ("", ""),
    ],
)
def test_this_machine_is_not_counted(peer: object, counted: str) -> None:
    class Transport:
        def get_extra_info(self, name: str) -> object:
            return peer

    assert app.peer_of(Transport()) == counted  # type: ignore[arg-type]


# Failed sign-ins


async def test_failures_are_slowed_by_address_and_notified(tmp_path: pathlib.Path) -> None:
    clock = ManualClock()
    async with SqliteStore(tmp_path / "x.db") as store, Notices(store, clock=clock) as notices:
        failures = Failures(notices, "basecm10", clock, longest_s=8.0)
        for _ in range(5):
            await failures.slow("192.0.2.1")
        assert [notice.text for notice in notices.latest()] == [
            "5 failed sign-ins from 192.0.2.1 within the last minute"
        ]
        slow = asyncio.create_task(failures.slow("192.0.2.1"))
        await clock.advance(0.4)
        assert not slow.done()
        await clock.advance(0.2)
        await slow
        await failures.slow("192.0.2.2")
        assert len(notices.latest()) == 1
        slowed = [asyncio.create_task(failures.slow("192.0.2.1")) for _ in range(100)]
        while not all(task.done() for task in slowed):
            await clock.advance(0.1)
            await asyncio.sleep(0)
        assert len(notices.latest()) == 5, "5, 10, 20, 40 and 80: a flood of failures is not a flood of notices"
        await clock.advance(61.0)
        await failures.slow("192.0.2.1")
        for number in range(20_000):
            await failures.slow(f"address {number}")
        assert len(failures._times) == 10_000


async def test_wrong_tokens_over_rest_are_failed_sign_ins(beating: Served) -> None:
    async with aiohttp.ClientSession(beating.url) as http:
        for _ in range(5):
            async with http.get("/api/v1/whoami", headers={"Authorization": "Bearer wrong"}) as answer:
                assert answer.status == 401
        for _ in range(5):
            async with http.get("/api/v1/whoami") as answer:
                assert answer.status == 401
    assert [notice.text[:18] for notice in beating.notices.latest()] == ["5 failed sign-ins "]
    assert "wrong" not in beating.notices.latest()[0].text
