"""The state of the server: every object in memory, as JSON, over the store.

In: commits of the write verbs and the store's own watch. Out: objects and lists for readers, events for watchers,
changes for behaviours and controllers. Memory changes only through the store's watch, so nobody sees a write that is
not durable, and a second server on the same store is seen too. Knows no kinds, no versions, no HTTP: a kind is just
(group, resource).
"""

from __future__ import annotations

import asyncio
import bisect
import heapq
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import NamedTuple

from bedplate.apiserver.state import bodies
from bedplate.core import logging
from bedplate.store import interface

__all__ = ["Collection", "Event", "Feed", "Kind", "Registry"]

Kind = tuple[str, str]
Stored = bodies.Stored
log = logging.get_logger("apiserver.registry")

RECENT_EVENTS = 10_000
RECENT_BYTES = 32 * 1024 * 1024
"""Per kind, what is kept in memory for watches that resume (less when `compact` asks for less)."""


class Event:
    """One change of one object, with its encoded frames, which are made once and shared by all watchers."""

    __slots__ = ("frames", "previous", "revision", "stored", "type")

    def __init__(self, type: str, stored: Stored, previous: Stored | None) -> None:
        self.type = type
        self.stored = stored
        self.previous = previous
        self.revision = stored.revision
        self.frames: dict[tuple[str, str], bytes] = {}


class KeptList(NamedTuple):
    """A list answer kept for the next reader: the kind's last change, the revision it is for, where its items are."""

    changed: int
    revision: int
    items: slice
    answer: bytes


class Collection:
    """All objects of one kind. `revision` is that of its last change, `floor` that from which `recent` is complete."""

    __slots__ = ("feeds", "floor", "items", "keys", "kind", "list_cache", "recent", "recent_bytes", "revision", "sinks")

    def __init__(self, kind: Kind, floor: int) -> None:
        self.kind = kind
        self.items: dict[str, Stored] = {}
        self.keys: list[str] = []
        self.revision = 0
        self.floor = floor
        self.recent: deque[Event] = deque()
        self.recent_bytes = 0
        self.feeds: list[Feed] = []
        self.sinks: list[Callable[[Event], None]] = []
        self.list_cache: dict[tuple[str, str], KeptList] = {}

    def load(self, stored: Stored) -> None:
        """Take over an existing object at start; `keys` are sorted by whoever loads."""
        self.items[stored.item] = stored
        self.keys.append(stored.item)
        self.revision = max(self.revision, stored.revision)

    def span(self, namespace: str) -> tuple[int, int]:
        """The range in `keys` of one namespace, or all."""
        if not namespace:
            return 0, len(self.keys)
        return bisect.bisect_left(self.keys, f"{namespace}/"), bisect.bisect_left(self.keys, f"{namespace}0")

    def apply(self, item: str, change: interface.Event) -> Event | None:
        """Carry out one store event; None when there was nothing to delete."""
        previous = self.items.get(item)
        self.revision = change.revision
        if change.entry is None:
            if previous is None:
                return None
            del self.items[item]
            del self.keys[bisect.bisect_left(self.keys, item)]
            gone = Stored(item, change.revision, bodies.respliced(previous.body, change.revision))
            return Event("DELETED", gone, previous)
        stored = Stored(item, change.revision, bodies.spliced(change.entry.value, change.revision))
        self.items[item] = stored
        if previous is None:
            bisect.insort(self.keys, item)
            return Event("ADDED", stored, None)
        return Event("MODIFIED", stored, previous)

    def remember(self, event: Event) -> None:
        self.recent.append(event)
        self.recent_bytes += len(event.stored.body)
        while len(self.recent) > RECENT_EVENTS or self.recent_bytes > RECENT_BYTES:
            self.forget()

    def forget(self) -> None:
        """Drop the oldest remembered event."""
        oldest = self.recent.popleft()
        self.recent_bytes -= len(oldest.stored.body)
        self.floor = oldest.revision

    def since(self, revision: int) -> list[Event]:
        """The remembered events after a revision that is at least `floor`."""
        events = list(itertools.takewhile(lambda event: event.revision > revision, reversed(self.recent)))
        events.reverse()
        return events


class Feed:
    """Changes of one kind for an in-process reader; never dropped, so the reader must keep up."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._queue: deque[bodies.Change] = deque()
        self._wake = asyncio.Event()

    def put(self, change: bodies.Change) -> None:
        self._queue.append(change)
        self._wake.set()

    def __aiter__(self) -> AsyncIterator[bodies.Change]:
        return self

    async def __anext__(self) -> bodies.Change:
        while not self._queue:
            self._wake.clear()
            await self._wake.wait()
        return self._queue.popleft()

    def close(self) -> None:
        if self in self._collection.feeds:
            self._collection.feeds.remove(self)


class Registry:
    """Objects of all kinds. `run` must be running for writes to become visible."""

    def __init__(self, store: interface.Store, *, is_shared: bool = False) -> None:
        self.store = store
        self.is_shared = is_shared
        self.revision = 0
        self.oldest = 0
        """Revisions before this one can no longer be read or watched from."""
        self.flush: list[Callable[[], None]] = []
        """Called after every batch of events: where watchers write what they have gathered."""
        self._collections: dict[Kind, Collection] = {}
        self._loaded = 0
        self._watch: AsyncIterator[interface.Batch] | None = None
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._behaviours: dict[Kind, list[Callable[[bodies.Change], None]]] = {}

    async def load(self) -> None:
        """Read everything once, as of a revision that lets `run` replay the recent events for watches that resume."""
        newest = await self.store.revision()
        self.oldest = await self.store.oldest()
        page = await self.store.list(bodies.ROOT, revision=max(self.oldest, newest - RECENT_EVENTS))
        self.revision = self._loaded = page.revision
        for entry in page.entries:
            kind, item = bodies.split_key(entry.key)
            body = bodies.spliced(entry.value, entry.revision)
            self.collection(kind).load(Stored(item, entry.revision, body))
        for collection in self._collections.values():
            collection.keys.sort()
        for kind, callbacks in self._behaviours.items():
            for change in self._existing(self.collection(kind)):
                for callback in callbacks:
                    callback(change)

    async def run(self) -> None:
        """Follow the store until cancelled."""
        self._watch = self.store.watch(bodies.ROOT, after=self.revision)
        async for batch in self._watch:
            if batch:
                self._apply(batch)

    def collection(self, kind: Kind) -> Collection:
        collection = self._collections.get(kind)
        if collection is None:
            # Nothing has happened to this kind since the start, or it would be here: nothing of it is missing.
            collection = self._collections[kind] = Collection(kind, self._loaded)
        return collection

    def get(self, kind: Kind, namespace: str, name: str) -> Stored | None:
        return self.collection(kind).items.get(f"{namespace or '-'}/{name}")

    def items(self, kind: Kind, namespace: str = "") -> list[Stored]:
        """All objects of a kind (in one namespace), in key order."""
        collection = self.collection(kind)
        start, end = collection.span(namespace)
        items = collection.items
        return [items[key] for key in collection.keys[start:end]]

    async def commit(self, ops: Sequence[interface.Op]) -> int:
        """Write durably; returns after readers see it. Raises `CompareFailed` and `StoreFull` of the store."""
        try:
            revision = await self.store.commit(ops)
        except interface.CompareFailed as err:
            if err.current is not None:
                await self.reached(err.current.revision)
            raise
        await self.reached(revision)
        return revision

    async def reached(self, revision: int) -> None:
        """Return once memory holds that revision."""
        if revision > self.revision:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (revision, next(self._order), future))
            await future

    async def freshen(self) -> None:
        """Return once memory holds all that was committed before the call; at once when no other server writes."""
        if self.is_shared:
            await self.freshen_all()

    async def freshen_all(self) -> None:
        """`freshen`, whoever writes; used once at start to catch up."""
        revision = await self.store.revision()
        if revision <= self.revision:
            return
        reach = getattr(self._watch, "reach", None)
        if reach is not None:
            # Another user of the same backend may have caused the revision; only the watch knows how far it is.
            await reach(revision)
        else:
            await self.reached(revision)

    def sizes(self) -> dict[Kind, int]:
        """How many objects there are of each kind."""
        return {kind: len(collection.items) for kind, collection in self._collections.items()}

    def subscribe(self, kind: Kind, callback: Callable[[bodies.Change], None]) -> None:
        """Call back for every change of a kind; before `load`, for existing objects too."""
        self._behaviours.setdefault(kind, []).append(callback)

    def feed(self, kind: Kind, *, existing: bool = True) -> Feed:
        collection = self.collection(kind)
        feed = Feed(collection)
        if existing:
            for change in self._existing(collection):
                feed.put(change)
        collection.feeds.append(feed)
        return feed

    async def compact(self, revision: int) -> None:
        """Forget what lies before a revision, in memory and in the store."""
        await self.store.compact(revision)
        self.oldest = max(self.oldest, revision)
        for collection in self._collections.values():
            while collection.recent and collection.recent[0].revision < revision:
                collection.forget()

    @staticmethod
    def _existing(collection: Collection) -> Iterator[bodies.Change]:
        for key in collection.keys:
            yield _change(collection.kind, Event("ADDED", collection.items[key], None))

    def _apply(self, batch: list[interface.Event]) -> None:
        for change in batch:
            kind, item = bodies.split_key(change.key)
            collection = self.collection(kind)
            event = collection.apply(item, change)
            if event is None:
                continue
            collection.remember(event)
            for sink in collection.sinks:
                sink(event)
            self._tell(kind, collection, event)
        self.revision = batch[-1].revision
        for flush in self.flush:
            flush()
        while self._waiting and self._waiting[0][0] <= self.revision:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)

    def _tell(self, kind: Kind, collection: Collection, event: Event) -> None:
        callbacks = self._behaviours.get(kind)
        if not callbacks and not collection.feeds:
            return
        change = _change(kind, event)
        for callback in callbacks or ():
            try:
                callback(change)
            except Exception:
                # One faulty observer must not stop the server from seeing its own writes.
                log.exception("registry.observer_failed", kind=kind, name=change.name)
        for feed in collection.feeds:
            feed.put(change)


def _change(kind: Kind, event: Event) -> bodies.Change:
    stored, previous = event.stored, event.previous
    return bodies.Change(
        type=event.type,  # type: ignore[arg-type]
        group=kind[0],
        resource=kind[1],
        namespace=stored.namespace,
        name=stored.name,
        revision=event.revision,
        body=stored.body,
        previous_body=None if previous is None else previous.body,
    )
