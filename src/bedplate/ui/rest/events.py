"""The event stream and the notices over HTTP.

In: checked requests. Out: server-sent events for as long as somebody reads, from now on or from where the reader was;
the latest notices. A reader that takes nothing for a while, or falls too far behind, is let go: it comes back with the
id of the last event it saw.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection

import msgspec
from aiohttp import web

from bedplate.core.logging import get_logger
from bedplate.head.daemon import Service
from bedplate.ui.rest.auth import lasting
from bedplate.ui.rest.objects import json
from bedplate.ui.rest.operations import Ask
from bedplate.ui.rest.problems import Malformed, Unauthorized
from bedplate.ui.rest.stream import (
    Encoded,
    Feed,
    Place,
    health_event,
    mark_of,
    moment,
    notice_event,
    reset_event,
    revision_event,
)

__all__ = ["KINDS", "Events"]

_LOG = get_logger("head.events")
KINDS = ("revision", "notice", "health")
_BATCH = 64
_ROOM = 32 * 1024


class Events:
    """The handlers of `/events` and `/notices`."""

    def __init__(self, service: Service, feed: Feed) -> None:
        self._service = service
        self._feed = feed

    async def notices(self, ask: Ask) -> web.StreamResponse:
        """The latest notices, newest first."""
        notices = self._service.notices.latest(
            ask.number("limit", 100), host=ask.text("host"), before=ask.number("before", 0)
        )
        return json(msgspec.json.encode({"items": notices}))

    async def stream(self, ask: Ask) -> web.StreamResponse:
        """Events until the reader leaves, the time it asked for is over, or it is too slow."""
        start, kinds = self._start(ask), self._kinds(ask)
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        await response.prepare(ask.request)
        self._feed.readers += 1
        try:
            # What was missed is told however long that takes: the wait is for what is yet to come.
            position, start = await self._greet(ask, response, start, kinds)
            async with asyncio.timeout(ask.maybe("wait")):
                await self._write(ask, response, position, start, kinds)
        except TimeoutError:
            pass
        except Unauthorized as err:
            _LOG.info("head.reader_shut_out", user=ask.identity.name, remote=ask.request.remote, reason=str(err))
        except _TooSlow:
            _LOG.info("head.reader_dropped", user=ask.identity.name, remote=ask.request.remote)
            if ask.request.transport is not None:
                ask.request.transport.abort()
        except ConnectionError:
            _LOG.v(4).info("head.reader_left", user=ask.identity.name)
        finally:
            self._feed.readers -= 1
        return response

    async def _greet(
        self, ask: Ask, response: web.StreamResponse, start: Place | None, kinds: Collection[str]
    ) -> tuple[int, Place | None]:
        """Tell a reader what it has missed, or that its place is not known here; where it reads on."""
        position, now = self._feed.position, self._feed.place
        if start is not None and await self._is_elsewhere(start):
            await self._send(ask, response, reset_event(now).data)
            start = None
        else:
            await self._send(ask, response, b"id: %s\n\n" % str(start or now).encode())
        if start is not None:
            async for missed in self._missed(start, now, kinds):
                await self._send(ask, response, missed)
        return position, start

    async def _write(
        self, ask: Ask, response: web.StreamResponse, position: int, start: Place | None, kinds: Collection[str]
    ) -> None:
        feed = self._feed
        credential = lasting(self._service.access, self._service.clock, ask.request)
        while True:
            await feed.more(position)
            credential.holds()
            if feed.position == position:
                await self._send(ask, response, b": still here\n\n")
                continue
            events = feed.since(position)
            if events is None:
                raise _TooSlow
            for first in range(0, len(events), _BATCH):
                batch = events[first : first + _BATCH]
                data = b"".join(event.data for event in batch if _is_wanted(event, start, kinds))
                if data:
                    await self._send(ask, response, data)
            position += len(events)

    async def _send(self, ask: Ask, response: web.StreamResponse, data: bytes) -> None:
        """Write, or let the reader go when it takes nothing."""
        transport = ask.request.transport
        if transport is not None and transport.get_write_buffer_size() + len(data) < _ROOM:
            await response.write(data)  # there is room: nothing to wait for
            return
        try:
            async with asyncio.timeout(self._service.limits.stall_s):
                await response.write(data)
        except TimeoutError:
            raise _TooSlow from None

    async def _missed(self, start: Place, now: Place, kinds: Collection[str]) -> AsyncIterator[bytes]:
        """What came between two places, from the log and the notices that are kept."""
        place = start
        if "revision" in kinds:
            for number in range(start.revision + 1, now.revision + 1):
                event = revision_event(await self._service.head.read(number), place)
                place = event.place
                yield event.data
        if "notice" in kinds:
            for notice in self._service.notices.since(start.notice):
                if notice.id <= now.notice:
                    event = notice_event(notice, place)
                    place = event.place
                    yield event.data
        if "health" in kinds:
            for measured in self._service.health.latest(moment(start.measured_ms)):
                event = health_event(measured, place)
                if event.place.measured_ms <= now.measured_ms:
                    place = event.place
                    yield event.data

    async def _is_elsewhere(self, start: Place) -> bool:
        """Whether a reader has seen what this head has not, nor any other one on its store: it saw another history."""
        head, notices = self._service.head, self._service.notices
        if start.revision > head.revision:
            await head.catch_up()
        if start.notice > notices.last:
            await notices.catch_up()
        if start.revision > head.revision or start.notice > notices.last:
            return True
        return bool(start.mark) and mark_of(await head.read(start.revision)) != start.mark

    def _start(self, ask: Ask) -> Place | None:
        text = ask.request.headers.get("Last-Event-ID", "") or ask.text("after")
        try:
            return Place.read(text, self._feed.place) if text else None
        except ValueError as wrong:
            raise Malformed(str(wrong), hint="an id looks like 12.34.0.56; the number of a revision will do") from None

    def _kinds(self, ask: Ask) -> list[str]:
        kinds = ask.names("types") or list(KINDS)
        if not set(kinds) <= set(KINDS):
            raise Malformed(f"types are {', '.join(KINDS)}")
        return kinds


class _TooSlow(Exception):
    """The reader is let go."""


def _is_wanted(event: Encoded, start: Place | None, kinds: Collection[str]) -> bool:
    """A reader that saw more than this head has yet, on another one, is not told the same twice."""
    if event.kind not in kinds:
        return False
    if start is None:
        return True
    if event.kind == "revision":
        return event.place.revision > start.revision
    return event.kind != "notice" or event.place.notice > start.notice
