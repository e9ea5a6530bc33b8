"""Decides what a group of commits writes. Pure, except that it reads the table of heads.

In: commits in the order they were asked for, and the newest durable row of each key. Out: rows to insert, the outcome
of each commit if the insert succeeds, and the ids of old rows whose values must be read to tell the whole outcome.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bedplate.store.interface import CompareFailed, Entry, Event, Op, Put

__all__ = [
    "SEQUENCE_BITS",
    "Change",
    "Commit",
    "Group",
    "Head",
    "Heads",
    "Row",
    "entry_of",
    "events",
    "plan",
    "refusal",
    "take",
]

SEQUENCE_BITS = 16
_CACHE_BYTES = 32 << 20
_ROWS_PER_GROUP = 512
_BYTES_PER_GROUP = 8 << 20

Row = tuple[int, str, int, int, bytes | None]


class Head(NamedTuple):
    """The newest live row of a key. `entry` is None while its value has not been read from the database."""

    id: int
    created: int
    entry: Entry | None = None


class Change(NamedTuple):
    """One key of a commit, before and after."""

    key: str
    head: Head | None
    previous: Head | None


@dataclass(slots=True, eq=False)
class Commit:
    """A commit that was asked for, then what becomes of it. `alone`: it must not share a group with others."""

    ops: Sequence[Op]
    done: asyncio.Future[int]
    alone: bool = False
    revision: int = 0
    changes: list[Change] = field(default_factory=list)
    refused: tuple[str, Head | None, int] | None = None


@dataclass(slots=True)
class Group:
    """Commits that become durable together."""

    commits: list[Commit]
    revision: int
    rows: list[Row] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)


class Heads:
    """The newest durable row of every live key, and the values of those written or read last."""

    def __init__(self, rows: Iterable[tuple[str, int, int]]) -> None:
        self._heads = {key: (row, created) for key, row, created in rows}
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._bytes = 0

    def get(self, key: str) -> Head | None:
        head = self._heads.get(key)
        return Head(*head, self._entries.get(key)) if head else None

    def put(self, key: str, head: Head | None) -> None:
        old = self._entries.pop(key, None)
        if old is not None:
            self._bytes -= len(old.value)
        if head is None:
            self._heads.pop(key, None)
            return
        self._heads[key] = (head.id, head.created)
        if head.entry is not None:
            self._entries[key] = head.entry
            self._bytes += len(head.entry.value)
            while self._bytes > _CACHE_BYTES:
                self._bytes -= len(self._entries.popitem(last=False)[1].value)


def take(waiting: deque[Commit]) -> list[Commit]:
    """Remove from the queue the commits that form the next group: all that wait, within reason."""
    taken: list[Commit] = []
    rows = size = 0
    while waiting and rows < _ROWS_PER_GROUP and size < _BYTES_PER_GROUP:
        if waiting[0].alone and taken:
            break
        commit = waiting.popleft()
        if commit.done.done():
            continue  # its caller was cancelled before anything was written
        taken.append(commit)
        if commit.alone:
            break
        rows += len(commit.ops)
        size += sum([len(op.value) for op in commit.ops if isinstance(op, Put)])
    return taken


def plan(commits: list[Commit], heads: Heads, revision: int) -> Group:
    """Give every commit whose expectations hold the next revision; later commits see what earlier ones wrote."""
    group = Group(commits, revision)
    ahead: dict[str, Head | None] = {}
    missing: set[int] = set()
    for commit in commits:
        commit.changes = []
        commit.refused = None
        before = [ahead[op.key] if op.key in ahead else heads.get(op.key) for op in commit.ops]
        for op, head in zip(commit.ops, before, strict=True):
            if op.expect is not None and op.expect != (head.id >> SEQUENCE_BITS if head else 0):
                commit.refused = (op.key, head, op.expect)
                if head is not None and head.entry is None:
                    missing.add(head.id)
                break
        else:
            _apply(commit, before, group, ahead, missing)
        commit.revision = group.revision
    group.missing = sorted(missing)
    return group


def _apply(
    commit: Commit, before: list[Head | None], group: Group, ahead: dict[str, Head | None], missing: set[int]
) -> None:
    revision = group.revision + 1
    row_id = revision << SEQUENCE_BITS
    for op, old in zip(commit.ops, before, strict=True):
        head: Head | None = None
        if isinstance(op, Put):
            created = old.created if old else revision
            head = Head(row_id, created, Entry(op.key, op.value, revision, created))
            group.rows.append((row_id, op.key, created, old.id if old else 0, op.value))
        elif old is None:
            continue
        else:
            group.rows.append((row_id, op.key, 0, old.id, None))
        if old is not None and old.entry is None:
            missing.add(old.id)
        commit.changes.append(Change(op.key, head, old))
        ahead[op.key] = head
        row_id += 1
    if commit.changes:
        group.revision = revision


def events(commit: Commit, values: dict[int, bytes]) -> list[Event]:
    """What watchers see of a commit; `values` are those of the rows that `Group.missing` asked for."""
    return [
        Event(
            change.key,
            commit.revision,
            change.head.entry if change.head else None,
            entry_of(change.key, change.previous, values),
        )
        for change in commit.changes
    ]


def refusal(commit: Commit, values: dict[int, bytes]) -> CompareFailed | None:
    """The error for a commit whose expectation did not hold."""
    if commit.refused is None:
        return None
    key, head, expected = commit.refused
    return CompareFailed(key, entry_of(key, head, values), expected)


def entry_of(key: str, head: Head | None, values: dict[int, bytes]) -> Entry | None:
    """The entry a head stands for, its value taken from `values` when the head does not carry it."""
    if head is None or head.entry is not None:
        return head.entry if head else None
    return Entry(key, values[head.id], head.id >> SEQUENCE_BITS, head.created)
