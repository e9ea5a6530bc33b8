"""What happened on nodes: notices, kept beside the tree.

In: host, text and severity of something that happened. Out: the latest notices, and a stream of those that come. They
are in the store (`/head/notices/<number>`), so that every head node sees them and a restart keeps them; only the latest
`kept` stay, and of one host at most `share`, so that no host can push out the others'. Numbers grow; two heads
that write at once take turns. Whatever was reported, a notice is one line that can be printed.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from bedplate.api.headapi import Notice, Severity
from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock
from bedplate.store.interface import Compacted, CompareFailed, Delete, Op, OutcomeUnknown, Put, Store

__all__ = ["NOTICES", "News", "Notice", "Notices", "as_stamp", "keep_up", "one_line", "stamp"]

NOTICES = "/head/notices/"
_BATCH = 50
_LONGEST = 500
_OVERDUE = 20
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
    return as_stamp(clock.now())


def as_stamp(moment: datetime) -> str:
    """RFC 3339 with milliseconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def one_line(text: str, longest: int = _LONGEST) -> str:
    """A text as one line that can be printed: no line break, no escape sequence, nothing that turns what follows."""
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else " " if letter.isspace() else "?" for letter in text)
        text = " ".join(text.split())
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


class _Shelf:
    """The notices that are kept, in the order of their numbers. Every head keeps the same ones."""

    def __init__(self, kept: int, share: int) -> None:
        self._kept = kept
        self._share = share
        self._notices: OrderedDict[int, Notice] = OrderedDict()
        self._own: dict[str, deque[int]] = {}

    def add(self, notice: Notice) -> Notice | None:
        """Keep a notice; the one that makes room for it, if any."""
        self._notices[notice.id] = notice
        own = self._own.setdefault(notice.host, deque())
        own.append(notice.id)
        if len(own) > self._share:
            return self._drop(own[0])
        return self._drop(next(iter(self._notices))) if len(self._notices) > self._kept else None

    def _drop(self, number: int) -> Notice:
        notice = self._notices.pop(number)
        own = self._own[notice.host]
        own.remove(number)
        if not own:
            del self._own[notice.host]
        return notice

    def copy(self) -> _Shelf:
        other = _Shelf(self._kept, self._share)
        other._notices = self._notices.copy()
        other._own = {host: own.copy() for host, own in self._own.items()}
        return other

    def newest_first(self) -> Iterator[Notice]:
        return reversed(self._notices.values())


class Notices:
    """The latest notices, in the store. Open with `async with`; the store is opened and closed by its owner."""

    def __init__(self, store: Store, *, clock: Clock | None = None, kept: int = 1000, share: int = 200) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._held = _Shelf(kept, share)
        self._overdue: list[int] = []
        """What the store has and should not keep; it goes with the next notices."""
        self._last = 0
        self._writing = asyncio.Lock()
        self._moved = asyncio.Condition()
        self._decoder = msgspec.json.Decoder(Notice)

    async def __aenter__(self) -> Notices:
        self._overdue = await self._catch_up()
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
        for notice in self._held.newest_first():
            if (not host or notice.host == host) and (not before or notice.id < before):
                notices.append(notice)
                if len(notices) >= limit:
                    break
        return notices

    def since(self, number: int) -> list[Notice]:
        """Those after a number that are still kept, oldest first."""
        notices = []
        for notice in self._held.newest_first():
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
                    host=one_line(item.host),
                    text=one_line(item.text),
                    revision=item.revision,
                )
                for i, item in enumerate(news)
            ]
            ops: list[Op] = [Put(_key(notice.id), msgspec.json.encode(notice), expect=0) for notice in notices]
            shelf, overdue = self._held.copy(), self._overdue[:_OVERDUE]
            dropped = [gone.id for notice in notices if (gone := shelf.add(notice)) is not None]
            ops.extend(Delete(_key(number)) for number in (*overdue, *dropped) if number < first)
            try:
                is_written = await self._is_written(ops)
            except OutcomeUnknown:
                doubts += 1
                if doubts >= _UNKNOWN_ATTEMPTS:
                    raise
                is_written = False
            if is_written:
                self._overdue = [*self._overdue[len(overdue) :], *(number for number in dropped if number >= first)]
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

    async def _catch_up(self) -> list[int]:
        """Take what the store has; what of it is not to be kept."""
        after, dropped = _key(self._last), list[int]()
        while True:
            page = await self._store.list(NOTICES, limit=500, after=after)
            dropped += await self._take([self._decoder.decode(entry.value) for entry in page.entries])
            if not page.more:
                return dropped
            after = page.entries[-1].key

    async def _take(self, notices: Sequence[Notice]) -> list[int]:
        fresh = [notice for notice in notices if notice.id > self._last]
        if not fresh:
            return []
        dropped = [gone.id for notice in fresh if (gone := self._held.add(notice)) is not None]
        self._last = fresh[-1].id
        async with self._moved:
            self._moved.notify_all()
        return dropped


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
