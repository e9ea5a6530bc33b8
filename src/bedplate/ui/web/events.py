"""What happens, as it happens: the page of events, and the stream that scripts of open pages read.

In: the head's revisions, notices, results of checks, nodes and runs of setups that move on. Out: server-sent events
with names, numbers and words, never with values of the tree. A page says which revision and notice it already shows, so
that nothing falls between it and its stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from bedplate.api.headapi import Notice, Revision
from bedplate.core import errors
from bedplate.core.logging import get_logger
from bedplate.core.tasks import TaskGroup
from bedplate.head import Lasting, Measured
from bedplate.head.daemon import Service
from bedplate.head.schema import ranges
from bedplate.ui.web import engine, links
from bedplate.ui.web.visit import Visit, has_ended, person_of

__all__ = ["Event", "events", "latest", "stream", "together"]

_LOG = get_logger("head.page")
_QUEUED = 256
_NAMED = 4
"""So many hosts, or ranges of them, are named beside a notice that all of them sent."""
_STALL_S = 30.0
_MOVES_S = 1.0


class Event(NamedTuple):
    """One line of the list: `kind` is revision, notice, health, progress or setup."""

    kind: str
    data: dict[str, Any]


def _of_revision(revision: Revision) -> Event:
    places = list(dict.fromkeys((change.path[0], change.path[1]) for change in revision.changes))
    objects = ", ".join(links.title(place) for place in places[:4]) + (", …" if len(places) > 4 else "")
    data = {
        "number": revision.number,
        "time": revision.time,
        "author": revision.author,
        "text": revision.message,
        "objects": objects,
    }
    return Event("revision", data)


def _of_notice(notice: Notice) -> Event:
    data = {
        "number": notice.id,
        "time": notice.time,
        "host": notice.host,
        "severity": notice.severity,
        "text": notice.text,
    }
    return Event("notice", data)


def _of_result(result: Measured) -> Event:
    data = {"node": result.node, "check": result.check, "status": result.sample.status, "time": result.sample.time}
    return Event("health", data)


def _of_setup(cluster: str) -> Event:
    return Event("setup", {"cluster": cluster})


def together(notices: Iterable[Notice]) -> list[tuple[str, int, Notice]]:
    """Notices that say the same one after the other, as one: the hosts in short, how many they are, and the newest."""
    groups: list[tuple[list[str], Notice]] = []
    for notice in notices:
        if groups and (groups[-1][1].text, groups[-1][1].severity) == (notice.text, notice.severity):
            groups[-1][0].append(notice.host)
        else:
            groups.append(([notice.host], notice))
    return [(_in_short(hosts), len(hosts), newest) for hosts, newest in groups]


def _in_short(hosts: list[str]) -> str:
    """As ranges; of many that are none, the first."""
    parts = ranges.compress(hosts).split(",")
    return ",".join(parts if len(parts) <= _NAMED else [*parts[:_NAMED], "…"])


async def latest(visit: Visit, limit: int = 60) -> list[Event]:
    """Revisions and notices together, newest first."""
    entries = [_of_revision(revision) for revision in await visit.service.head.log(limit)]
    entries.extend(_of_notice(notice) for notice in visit.service.notices.latest(limit))
    return sorted(entries, key=lambda event: str(event.data["time"]), reverse=True)[:limit]


async def events(visit: Visit) -> web.StreamResponse:
    """The latest events; with JavaScript the list grows by itself."""
    return visit.page("events.html", "Events", events=await latest(visit))


async def stream(visit: Visit) -> web.StreamResponse:
    """Events for as long as the browser listens and its login lasts."""
    headers = {**engine.SECURITY, "Content-Type": "text/event-stream", "Cache-Control": "no-store"}
    response = web.StreamResponse(headers=headers | {"X-Accel-Buffering": "no"})
    queue: asyncio.Queue[Event] = asyncio.Queue(_QUEUED)
    try:
        await response.prepare(visit.request)  # A browser that loads the page again may be gone by now.
        async with TaskGroup() as tasks:
            pumps = [tasks.create_task(_pump(source, queue)) for source in _sources(visit)]
            await _write(visit, response, queue)
            for pump in pumps:
                pump.cancel()
    except* (ConnectionError, TimeoutError, errors.Retryable) as gone:
        # The browser comes back by itself and says what it saw last.
        _LOG.v(4).info("head.page_stream_ended", remote=visit.request.remote, reason=str(gone.exceptions[0]))
    return response


async def _write(visit: Visit, response: web.StreamResponse, queue: asyncio.Queue[Event]) -> None:
    await response.write(b"retry: 2000\n\n")
    seen = {"revision": 0, "notice": 0}
    service, login = visit.service, visit.login
    credential = Lasting(service.access, service.clock, lambda: person_of(service, login))
    while True:
        event = await _next(queue, service.limits.heartbeat_s)
        if login.is_replaced or has_ended(service, login) or not credential.holds():
            return
        if event is not None and event.kind in seen:
            seen[event.kind] = event.data["number"]
        async with asyncio.timeout(_STALL_S):
            await response.write(_encoded(event, seen))


def _sources(visit: Visit) -> list[AsyncIterator[Event]]:
    asked = visit.request.query
    revision, notice = (asked.get(name, "") for name in ("revision", "notice"))
    head, notices = visit.service.head, visit.service.notices
    last = visit.request.headers.get("Last-Event-ID", "").split(".")
    if len(last) == 2:  # after a lost connection the browser says what it saw last; 0: no more than its page
        revision, notice = (new if new != "0" else old for new, old in zip(last, (revision, notice), strict=True))
    return [
        _mapped(head.revisions(_known(revision, head.revision)), _of_revision),
        _mapped(notices.stream(_known(notice, notices.last)), _of_notice),
        _mapped(visit.service.health.stream(), _of_result),
        _moves(visit.service),
        *([_mapped(visit.service.setups.changes(), _of_setup)] if visit.service.setups is not None else []),
    ]


async def _moves(service: Service) -> AsyncIterator[Event]:
    """That nodes have moved on, with how many: at most once a second, however many they are."""
    moved, nodes = asyncio.Event(), set[str]()

    def remember(node: str) -> None:
        nodes.add(node)
        moved.set()

    service.health.listeners.append(remember)
    try:
        while True:
            await moved.wait()
            count = len(nodes)
            nodes.clear()
            moved.clear()
            yield Event("progress", {"nodes": count})
            await service.clock.sleep(_MOVES_S)
    finally:
        service.health.listeners.remove(remember)


def _known(text: str, newest: int) -> int:
    return min(int(text), newest) if text.isdecimal() and len(text) < 16 else newest


async def _mapped(source: AsyncIterator[Any], event_of: Any) -> AsyncIterator[Event]:
    async for item in source:
        yield event_of(item)


async def _pump(source: AsyncIterator[Event], queue: asyncio.Queue[Event]) -> None:
    async for event in source:
        await queue.put(event)


async def _next(queue: asyncio.Queue[Event], beat_s: float) -> Event | None:
    """The next event; None when it was quiet for so long that the connection should be tried."""
    try:
        async with asyncio.timeout(beat_s):
            return await queue.get()
    except TimeoutError:
        return None


def _encoded(event: Event | None, seen: Mapping[str, int]) -> bytes:
    if event is None:
        return b": quiet\n\n"
    name = f"id: {seen['revision']}.{seen['notice']}\nevent: {event.kind}\ndata: "
    return name.encode() + msgspec.json.encode(event.data) + b"\n\n"
