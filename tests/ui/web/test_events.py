"""The list of events, and the stream that open pages read."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.head.committing import commit_session
from tests.ui.web.conftest import Place
from tests.ui.web.reading import Reader
from tests.waiting import DEADLINE_S

from bedplate.api.headapi import Result
from bedplate.ui.web.logins import IDLE_S


class Stream:
    """Reads a stream of events."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self) -> tuple[str, dict[str, Any], str]:
        found: dict[str, str] = {}
        async with asyncio.timeout(DEADLINE_S):
            while True:
                line = (await self._response.content.readline()).decode().rstrip("\n")
                if not line and "event" in found:
                    return found["event"], json.loads(found["data"]), found["id"]
                name, _, value = line.partition(": ")
                found[name] = value


async def opened(reader: Reader, query: str = "", headers: dict[str, str] | None = None) -> Stream:
    response = await reader.client.get(f"/events/stream{query}", headers=headers)
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/event-stream"
    return Stream(response)


async def commit(place: Place, notes: str, message: str) -> None:
    session = place.head.session()
    session.set(("device", "node001"), "notes", notes)
    await commit_session(place.head, session, "alice", message)


async def test_what_happens_comes_with_names_and_without_values(place: Place) -> None:
    stream = await opened(await place.reader("auditor"), "?revision=1&notice=0")
    await commit(place, "a value of the tree", "why")
    kind, data, _ = await stream.next()
    assert (kind, data["number"], data["author"], data["text"]) == ("revision", 2, "alice", "why")
    assert data["objects"] == "device[node001]"
    assert "a value of the tree" not in json.dumps(data)
    await place.service.notices.add("node001", "Service nginx was reloaded")
    kind, data, _ = await stream.next()
    assert (kind, data["host"], data["text"]) == ("notice", "node001", "Service nginx was reloaded")
    await place.service.health.record("node001", [Result("disk", "FAIL")])
    told = {kind: data for kind, data, _ in [await stream.next(), await stream.next()]}
    assert told["progress"] == {"nodes": 1}, "it reports for the first time"
    kind, data = "health", told["health"]
    assert (kind, data["node"], data["check"], data["status"]) == ("health", "node001", "disk", "FAIL")


async def test_nothing_falls_between_a_page_and_its_stream(place: Place) -> None:
    reader = await place.reader()
    await reader.get("/")
    body = next(attributes for name, attributes in reader.page.elements if name == "body")
    await commit(place, "one", "between")
    await place.service.notices.add("node001", "between, too")
    stream = await opened(reader, f"?revision={body['data-revision']}&notice={body['data-notice']}")
    assert {(await stream.next())[0] for _ in range(2)} == {"revision", "notice"}


async def test_a_lost_connection_goes_on_where_it_was(place: Place) -> None:
    reader = await place.reader()
    stream = await opened(reader, "?revision=1&notice=0")
    await commit(place, "one", "first")
    _, _, seen = await stream.next()
    stream._response.close()
    await commit(place, "two", "second")
    stream = await opened(reader, "?revision=1&notice=0", {"Last-Event-ID": seen})
    _, data, _ = await stream.next()
    assert (data["number"], data["text"]) == (3, "second")


async def test_nonsense_in_the_address_means_from_now_on(place: Place) -> None:
    stream = await opened(await place.reader(), "?revision=9999999&notice=-1", {"Last-Event-ID": "x.y"})
    await commit(place, "one", "first")
    assert (await stream.next())[1]["number"] == 2


async def test_the_list_shows_commits_and_notices_newest_first(place: Place) -> None:
    place.clock.jump(10)
    await place.service.notices.add("node002", "Check disk failed", "warning")
    place.clock.jump(10)
    await commit(place, "one", "last")
    rows = (await (await place.reader()).get("/events")).rows("Kind")
    assert [(row["Kind"], row["Who"]) for row in rows] == [
        ("revision", "alice"),
        ("warning", "node002"),
        ("revision", "setup"),
    ]
    assert rows[0]["What"] == "Revision 2 last device[node001]"


async def test_the_stream_of_a_login_that_was_read_again_ends_and_its_browser_opens_another(place: Place) -> None:
    """Nobody would tell the older value of the login that its user signed out."""
    reader = await place.reader("auditor")
    stream = await opened(reader)
    assert place.service.sittings is not None
    number = next(cookie.value for cookie in reader.client.session.cookie_jar)
    kept = await place.service.sittings.read(number)
    assert kept is not None
    await place.service.sittings.write(number, kept.sitting, kept.seen)
    await reader.get("/")
    await place.service.notices.add("node001", "one that wakes the stream")
    async with asyncio.timeout(DEADLINE_S):
        assert b"wakes" not in await stream._response.content.read()
    await opened(reader)


@pytest.mark.parametrize("how", ["token", "logout", "user", "silence"])
async def test_the_stream_ends_with_the_login(place: Place, how: str) -> None:
    reader = await place.reader("auditor")
    stream = await opened(reader)
    if how == "token":
        await place.tokens.revoke(place.signed["auditor"].split("_")[1])
    elif how == "user":
        session = place.head.session()
        session.set(("user", "auditor"), "enabled", "no")
        await commit_session(place.head, session, "setup")
    elif how == "silence":
        place.clock._monotonic += IDLE_S + 1
    else:
        await reader.submit("/logout")
    await place.service.notices.add("node001", "one that wakes the stream")
    async with asyncio.timeout(DEADLINE_S):
        rest = await stream._response.content.read()
    assert b"wakes" not in rest, "nothing is told to whoever is shut out"
    assert stream._response.content.at_eof()


async def test_a_browser_that_is_gone_before_its_stream_begins_is_no_error(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def gone(response: web.StreamResponse, request: web.BaseRequest) -> None:
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")

    reader = await place.reader()
    monkeypatch.setattr(web.StreamResponse, "_start", gone)
    with contextlib.suppress(aiohttp.ClientError):
        await reader.get("/events/stream")
    assert "head.page_failed" not in capfd.readouterr().err
