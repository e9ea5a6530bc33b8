"""The one thread that writes to the database.

In: groups of rows and compaction marks, through a queue. Out: one call into the event loop per job, after the data are
on the disk. Decides nothing about commits; it only makes them durable, and sweeps what compaction has given up.

Each group is one multi-row INSERT where it fits: every statement makes the thread hand over and retake the interpreter
lock, which is what a busy event loop makes expensive.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bedplate.core import errors
from bedplate.core.logging import get_logger
from bedplate.store.sqlite import file, queries
from bedplate.store.sqlite.plan import Row

__all__ = ["Mark", "Write", "Writer"]

_ROWS_PER_STATEMENT = 64
_REVISIONS_PER_SWEEP = 256

_log = get_logger("store.sqlite")

Reply = Callable[[dict[int, bytes], errors.BedplateError | None], None]


class Write(NamedTuple):
    """Insert rows as one transaction, after reading the values of `missing` rows."""

    rows: list[Row]
    missing: list[int]
    reply: Reply


class Mark(NamedTuple):
    """Give up history before a revision."""

    oldest: int
    reply: Reply


class Writer:
    """Owns the writing connection. `reply`s are called in the thread and must hand over to the loop themselves."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, files: file.Opened, *, oldest: int, swept: int
    ) -> None:
        self._path = path
        self._files = files
        self._connection = connection
        self._jobs: queue.SimpleQueue[Write | Mark | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="bedplate-store-writer", daemon=True)
        self._oldest = oldest
        self._swept = swept
        self._may_sweep = True

    def start(self) -> None:
        self._thread.start()

    def submit(self, job: Write | Mark) -> None:
        self._jobs.put(job)

    def stop(self) -> None:
        """Finish what was submitted, end the thread, close the connection. Blocks."""
        self._jobs.put(None)
        if self._thread.ident is not None:
            self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(block=not self._is_sweeping())
            except queue.Empty:
                self._sweep_alone()
                continue
            if job is None:
                return
            values: dict[int, bytes] = {}
            problem: errors.BedplateError | None = None
            try:
                values = self._perform(job)
            except sqlite3.Error as error:
                problem = file.explain(error, self._path)
            except file.Lost as lost:
                problem = lost
            except Exception as error:
                # The loop must hear of it in any case, or its callers would wait forever.
                problem = errors.Unavailable(f"{self._path} could not be written: {error!r}")
            if not isinstance(problem, file.Lost):
                self._files.note()
            job.reply(values, problem)

    def _perform(self, job: Write | Mark) -> dict[int, bytes]:
        if isinstance(job, Mark):
            self._connection.execute("UPDATE marks SET revision = ? WHERE name = 'oldest'", (job.oldest,))
            self._oldest = job.oldest
            self._may_sweep = True
            return {}
        values = queries.values_of(self._connection, job.missing) if job.missing else {}
        if not job.rows:
            return values
        self._files.require_same()
        if len(job.rows) <= _ROWS_PER_STATEMENT and not self._is_sweeping():
            self._insert(job.rows)
        else:
            self._transaction(job.rows)
        self._may_sweep = True
        return values

    def _transaction(self, rows: list[Row]) -> None:
        """Several statements as one transaction; a step of sweeping rides along, for it costs no sync of its own."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for start in range(0, len(rows), _ROWS_PER_STATEMENT):
                self._insert(rows[start : start + _ROWS_PER_STATEMENT])
            swept = self._sweep_step() if self._is_sweeping() else self._swept
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        self._swept = swept

    def _insert(self, rows: list[Row]) -> None:
        self._connection.execute(_INSERTS[len(rows)], [column for row in rows for column in row])

    def _is_sweeping(self) -> bool:
        return self._may_sweep and self._swept < self._oldest

    def _sweep_alone(self) -> None:
        try:
            self._transaction([])
            self._files.note()
        except sqlite3.Error as error:
            # Nothing is lost: the rows stay until the next write or compaction succeeds and sweeping goes on.
            self._may_sweep = False
            _log.warning("store.sweep_failed", path=str(self._path), error=str(error))

    def _sweep_step(self) -> int:
        """Delete what the changes of a few revisions replaced, and their deletions; the revision swept so far."""
        swept = min(self._swept + _REVISIONS_PER_SWEEP, self._oldest)
        bounds = (queries.last_id(self._swept), queries.last_id(swept))
        self._connection.execute(
            "DELETE FROM log WHERE id IN (SELECT previous FROM log WHERE id > ? AND id <= ? AND previous > 0)", bounds
        )
        self._connection.execute("DELETE FROM log WHERE id > ? AND id <= ? AND created = 0", bounds)
        self._connection.execute("UPDATE marks SET revision = ? WHERE name = 'swept'", (swept,))
        return swept


_INSERTS = {
    count: "INSERT INTO log (id, key, created, previous, value) VALUES " + ",".join(["(?,?,?,?,?)"] * count)
    for count in range(1, _ROWS_PER_STATEMENT + 1)
}
