"""Group commit: one write to the disk for all calls that came meanwhile.

In: what calls did to the book, each step with its undoing. Out: `commit` returns when its steps are on the disk;
when they are not, they and all later ones are undone, last first, and every one of their calls raises
`StoreFailed`.

While the text is below `WHOLE_BELOW` bytes every batch rewrites the store file. Above, a batch is added to the
journal, and the file follows in the background: its text is taken at a mark of the journal, written beside, and
installed between two batches. One thread writes batches, another prepares snapshots; the event loop owns everything
else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from bedplate.core.clock import Clock
from bedplate.core.logging import get_logger
from bedplate.ipam.node import journal
from bedplate.ipam.node.book import Book
from bedplate.ipam.node.reservations import StoreFailed
from bedplate.ipam.node.storage import Prepared, Storage

__all__ = ["WHOLE_BELOW", "Commit", "Committer", "Step", "undo"]

WHOLE_BELOW = 256 * 1024
BEHIND_S = 0.25
"""How far the file may be behind the journal."""
RETRY_S = 2.0
"""How long a snapshot waits after one that failed."""

log = get_logger("ipam.node.store")

Step = tuple[Callable[[], bytes], Callable[[], object]]
"""What was done to the book: the text of the operation, should the journal want it, and the way back."""


def undo(steps: Sequence[Step]) -> None:
    """Take the steps of a call back, the last one first."""
    for _, take_back in reversed(steps):
        take_back()


class Commit(msgspec.Struct, frozen=True):
    """A batch that was written: for metrics."""

    calls: int
    seconds: float
    is_whole: bool
    file_bytes: int
    journal_bytes: int


class _Batch:
    __slots__ = ("calls", "installing", "last", "mark", "waiters")

    def __init__(self) -> None:
        self.calls: list[Sequence[Step]] = []
        self.waiters: list[asyncio.Future[None]] = []
        self.mark: tuple[int, int] | None = None
        """A mark, and the index of the call that it stands before."""
        self.last = 0
        """The number of its last call."""
        self.installing: _Installing | None = None


class _Installing(msgspec.Struct, frozen=True):
    """A prepared file that waits for its turn."""

    new: Prepared
    mark: int
    epoch: int
    done: asyncio.Future[bool]


class Committer:
    """Makes the changes of a book durable."""

    def __init__(
        self,
        book: Book,
        storage: Storage,
        clock: Clock,
        whole_below: int = WHOLE_BELOW,
        observe: Callable[[Commit], None] | None = None,
    ) -> None:
        self._book, self._storage, self._clock = book, storage, clock
        self._loop = asyncio.get_running_loop()
        self._whole_below, self._observe = whole_below, observe
        self._batch = _Batch()
        self._is_writing = False
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._stale = asyncio.Event()
        self._snapshots = asyncio.Lock()
        self._epoch = 0
        """Counts what makes a text that was taken before worthless: undone changes, and files written whole."""
        self._calls = 0
        self._taken = 0
        """The number of the last call that the present or coming file holds."""
        self._snapshot_s = 0.0
        self._is_closed = False
        self._writer = ThreadPoolExecutor(1, "store-writer")
        self._preparer = ThreadPoolExecutor(1, "store-snapshot")
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, *, is_behind: bool = False) -> None:
        """Begin to write; at once where the file is behind its journal."""
        if is_behind:
            self._stale.set()
        self._tasks = [
            asyncio.create_task(self._write_batches(), name="store-commits"),
            asyncio.create_task(self._follow(), name="store-follow"),
        ]

    async def commit(self, steps: Sequence[Step]) -> None:
        """Return when what a call did just now is on the disk."""
        if self._is_closed:
            undo(steps)
            raise StoreFailed("the store is closed")
        self._calls += 1
        self._batch.calls.append(steps)
        self._batch.last = self._calls
        await self._join()

    async def settled(self) -> None:
        """Return when the disk holds what the book says.

        After a failed write it may hold more: a file that got its name and was not acknowledged. It is written again.
        """
        if self._is_writing or self._batch.calls or self._batch.mark or self._storage.must_rewrite:
            await self._join()

    async def sync(self) -> None:
        """Bring the store file up to date."""
        await self.settled()
        async with self._snapshots:
            if self._stale.is_set() and not await self._snapshot():
                raise StoreFailed("the store file could not be brought up to date")

    async def close(self) -> None:
        """Write what is outstanding, bring the file up to date, remove the journal."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._idle.wait()
        # A snapshot that is under way ends first: it would be lost with its temporary file.
        async with self._snapshots:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._loop.run_in_executor(self._writer, self._finish)
        except OSError as error:
            raise StoreFailed(f"the store file could not be brought up to date: {error}") from error
        finally:
            self._writer.shutdown()
            self._preparer.shutdown()

    def _finish(self) -> None:
        if self._stale.is_set() or self._storage.must_rewrite:
            self._storage.write_whole(self._book.text(), self._book.version)
        else:
            self._storage.drop_journal()

    def _join(self) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._batch.waiters.append(waiter)
        self._idle.clear()
        self._wake.set()
        return waiter

    async def _write_batches(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            batch, self._batch = self._batch, _Batch()
            self._is_writing = True
            began = self._clock.monotonic()
            try:
                is_whole = await self._write(batch)
            except Exception as error:
                self._undo(batch, error)
            else:
                self._acknowledge(batch, self._clock.monotonic() - began, is_whole)
            if batch.installing is not None:
                await self._install(batch.installing)
            self._is_writing = False
            if not self._wake.is_set():
                self._idle.set()

    async def _write(self, batch: _Batch) -> bool:
        """Write a batch; True when the whole file was written."""
        is_needed = batch.calls or (batch.mark and self._storage.has_journal)
        if not is_needed and not self._storage.must_rewrite:
            return False  # Somebody waits, or there is a mark for a journal that is not needed any more.
        if self._storage.must_rewrite or self._book.length() < self._whole_below:
            text, version = self._book.text(), self._book.version
            await self._loop.run_in_executor(self._writer, self._storage.write_whole, text, version)
            self._epoch += 1
            self._taken = max(self._taken, batch.last)
            self._stale.clear()
            return True
        mark, at = batch.mark or (None, 0)
        lines = [journal.call([operation() for operation, _ in steps]) for steps in batch.calls]
        if mark is not None:
            lines.insert(at, journal.mark(mark))
        await self._loop.run_in_executor(self._writer, self._storage.append, lines, mark, at)
        if batch.last > self._taken:
            self._stale.set()
        return False

    def _undo(self, batch: _Batch, error: Exception) -> None:
        """Take back what is not on the disk: this batch, and what came since on top of it."""
        later, self._batch = self._batch, _Batch()
        self._batch.installing = later.installing
        self._epoch += 1
        calls = [*batch.calls, *later.calls]
        for steps in reversed(calls):
            undo(steps)
        reason = _reason(error)
        log.error("store.write_failed", reason=reason, undone=len(calls))
        for waiter in (*batch.waiters, *later.waiters):
            if not waiter.done():
                failure = StoreFailed(f"the store could not be written: {reason}", hint="check the node's disk")
                failure.__cause__ = error
                waiter.set_exception(failure)

    def _acknowledge(self, batch: _Batch, seconds: float, is_whole: bool) -> None:
        for waiter in batch.waiters:
            if not waiter.done():
                waiter.set_result(None)
        if self._observe is not None and batch.calls:
            try:
                self._observe(Commit(len(batch.calls), seconds, is_whole, *self._storage.sizes))
            except Exception as error:
                # Whoever watches must not stop the store.
                log.error("store.observer_failed", reason=repr(error))

    async def _follow(self) -> None:
        """Let the file follow the journal."""
        while True:
            await self._stale.wait()
            # It is to be in place in time, so it begins earlier by twice what the last one took.
            await self._clock.sleep(max(BEHIND_S - max(0.08, 2 * self._snapshot_s), 0.02))
            async with self._snapshots:
                is_done = not self._stale.is_set() or await self._snapshot()
            if not is_done:
                await self._clock.sleep(RETRY_S)

    async def _snapshot(self) -> bool:
        """Write the file as it is now, and install it. Nothing is lost when that fails: there is the journal."""
        began, epoch, mark = self._clock.monotonic(), self._epoch, self._storage.next_mark()
        self._batch.mark = (mark, len(self._batch.calls))
        marked = self._join()
        text, version = self._book.text(), self._book.version
        self._taken = self._calls
        self._stale.clear()
        try:
            new = await self._loop.run_in_executor(self._preparer, self._storage.prepare, text, version)
        except Exception as error:
            await asyncio.gather(marked, return_exceptions=True)
            self._is_behind(_reason(error))
            return False
        await asyncio.gather(marked, return_exceptions=True)
        self._batch.installing = _Installing(new, mark, epoch, self._loop.create_future())
        self._idle.clear()
        self._wake.set()
        is_done = await self._batch.installing.done
        self._snapshot_s = self._clock.monotonic() - began
        return is_done

    async def _install(self, installing: _Installing) -> None:
        """Give a prepared file the store's name, unless it was overtaken by a file or by changes undone."""
        new, done = installing.new, False
        try:
            if installing.epoch != self._epoch or not self._storage.has_journal:
                self._storage.discard(new)
                done = not self._storage.has_journal
                if not done:
                    self._is_behind("another batch failed in the meantime")
            else:
                await self._loop.run_in_executor(self._writer, self._storage.install, new, installing.mark)
                done = True
        except Exception as error:
            self._is_behind(_reason(error))
        installing.done.set_result(done)

    def _is_behind(self, reason: str) -> None:
        self._taken = 0
        self._stale.set()
        log.warning("store.snapshot_failed", reason=reason, next="it is retried; the journal is complete")


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else repr(error)
