"""Small records beside the tree, of one kind below one prefix, as every head of the site holds them in memory.

In: a store, a prefix and the type of its records. Out: the records by name; a signal when one changes, here or on
another head. `write` changes records of several books in one transaction of the store, each only if it is as it is held
here: a head that is behind reads what it lacks, and its caller decides again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from bedplate.core.logging import get_logger
from bedplate.core.tasks import TaskGroup
from bedplate.store.interface import (
    Batch,
    Compacted,
    CompareFailed,
    Delete,
    Entry,
    Op,
    OutcomeUnknown,
    Put,
    Store,
)

__all__ = ["Book", "Change", "again", "write"]

T = TypeVar("T")
R = TypeVar("R")
_LOG = get_logger("head.records")
_PAGE = 1000
_ATTEMPTS = 5


class Book(Generic[T]):
    """`open` reads all records; `follow` keeps them as the store has them. Names have no slash."""

    def __init__(self, store: Store, prefix: str, kind: type[T]) -> None:
        self._store = store
        self._prefix = prefix
        self._decoder = msgspec.json.Decoder(kind)
        self._held: dict[str, T] = {}
        self._at: dict[str, int] = {}
        self._moved = asyncio.Event()
        self._listeners: list[Callable[[str], None]] = []

    async def open(self) -> None:
        """Take what the store has, and forget what it no longer has."""
        after, more, present, revision = "", True, set[str](), 0
        while more:
            page = await self._store.list(self._prefix, limit=_PAGE, after=after)
            for entry in page.entries:
                present.add(entry.key)
                self._take(entry.key, entry.revision, entry)
            after, more = page.entries[-1].key if page.entries else "", page.more
            revision = revision or page.revision
        for name in list(self._held):
            if self._prefix + name not in present:
                self._take(self._prefix + name, revision, None)

    async def follow(self) -> None:
        """Keep up with what other head nodes write; runs until cancelled."""
        while True:
            watch = self._store.watch(self._prefix, after=await self._store.revision())
            try:
                await self.open()
                async for batch in watch:
                    self._follow(batch)
            except Compacted:
                continue
            finally:
                await watch.aclose()

    async def follow_with(self, adopt: Callable[[], Awaitable[None]]) -> None:
        """The same, and adopt what is held whenever a record changes; runs until cancelled."""

        async def keep_adopting() -> None:
            moved = self._moved
            while True:
                await moved.wait()
                # What changes while the rest is adopted is adopted, too.
                moved = self._moved
                await adopt()

        async with TaskGroup() as tasks:
            tasks.create_task(self.follow())
            tasks.create_task(keep_adopting())

    def get(self, name: str) -> T | None:
        return self._held.get(name)

    async def look(self, name: str) -> T | None:
        """The record as the store has it now: what another head node wrote may not have come here yet."""
        entry = await self._store.get(self._prefix + name)
        if entry is not None:
            self._take(entry.key, entry.revision, entry)
        return self._held.get(name)

    def items(self) -> Mapping[str, T]:
        """All records by name."""
        return self._held

    def listen(self, listener: Callable[[str], None]) -> None:
        """Have a function called with the name of each record that changes."""
        self._listeners.append(listener)

    async def moved(self) -> None:
        """Wait until a record changes."""
        await self._moved.wait()

    def change(self, name: str, value: T | None) -> Change:
        """What `write` does: the record as it should be, None for no record."""
        return Change(self, name, value)

    def op(self, name: str, value: T | None) -> Op:
        """The same for the store, good only while the record is as it is held here."""
        expect = self._at[name] if name in self._held else 0
        if value is None:
            return Delete(self._prefix + name, expect=expect)
        return Put(self._prefix + name, msgspec.json.encode(value), expect=expect)

    def wrote(self, name: str, revision: int, value: T | None) -> None:
        """Hold what was written."""
        if revision > self._at.get(name, 0):
            self._at[name] = revision
            self._hold(name, value)

    def _follow(self, batch: Batch) -> None:
        for event in batch:
            self._take(event.key, event.revision, event.entry)

    def _take(self, key: str, revision: int, entry: Entry | None) -> None:
        name = key.removeprefix(self._prefix)
        if revision <= self._at.get(name, 0):
            return
        self._at[name] = revision
        try:
            self._hold(name, None if entry is None else self._decoder.decode(entry.value))
        except msgspec.DecodeError as err:
            # One damaged record must not stop the others.
            _LOG.error("head.record_unreadable", key=key, error=str(err))

    def _hold(self, name: str, value: T | None) -> None:
        if value is None:
            self._held.pop(name, None)
        else:
            self._held[name] = value
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        for listener in self._listeners:
            listener(name)


class Change(NamedTuple):
    """A record of a book as it should be."""

    book: Book[Any]
    name: str
    value: Any


async def write(store: Store, changes: Sequence[Change], more: Sequence[Op] = ()) -> None:
    """Write all of it or nothing. Raises `CompareFailed` when a record, or one of `more`, was not as it was held."""
    ops = [change.book.op(change.name, change.value) for change in changes]
    try:
        revision = await store.commit([*ops, *more])
    except (CompareFailed, OutcomeUnknown):
        for book in {id(change.book): change.book for change in changes}.values():
            await book.open()
        raise
    for change in changes:
        change.book.wrote(change.name, revision, change.value)


async def again(decide: Callable[[], Awaitable[R]], *stale: type[Exception]) -> R:
    """Decide, and once more where another head node was first: by `CompareFailed`, or one of `stale`."""
    kinds: tuple[type[Exception], ...] = (CompareFailed, *stale)
    for _ in range(_ATTEMPTS - 1):
        try:
            return await decide()
        except kinds as err:
            _LOG.v(4).info("head.record_contended", error=str(err))
    return await decide()
