"""The store on one SQLite file.

In: commits, reads and watches from one event loop. Out: durable revisions. The process is the file's only owner.

Commits wait in a queue while the writer thread syncs a group; all that wait form the next group, so that one sync
serves many. Expectations are checked here, in the loop, against the newest durable row of every key, which is kept in
memory. When a group is durable, one callback publishes its events, wakes the watches and then the committers, in this
order. Reads of the past run in reader threads on snapshots of their own and never block the writer.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import queue
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock
from bedplate.core.logging import get_logger
from bedplate.store import interface
from bedplate.store.interface import Batch, Compacted, Entry, FutureRevision, Op, OutcomeUnknown, Page, StoreFull
from bedplate.store.sqlite import file, queries
from bedplate.store.sqlite.feed import Feed, Watch
from bedplate.store.sqlite.plan import SEQUENCE_BITS, Commit, Group, Heads, entry_of, events, plan, refusal, take
from bedplate.store.sqlite.writer import Mark, Write, Writer

__all__ = ["SqliteStore", "read_entries"]

_READERS = 2
_MOST_OPS = (1 << SEQUENCE_BITS) - 1
_NEWEST = (1 << 62 - SEQUENCE_BITS) - 1
"""A revision after all others."""

_log = get_logger("store.sqlite")
_T = TypeVar("_T")


class SqliteStore:
    """A `Store` in one file. `history_s`: how long old revisions stay readable, None = until `compact` is called.

    `must_exist`: a file that is missing or empty is `Damaged`, not a new store.
    """

    most_ops = 20_000

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        history_s: float | None = 300.0,
        clock: Clock | None = None,
        must_exist: bool = False,
    ) -> None:
        self._path = Path(path)
        self._must_exist = must_exist
        self._history_s = history_s
        self._clock = clock or SystemClock()
        self._ownership = file.Ownership(self._path)
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="bedplate-store-reader")
        self._connections: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        self._queue: deque[Commit] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed: errors.BedplateError | None = errors.Unavailable(f"{self._path} is not open")
        self._broken: OutcomeUnknown | file.Lost | None = None

    async def __aenter__(self) -> SqliteStore:
        self._loop = asyncio.get_running_loop()
        opening = self._loop.run_in_executor(self._readers, self._open)
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            await asyncio.wait([opening])
            if opening.exception() is None:
                self._close()
            raise
        self._closed = None
        self._janitor = asyncio.create_task(self._forget_by_age()) if self._history_s is not None else None
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._closed = errors.Unavailable(f"{self._path} is closed")
        if self._janitor is not None:
            self._janitor.cancel()
            await asyncio.gather(self._janitor, return_exceptions=True)
        try:
            await self._idle.wait()
        finally:
            self._fail(list(self._queue), self._closed)
            self._queue.clear()
            self._feed.close(self._closed)
            await asyncio.shield(self._loop.run_in_executor(None, self._close))

    def _open(self) -> None:
        opened: list[sqlite3.Connection] = []
        try:
            if self._must_exist:
                file.inspect(self._path)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._ownership.acquire()
            file.prepare(self._path, must_exist=self._must_exist)
            self._files = file.Opened(self._path)
            opened = [file.connect(self._path, writer=index == 0) for index in range(1 + _READERS)]
            loaded = queries.load(opened[0])
            self._files.note_log()
        except BaseException as error:
            for connection in opened:
                connection.close()
            self._ownership.release()
            if isinstance(error, sqlite3.Error | OSError):
                raise file.explain(error, self._path) from error
            raise
        for connection in opened[1:]:
            self._connections.put(connection)
        self._heads = Heads(loaded.heads)
        self._feed = Feed(loaded.revision, loaded.oldest, self._history)
        self._writer = Writer(self._path, opened[0], self._files, oldest=loaded.oldest, swept=loaded.swept)
        self._writer.start()

    def _close(self) -> None:
        self._readers.shutdown()
        while not self._connections.empty():
            self._connections.get().close()
        # The writer's connection goes last: closing it folds the write-ahead log into the database.
        self._writer.stop()
        self._ownership.release()

    async def revision(self) -> int:
        return self._feed.revision

    async def oldest(self) -> int:
        return self._feed.oldest

    async def check(self) -> None:
        if self._broken is None:
            try:
                self._files.require_same()
            except file.Lost as lost:
                self._lose(lost)
        self._check_usable()

    async def get(self, key: str, *, revision: int = 0) -> Entry | None:
        interface.check_key(key)
        if revision:
            self._check_revision(revision)
            return await self._read(lambda connection: queries.entry_at(connection, key, revision))
        while True:
            head = self._heads.get(key)
            if head is None or head.entry is not None:
                return entry_of(key, head, {})
            values = await self._read(functools.partial(queries.values_of, ids=[head.id]))
            if head.id in values:
                return entry_of(key, head, values)
            # Replaced and swept while the read waited for its turn: there is a newer one.

    async def list(self, prefix: str, *, revision: int = 0, limit: int = 0, after: str = "") -> Page:
        at = revision or self._feed.revision
        self._check_revision(at)
        return await self._read(lambda connection: queries.page_at(connection, prefix, at, limit, after))

    def watch(self, prefix: str, *, after: int) -> Watch:
        return Watch(self._feed, prefix, after)

    async def commit(self, ops: Sequence[Op]) -> int:
        interface.check_ops(ops)
        if len(ops) > _MOST_OPS:
            raise errors.Invalid(f"a commit of {len(ops)} keys is too large; {_MOST_OPS} are allowed")
        self._check_usable()
        commit = Commit(ops, self._loop.create_future())
        self._queue.append(commit)
        if self._idle.is_set():
            self._idle.clear()
            # Not at once: commits that other tasks are about to ask for in this turn of the loop join the group.
            self._loop.call_soon(self._begin_group)
        return await commit.done

    async def compact(self, revision: int) -> None:
        self._check_usable()
        if revision > self._feed.revision:
            raise FutureRevision(revision, self._feed.revision)
        if revision <= self._feed.oldest:
            return
        done: asyncio.Future[None] = self._loop.create_future()
        self._writer.submit(
            Mark(revision, lambda _, problem: self._hand_over(self._finish_mark, revision, done, problem))
        )
        await done

    def _finish_mark(self, revision: int, done: asyncio.Future[None], problem: errors.BedplateError | None) -> None:
        if problem is None:
            self._feed.oldest = max(self._feed.oldest, revision)
        if done.done():
            return
        if problem is None:
            done.set_result(None)
        else:
            done.set_exception(problem)

    def _begin_group(self) -> None:
        """Plan the commits that wait and send their rows to the writer."""
        commits = take(self._queue)
        if not commits:
            self._idle.set()
            return
        group = plan(commits, self._heads, self._feed.revision)
        if not group.rows and not group.missing:
            self._finish_group(group, {}, None)
            return
        self._writer.submit(
            Write(
                group.rows,
                group.missing,
                lambda values, problem: self._hand_over(self._finish_group, group, values, problem),
            )
        )

    def _finish_group(self, group: Group, values: dict[int, bytes], problem: errors.BedplateError | None) -> None:
        """The group is durable, or failed as a whole: tell everybody, events first, and begin the next one."""
        if problem is not None:
            self._fail_group(group, problem)
        else:
            changed = [commit for commit in group.commits if commit.changes]
            for commit in changed:
                for change in commit.changes:
                    self._heads.put(change.key, change.head)
            self._feed.publish([events(commit, values) for commit in changed])
            for commit in group.commits:
                self._answer(commit, values)
        if self._queue:
            self._loop.call_soon(self._begin_group)
        else:
            self._idle.set()

    def _answer(self, commit: Commit, values: dict[int, bytes]) -> None:
        if commit.done.done():
            return
        refused = refusal(commit, values)
        if refused is not None:
            commit.done.set_exception(refused)
        else:
            commit.done.set_result(commit.revision)

    def _fail_group(self, group: Group, problem: errors.BedplateError) -> None:
        if isinstance(problem, StoreFull) and len(group.commits) > 1:
            # One large commit must not take small ones down with it: each is tried by itself, in the same order.
            for commit in group.commits:
                commit.alone = True
            self._queue.extendleft(reversed(group.commits))
            return
        if isinstance(problem, file.Lost):
            self._lose(problem)
        elif isinstance(problem, OutcomeUnknown):
            self._broken = problem
        self._fail(group.commits, problem)

    @staticmethod
    def _fail(commits: Sequence[Commit], problem: errors.BedplateError) -> None:
        for commit in commits:
            if not commit.done.done():
                commit.done.set_exception(_again(problem))

    def _hand_over(self, callback: Callable[..., None], *args: object) -> None:
        """Called in the writer thread: run the callback in the loop, unless the loop is gone with its program."""
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            _log.debug("store.loop_closed", path=str(self._path))

    async def _history(self, prefix: str, after: int) -> tuple[Batch, int]:
        upto = self._feed.revision
        return await self._read(lambda connection: queries.changes(connection, prefix, after, upto))

    async def _read(self, query: Callable[[sqlite3.Connection], _T]) -> _T:
        if self._closed is not None:
            raise _again(self._closed)
        return await self._loop.run_in_executor(self._readers, self._query, query)

    def _query(self, query: Callable[[sqlite3.Connection], _T]) -> _T:
        connection = self._connections.get()
        try:
            return query(connection)
        except sqlite3.Error as error:
            raise file.explain(error, self._path) from error
        finally:
            self._connections.put(connection)

    def _lose(self, lost: file.Lost) -> None:
        self._broken = lost
        _log.error("store.lost", path=str(self._path), error=str(lost), next=lost.hint)

    def _check_usable(self) -> None:
        if isinstance(self._broken, file.Lost):
            try:
                self._files.require_untouched()
            except file.Lost as lost:
                self._broken = lost
            else:
                # It was moved away and is back as it was: the connections have had it all the time.
                self._broken = None
                _log.info("store.regained", path=str(self._path))
        problem = self._closed or self._broken
        if problem is not None:
            raise _again(problem)

    def _check_revision(self, revision: int) -> None:
        if revision > self._feed.revision:
            raise FutureRevision(revision, self._feed.revision)
        if revision < self._feed.oldest:
            raise Compacted(revision, self._feed.oldest)

    async def _forget_by_age(self) -> None:
        """Compact what was already old `history_s` ago. Revisions of an earlier run count from the start of this."""
        assert self._history_s is not None
        seen: deque[tuple[float, int]] = deque()
        while True:
            with contextlib.suppress(errors.BedplateError):
                await self.check()
            now = self._clock.monotonic()
            seen.append((now, self._feed.revision))
            reached = 0
            while seen and seen[0][0] <= now - self._history_s:
                reached = seen.popleft()[1]
            if reached > self._feed.oldest:
                try:
                    await self.compact(reached)
                except errors.BedplateError as error:
                    _log.warning("store.compaction_failed", path=str(self._path), error=str(error))
            await self._clock.sleep(min(max(self._history_s / 10, 1.0), 30.0))


def read_entries(path: Path, prefix: str) -> list[Entry]:
    """All entries below a prefix as of one moment, from a database whose owner goes on writing. Blocks.

    Raises `Damaged` where the database is missing, not ours, or not consistent in itself.
    """
    file.inspect(path)
    try:
        while True:
            closed_at = _closed_at(path)
            # Of a database that nobody has open, SQLite would leave files beside it.
            mode = "mode=ro" if closed_at is None else "mode=ro&immutable=1"
            entries = _entries(path, f"{path.absolute().as_uri()}?{mode}", prefix)
            if closed_at is None or closed_at == _closed_at(path):
                return entries
    except (sqlite3.Error, OSError) as error:
        raise file.explain(error, path) from error


def _entries(path: Path, uri: str, prefix: str) -> list[Entry]:
    with contextlib.closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
        fault = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if fault != "ok":
            raise file.Damaged(f"{path} is damaged: {fault}", hint="restore it from a backup")
        return list(queries.page_at(connection, prefix, _NEWEST, 0, "").entries)


def _closed_at(path: Path) -> tuple[int, int, int] | None:
    """What tells that a database was not touched in between; None while it has a log, which somebody may write to."""
    status = os.stat(path)
    return None if Path(f"{path}-wal").exists() else (status.st_ino, status.st_size, status.st_mtime_ns)


def _again(problem: errors.BedplateError) -> errors.BedplateError:
    """The same error for another caller: one object raised twice would collect the tracebacks of both."""
    return type(problem)(problem.message, hint=problem.hint)
