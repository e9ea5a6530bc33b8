"""Recent events in memory, and the watches that read them.

In: the events of each durable commit, in order. Out: batches for every watch. A watch is a cursor, not a queue: it
holds nothing for its reader, so a slow reader costs no memory. A cursor that fell behind what memory keeps reads the
database until it has caught up, and gets `Compacted` only when the history is gone there too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from bedplate.core import errors
from bedplate.store.interface import Batch, Compacted, Event

__all__ = ["Feed", "Watch"]

_KEPT_EVENTS = 8192
_KEPT_BYTES = 16 << 20
_EVENTS_PER_BATCH = 1000

History = Callable[[str, int], Awaitable[tuple[Batch, int]]]


class Feed:
    """The newest commits. Every revision above `first` is here; `history` reads what is older."""

    def __init__(self, revision: int, oldest: int, history: History) -> None:
        self.revision = revision
        self.oldest = oldest
        self.history = history
        self.closed: errors.BedplateError | None = None
        self.waiting: dict[Watch, asyncio.Future[None]] = {}
        self._first = revision
        self._commits: dict[int, Batch] = {}
        self._events = 0
        self._bytes = 0

    def publish(self, commits: list[Batch]) -> None:
        """Add commits, each with the next revision; wake the watches they concern and move the others past them."""
        before = self.revision
        for events in commits:
            self.revision += 1
            self._commits[self.revision] = events
            self._events += len(events)
            self._bytes += sum(map(_size, events))
        while self._events > _KEPT_EVENTS or self._bytes > _KEPT_BYTES:
            self._first += 1
            dropped = self._commits.pop(self._first)
            self._events -= len(dropped)
            self._bytes -= sum(map(_size, dropped))
        changed = [event.key for events in commits for event in events]
        concerned: dict[str, bool] = {}
        for watch, ready in self.waiting.items():
            hit = concerned.get(watch.prefix)
            if hit is None:
                hit = concerned[watch.prefix] = any(key.startswith(watch.prefix) for key in changed)
            if not hit:
                watch.skip(before, self.revision)
            elif not ready.done():
                ready.set_result(None)

    def close(self, reason: errors.BedplateError) -> None:
        """End every watch with an error."""
        self.closed = reason
        for ready in self.waiting.values():
            if not ready.done():
                ready.set_result(None)

    def has(self, after: int) -> bool:
        """Whether every event after that revision is in memory."""
        return after >= self._first

    def collect(self, prefix: str, after: int) -> tuple[Batch, int]:
        """Events below the prefix after a revision that `has` confirmed, and the revision they reach to."""
        batch: Batch = []
        for revision in range(after + 1, self.revision + 1):
            batch += [event for event in self._commits[revision] if event.key.startswith(prefix)]
            if len(batch) >= _EVENTS_PER_BATCH:
                return batch, revision
        return batch, self.revision


class Watch(AsyncIterator[Batch]):
    """One watch. Cancelling a read loses nothing: the next read goes on where the last batch ended."""

    def __init__(self, feed: Feed, prefix: str, after: int) -> None:
        self.prefix = prefix
        self._feed = feed
        self._after = after
        self._is_new = True

    async def __anext__(self) -> Batch:
        feed = self._feed
        if self._is_new:
            if self._after < feed.oldest:
                raise Compacted(self._after, feed.oldest)
            self._is_new = False
        events: Batch
        while feed.closed is None:
            if not feed.has(self._after):
                events, self._after = await feed.history(self.prefix, self._after)
            else:
                events = []
                if self._after < feed.revision:
                    events, self._after = feed.collect(self.prefix, self._after)
                if not events and self._after >= feed.revision:
                    await self._wait()
                    continue
            if events:
                return events
        raise errors.Unavailable(feed.closed.message)

    def skip(self, before: int, revision: int) -> None:
        """Nothing up to `revision` concerns this watch, which had seen everything up to `before`."""
        if self._after >= before:
            self._after = max(self._after, revision)

    async def aclose(self) -> None:
        """Nothing to give back: a watch that is not being read holds no resources."""

    async def _wait(self) -> None:
        ready = self._feed.waiting[self] = asyncio.get_running_loop().create_future()
        try:
            await ready
        finally:
            self._feed.waiting.pop(self, None)


def _size(event: Event) -> int:
    return (len(event.entry.value) if event.entry else 0) + (len(event.previous.value) if event.previous else 0)
