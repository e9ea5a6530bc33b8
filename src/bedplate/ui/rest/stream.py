"""What happens, for all who listen: each event is encoded once, and a slow reader harms nobody.

In: revisions, notices and results of checks as the head learns of them. Out: server-sent events. All readers share one
ring of the latest events and each knows its own place in it, so that a reader costs no memory however slow it is; one
that falls out of the ring is told to come back, and resumes from the log by the id of the last event it saw.

An id is `<revision>.<notice>.<milliseconds of the last result>.<mark>`; the mark tells the revision from another one of
the same number, which a head that was restored from a backup may have made since.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from bedplate.api import headapi
from bedplate.api.headapi import Notice, Revision
from bedplate.core import errors
from bedplate.core.clock import parse_rfc3339
from bedplate.core.logging import get_logger
from bedplate.core.tasks import TaskGroup
from bedplate.head import Address, Health, Measured, changes
from bedplate.head.affected import affected
from bedplate.head.daemon import Service

__all__ = [
    "Encoded",
    "Feed",
    "Place",
    "health_event",
    "mark_of",
    "moment",
    "notice_event",
    "reset_event",
    "revision_event",
]


_LOG = get_logger("head.events")
_AGAIN_S = 1.0


class Place(NamedTuple):
    """How far somebody has read."""

    revision: int = 0
    notice: int = 0
    measured_ms: int = 0
    mark: int = 0
    """What tells the revision from others of its number (`mark_of`); 0: not known."""

    def __str__(self) -> str:
        return f"{self.revision}.{self.notice}.{self.measured_ms}.{self.mark}"

    @classmethod
    def read(cls, text: str, now: Place) -> Place:
        """The place in an id; a number alone is a revision's, with nothing missed besides. Raises ValueError."""
        parts = text.split(".")
        if len(parts) not in (1, 3, 4) or not all(
            part.isascii() and part.isdigit() and len(part) < 17 for part in parts
        ):
            raise ValueError(f"{text[:60]!r} is not the id of an event")
        numbers = [int(part) for part in parts]
        return now._replace(revision=numbers[0], mark=0) if len(numbers) == 1 else cls(*numbers)


def mark_of(revision: Revision) -> int:
    """A number that no other revision has, though it may have the same number in another history."""
    text = f"{revision.number} {revision.time} {revision.author} {revision.nonce}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


class Encoded(NamedTuple):
    """One event in the ring: its kind, the place after it, and its bytes."""

    kind: str
    place: Place
    data: bytes


def _event(kind: str, place: Place, body: bytes) -> Encoded:
    return Encoded(kind, place, b"id: %s\nevent: %s\ndata: %s\n\n" % (str(place).encode(), kind.encode(), body))


def revision_event(revision: Revision, place: Place) -> Encoded:
    """A revision, masked, as an event."""
    place = place._replace(revision=revision.number, mark=mark_of(revision))
    return _event("revision", place, msgspec.json.encode(revision))


def notice_event(notice: Notice, place: Place) -> Encoded:
    """A notice as an event."""
    return _event("notice", place._replace(notice=notice.id), msgspec.json.encode(notice))


def health_event(result: Measured, place: Place) -> Encoded:
    """The result of a check as an event."""
    sample = result.sample
    body = headapi.HealthEvent(
        node=result.node,
        check=result.check,
        time=sample.time,
        status=sample.status,
        value=sample.value,
        info=sample.info,
        remedy=sample.remedy,
    )
    moved = place._replace(measured_ms=max(place.measured_ms, _milliseconds(sample.time)))
    return _event("health", moved, msgspec.json.encode(body))


def reset_event(place: Place) -> Encoded:
    """What a reader is told who comes from a place that this head does not know."""
    return _event("reset", place, msgspec.json.encode(headapi.Reset(revision=place.revision)))


def _milliseconds(time: str) -> int:
    return round(parse_rfc3339(time).timestamp() * 1000)


def moment(milliseconds: int) -> str:
    """The time of an id's third part as samples carry it."""
    date = datetime.fromtimestamp(min(milliseconds, 253402300799000) / 1000, UTC)
    return date.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


class Feed:
    """The ring, and who waits for nodes to change. `run` fills it until cancelled."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._head = head = service.head
        self._notices = notices = service.notices
        self._health = health = service.health
        self._ring: deque[Encoded] = deque()
        self._bytes = 0
        self._count = 0
        self._more = asyncio.Event()
        self._tree = head.tree
        self._pending: set[Address] = set()
        self._waiting: dict[str, set[asyncio.Future[bool]]] = {}
        service.access.tokens.listeners.append(self._recheck)
        if service.fleet is not None:
            service.fleet.rollouts.listeners.append(self._rouse)
            service.fleet.members.listeners.append(self._rouse)
            service.fleet.errands.listeners.append(self._rouse)
        self.is_closed = False
        self.readers = 0
        self.place = Place(head.revision, notices.last, _latest(health))

    async def open(self) -> None:
        """Learn what tells the present revision from others of its number."""
        if self.place.revision:
            self.place = self.place._replace(mark=mark_of(await self._head.read(self.place.revision)))

    async def run(self) -> None:
        """Follow the head, its notices and its health; a store that fails for a while is waited for."""
        async with TaskGroup() as tasks:
            for follow in (self._revisions, self._told, self._measured):
                tasks.create_task(self._persistently(follow))
            tasks.create_task(self._beat())

    async def _beat(self) -> None:
        """Wake readers to whom nothing happens, so that both sides see that the other is there."""
        while True:
            await self._service.clock.sleep(self._service.limits.heartbeat_s)
            self._publish([])

    async def _persistently(self, follow: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await follow()
            except errors.BedplateError as err:
                _LOG.warning("head.feed_interrupted", error=str(err))
            except Exception:
                # A bug must not end the stream of everybody for good; whoever came back late has missed nothing.
                _LOG.exception("head.feed_bug")
            await self._service.clock.sleep(_AGAIN_S)

    def close(self) -> None:
        """Send everybody home: the daemon stops."""
        self.is_closed = True
        self._publish([])
        for waiting in self._waiting.values():
            for future in waiting:
                if not future.done():
                    future.set_result(True)

    # Reading

    @property
    def position(self) -> int:
        """The number of events there ever were here: where a new reader begins."""
        return self._count

    async def more(self, position: int) -> None:
        """Wait for an event after a position, or for the next beat; all readers wait for the same thing."""
        if self._count <= position and not self.is_closed:
            await self._more.wait()
        if self._count <= position and self.is_closed:
            raise ConnectionAbortedError("the head is shutting down")

    def since(self, position: int) -> list[Encoded] | None:
        """The events after a position; None when some of them are gone."""
        missing = self._count - position
        if missing > len(self._ring):
            return None
        ring = self._ring
        return [ring[index] for index in range(len(ring) - missing, len(ring))]

    @contextlib.contextmanager
    def waiting(self, node: str) -> Iterator[asyncio.Future[bool]]:
        """What is set when a revision may mean something to a node; False: only its credential may have been revoked.

        From the first moment on: whoever looked at the node's state just before misses nothing."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(node, set()).add(future)
        try:
            yield future
        finally:
            futures = self._waiting.get(node)
            if futures is not None:
                futures.discard(future)
                if not futures:
                    del self._waiting[node]

    # Filling

    async def _revisions(self) -> None:
        async for revision in self._head.revisions(self.place.revision):
            self._publish([revision_event(revision, self.place)])
            self._pending.update(map(changes.address, revision.changes))
            if revision.number >= self._head.revision:
                self._wake()
            await self._forget_removed(revision)

    async def _told(self) -> None:
        async for notice in self._notices.stream(self.place.notice):
            self._publish([notice_event(notice, self.place)])

    async def _measured(self) -> None:
        async for measured in self._health.stream():
            self._publish([health_event(measured, self.place)])

    async def _forget_removed(self, revision: Revision) -> None:
        """What was known of a node goes with it."""
        for change in revision.changes:
            if change.path[0] == "device" and len(change.path) == 2 and change.new is None:
                name = change.path[1]
                if self._service.head.standing.is_active and self._head.tree.find("device", name) is None:
                    await self._health.forget(name)
                    self._service.twins.forget(name)
                    if self._service.fleet is not None:
                        await self._service.fleet.forget(name)

    def _publish(self, events: Iterable[Encoded]) -> None:
        for event in events:
            self._ring.append(event)
            self._bytes += len(event.data)
            self._count += 1
            self.place = event.place
        limits = self._service.limits
        while len(self._ring) > limits.backlog or (self._bytes > limits.backlog_bytes and len(self._ring) > 1):
            self._bytes -= len(self._ring.popleft().data)
        more, self._more = self._more, asyncio.Event()
        more.set()

    def _wake(self) -> None:
        """Wake those whose nodes the latest revisions may mean something to."""
        before, after, touched = self._tree, self._head.tree, self._pending
        self._tree, self._pending = after, set()
        if not self._waiting:
            return
        names = affected(before, after, touched)
        self._rouse(names if len(names) < len(self._waiting) else [node for node in self._waiting if node in names])

    def _rouse(self, nodes: Iterable[str], *, is_change: bool = True) -> None:
        for node in nodes:
            for future in self._waiting.get(node, ()):
                if not future.done():
                    future.set_result(is_change)

    def _recheck(self, subject: str) -> None:
        """Have those who wait show again that they may: somebody, or anybody, has lost a credential."""
        self._publish([])
        self._rouse([subject] if subject else list(self._waiting), is_change=False)


def _latest(health: Health) -> int:
    return max((_milliseconds(condition.heard) for condition in health.conditions().values()), default=0)
