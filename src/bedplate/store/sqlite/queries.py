"""Every read of the database, as functions of a connection. Nothing here writes.

In: a connection and what is asked. Out: entries, pages, events. Each function reads one snapshot, and refuses with
`Compacted` inside that snapshot, so that a compaction running beside it can never make an answer incomplete.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from bedplate.store import interface
from bedplate.store.interface import Compacted, Entry, Event, Page
from bedplate.store.sqlite.plan import SEQUENCE_BITS

__all__ = ["Loaded", "changes", "entry_at", "load", "page_at", "values_of"]

_LAST_OF_REVISION = (1 << SEQUENCE_BITS) - 1
_CHANGES_PER_BATCH = 1000
_BYTES_PER_BATCH = 8 << 20
# Sorts after every key: UTF-8 has no byte above 0xF4, and SQLite orders blobs after text.
_NO_END = b""


class Loaded(NamedTuple):
    """What a store needs to know to begin: revisions, and (key, row id, created) of every live key."""

    revision: int
    oldest: int
    swept: int
    heads: list[tuple[str, int, int]]


def last_id(revision: int) -> int:
    """The highest row id a revision can have."""
    return revision << SEQUENCE_BITS | _LAST_OF_REVISION


def load(connection: sqlite3.Connection) -> Loaded:
    """Read the marks and the newest row of every key."""
    with _snapshot(connection):
        marks = dict(connection.execute("SELECT name, revision FROM marks").fetchall())
        newest = connection.execute("SELECT max(id) FROM log").fetchone()[0] or 0
        heads = connection.execute(
            "SELECT key, max(id), created FROM log INDEXED BY log_by_key GROUP BY key HAVING created > 0"
        ).fetchall()
    # A deletion at the newest revision may have been swept already, so the mark counts too.
    return Loaded(max(newest >> SEQUENCE_BITS, marks["oldest"]), marks["oldest"], marks["swept"], heads)


def values_of(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, bytes]:
    """The values of rows that are known to exist."""
    values: dict[int, bytes] = {}
    for start in range(0, len(ids), 500):
        some = ids[start : start + 500]
        marks = ",".join("?" * len(some))
        values.update(connection.execute(f"SELECT id, value FROM log WHERE id IN ({marks})", some).fetchall())
    return values


def entry_at(connection: sqlite3.Connection, key: str, revision: int) -> Entry | None:
    """The key as of a revision."""
    with _snapshot(connection):
        _refuse_compacted(connection, revision)
        row = connection.execute(
            "SELECT id, created, value FROM log WHERE key = ? AND id <= ? ORDER BY id DESC LIMIT 1",
            (key, last_id(revision)),
        ).fetchone()
    if row is None or row[1] == 0:
        return None
    return Entry(key, row[2], row[0] >> SEQUENCE_BITS, row[1])


def page_at(connection: sqlite3.Connection, prefix: str, revision: int, limit: int, after: str) -> Page:
    """Keys below a prefix and after a key, as of a revision."""
    bounds = {
        "low": max(prefix, after),
        "strict": after >= prefix and after != "",
        "high": interface.prefix_end(prefix) or _NO_END,
        "last": last_id(revision),
        "limit": limit + 1 if limit > 0 else -1,
    }
    with _snapshot(connection):
        _refuse_compacted(connection, revision)
        rows = connection.execute(_PAGE.format(compare=">" if bounds["strict"] else ">="), bounds).fetchall()
        more = 0 < limit < len(rows)
        remaining = 0
        if more:
            rows.pop()
            bounds["low"] = rows[-1][0]
            remaining = connection.execute(_COUNT, bounds).fetchone()[0]
    entries = [Entry(key, value, row >> SEQUENCE_BITS, created) for key, row, created, value in rows]
    return Page(entries, revision, more, remaining)


# `created` is that of the row with the highest id: SQLite defines a bare column beside max() so.
_NEWEST = """
    SELECT key, max(id) AS id, created FROM log INDEXED BY log_by_key
    WHERE key {compare} :low AND key < :high AND id <= :last GROUP BY key HAVING created > 0
"""
_PAGE = f"""
    SELECT newest.key, newest.id, newest.created, log.value
    FROM ({_NEWEST} ORDER BY key LIMIT :limit) AS newest CROSS JOIN log ON log.id = newest.id
"""
_COUNT = f"SELECT count(*) FROM ({_NEWEST.format(compare='>')})"


def changes(connection: sqlite3.Connection, prefix: str, after: int, upto: int) -> tuple[list[Event], int]:
    """Events with after < revision <= upto, whole commits only, and the revision up to which nothing is missing.

    A batch ends early when it grows large; the caller goes on from the revision returned.
    """
    events: list[Event] = []
    size = 0
    with _snapshot(connection):
        _refuse_compacted(connection, after)
        # The plus signs keep SQLite on the log's own order: a search by key would have to sort.
        rows = connection.execute(
            "SELECT log.id, log.key, log.created, log.value, log.previous, old.created, old.value"
            " FROM log LEFT JOIN log AS old ON old.id = log.previous"
            " WHERE log.id > ? AND log.id <= ? AND +log.key >= ? AND +log.key < ? ORDER BY log.id",
            (last_id(after), last_id(upto), prefix, interface.prefix_end(prefix) or _NO_END),
        )
        for row, key, created, value, previous, old_created, old_value in rows:
            revision = row >> SEQUENCE_BITS
            if (len(events) >= _CHANGES_PER_BATCH or size > _BYTES_PER_BATCH) and revision > events[-1].revision:
                rows.close()
                return events, events[-1].revision
            old = Entry(key, old_value, previous >> SEQUENCE_BITS, old_created) if previous else None
            entry = Entry(key, value, revision, created) if created else None
            events.append(Event(key, revision, entry, old))
            size += len(value or b"") + len(old_value or b"")
    return events, upto


@contextmanager
def _snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


def _refuse_compacted(connection: sqlite3.Connection, revision: int) -> None:
    oldest = connection.execute("SELECT revision FROM marks WHERE name = 'oldest'").fetchone()[0]
    if revision < oldest:
        raise Compacted(revision, oldest)
