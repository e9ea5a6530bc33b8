"""What happened on nodes: notices, kept beside the tree.

In: host, text and severity of something that happened. Out: the latest notices, and a stream of those that come. They
are in the store (`/head/notices/<number>`), so that every head node sees them and a restart keeps them; only the latest
`kept` stay. Numbers grow; two heads that write at once take turns.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from bedplate.api.headapi import Notice, Severity
from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock
from bedplate.store.interface import Compacted, CompareFailed, Delete, Op, OutcomeUnknown, Put, Store

__all__ = ["NOTICES", "News", "Notice", "Notices", "keep_up", "stamp"]

NOTICES = "/head/notices/"
_BATCH = 50
_ATTEMPTS = 20
_UNKNOWN_ATTEMPTS = 3


class News(NamedTuple):
    """A notice that has no number yet."""

    host: str
    text: str
    severity: Severity = "notice"
    revision: int = 0


def stamp(clock: Clock) -> str:
    """The present moment as notices and results carry it."""
    return clock.now().strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


class Notices:
    """The latest notices, in the store. Open with `async with`; the store is opened and closed by its owner."""

    def __init__(self, store: Store, *, clock: Clock | None = None, kept: int = 1000) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._kept = kept
        self._held: deque[Notice] = deque(maxlen=kept)
        self._last = 0
        self._writing = asyncio.Lock()
        self._moved = asyncio.Condition()
        self._decoder = msgspec.json.Decoder(Notice)

    async def __aenter__(self) -> Notices:
        await self._catch_up()
        return self

    async def __aexit__(self, *exc: object) -> None:
        return None

    @property
    def last(self) -> int:
        """The number of the newest notice; 0 before the first."""
        return self._last

    async def add(self, host: str, text: str, severity: Severity = "notice", revision: int = 0) -> Notice:
        """Tell one thing; it is in the store when this returns."""
        return (await self.add_all([News(host, text, severity, revision)]))[0]

    async def add_all(self, news: Sequence[News]) -> list[Notice]:
        """Tell several things, in their order. Raises `Unavailable`."""
        notices: list[Notice] = []
        async with self._writing:
            for start in range(0, len(news), _BATCH):
                notices.extend(await self._write(news[start : start + _BATCH]))
        return notices

    def latest(self, limit: int = 100, *, host: str = "", before: int = 0) -> list[Notice]:
        """The newest first; `before` leaves out that number and those that came after it."""
        notices: list[Notice] = []
        for notice in reversed(self._held):
            if (not host or notice.host == host) and (not before or notice.id < before):
                notices.append(notice)
                if len(notices) >= limit:
                    break
        return notices

    def since(self, number: int) -> list[Notice]:
        """Those after a number that are still kept, oldest first."""
        notices = []
        for notice in reversed(self._held):
            if notice.id <= number:
                break
            notices.append(notice)
        return notices[::-1]

    async def stream(self, after: int | None = None) -> AsyncIterator[Notice]:
        """Every notice after a number (those from now on without one), as it comes, while somebody reads."""
        number = self._last if after is None else after
        while True:
            async with self._moved:
                while self._last <= number:
                    await self._moved.wait()
            for notice in self.since(number):
                number = notice.id
                yield notice

    async def follow(self) -> None:
        """Keep up with what other head nodes tell; runs until cancelled."""
        await keep_up(self._store, NOTICES, self.catch_up)

    async def catch_up(self) -> None:
        """Take what others have told since."""
        async with self._writing:
            await self._catch_up()

    async def _write(self, news: Sequence[News]) -> list[Notice]:
        doubts = 0
        for _ in range(_ATTEMPTS):
            now, first = stamp(self._clock), self._last + 1
            notices = [
                Notice(
                    id=first + i,
                    time=now,
                    severity=item.severity,
                    host=item.host,
                    text=item.text,
                    revision=item.revision,
                )
                for i, item in enumerate(news)
            ]
            ops: list[Op] = [Put(_key(notice.id), msgspec.json.encode(notice), expect=0) for notice in notices]
            ops.extend(Delete(_key(notice.id - self._kept)) for notice in notices if notice.id > self._kept)
            try:
                is_written = await self._is_written(ops)
            except OutcomeUnknown:
                doubts += 1
                if doubts >= _UNKNOWN_ATTEMPTS:
                    raise
                is_written = False
            if is_written:
                await self._take(notices)
                return notices
            await self._catch_up()
        raise errors.Unavailable(
            "too many concurrent notices from other head nodes; this one was not written", retry_after_s=1.0
        )

    async def _is_written(self, ops: Sequence[Op]) -> bool:
        try:
            await self._store.commit(ops)
        except CompareFailed:
            return False
        except OutcomeUnknown:
            first = ops[0]
            entry = await self._store.get(first.key)
            if entry is None:
                raise  # it may still come, or the store is broken
            return isinstance(first, Put) and entry.value == first.value
        return True

    async def _catch_up(self) -> None:
        after = _key(self._last)
        while True:
            page = await self._store.list(NOTICES, limit=500, after=after)
            await self._take([self._decoder.decode(entry.value) for entry in page.entries])
            if not page.more:
                return
            after = page.entries[-1].key

    async def _take(self, notices: Sequence[Notice]) -> None:
        fresh = [notice for notice in notices if notice.id > self._last]
        if not fresh:
            return
        self._held.extend(fresh)
        self._last = fresh[-1].id
        async with self._moved:
            self._moved.notify_all()


def _key(number: int) -> str:
    return f"{NOTICES}{number:012d}"


async def keep_up(store: Store, prefix: str, catch_up: Callable[[], Awaitable[None]]) -> None:
    """Call `catch_up` whenever something below a prefix changes, and once before; runs until cancelled."""
    while True:
        watch = store.watch(prefix, after=await store.revision())
        try:
            await catch_up()
            async for batch in watch:
                if batch:
                    await catch_up()
        except Compacted:
            continue
        finally:
            await watch.aclose()
