"""The contract of the revisioned store.

In: keys (text), values (bytes), expectations. Out: entries with revisions, and events in commit order.

Every commit gets the next revision, one number for the whole store; all keys of one commit share it. What a reader or
watcher sees is durable. History stays readable (`revision=` on reads, `after=` on watches) until it is compacted. What
keys and commits may look like, and where a prefix ends, is the same for every backend: the functions at the end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from bedplate.core import errors

__all__ = [
    "Batch",
    "Compacted",
    "CompareFailed",
    "Delete",
    "Entry",
    "Event",
    "FutureRevision",
    "Op",
    "OutcomeUnknown",
    "Page",
    "Put",
    "Store",
    "StoreFull",
    "Watch",
    "check_key",
    "check_ops",
    "prefix_end",
]

_LAST_BEFORE_SURROGATES = 0xD7FF
_FIRST_AFTER_SURROGATES = 0xE000
_LAST_CODE_POINT = 0x10FFFF


class Entry(NamedTuple):
    """A key as it stood at a revision. `created` is the revision at which this life of the key began."""

    key: str
    value: bytes
    revision: int
    created: int


class Event(NamedTuple):
    """One key changed: `entry` is None for a deletion, `previous` is None for a creation."""

    key: str
    revision: int
    entry: Entry | None
    previous: Entry | None


Batch = list[Event]


class Page(NamedTuple):
    """A part of a list, all of it as of `revision`; `more` says whether keys follow; `remaining` counts them."""

    entries: list[Entry]
    revision: int
    more: bool
    remaining: int


class Put(NamedTuple):
    """Write a key. `expect`: None = whatever is there, 0 = must not exist, n = must stand at revision n."""

    key: str
    value: bytes
    expect: int | None = None


class Delete(NamedTuple):
    """Remove a key. `expect` as in `Put`; a missing key with expect None raises nothing and makes no event."""

    key: str
    expect: int | None = None


Op = Put | Delete


class CompareFailed(errors.Conflict):
    """A commit's expectation was not met, so nothing of it was written. `current` is the conflicting entry, or None."""

    def __init__(self, key: str, current: Entry | None, expected: int) -> None:
        state = f"at revision {current.revision}" if current else "absent"
        super().__init__(f"{key} is {state}, not at expected revision {expected}")
        self.key = key
        self.current = current
        self.expected = expected


class Compacted(errors.Terminal):
    """The requested revision is no longer kept; `oldest` is the oldest one available."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(f"revision {revision} has been compacted; the oldest kept is {oldest}")
        self.revision = revision
        self.oldest = oldest


class FutureRevision(errors.Terminal):
    """The requested revision has not been reached yet."""

    def __init__(self, revision: int, current: int) -> None:
        super().__init__(f"revision {revision} is in the future; the current one is {current}")
        self.revision = revision
        self.current = current


class NoQuorum(errors.Unavailable):
    """Too few members of the backend's cluster answer for it to decide anything."""

    is_public = True
    """Whoever probes the health may read it: it has no address in it."""

    def __init__(self, answering: int, members: int) -> None:
        super().__init__(
            f"etcd has no quorum: {answering} of {members} members answer",
            hint="start the other members again; nothing is written until then",
        )


class StoreFull(errors.Retryable):
    """The disk (or the backend's quota) is full. Nothing of the commit was written; reads continue."""


class OutcomeUnknown(errors.Unavailable):
    """The commit may or may not have been written: read its keys before deciding again. It was not repeated."""


class Watch(Protocol):
    """Batches of events, read with `async for`. A cancelled read loses nothing: the next one goes on where it was.

    It ends only by an error: `Compacted`, or `Unavailable` once the store is closed. Lost connections are its own
    affair. One task reads it at a time.
    """

    def __aiter__(self) -> AsyncIterator[Batch]: ...

    async def __anext__(self) -> Batch: ...

    async def aclose(self) -> None:
        """Give back what the watch holds; for those who stop reading before the store is closed."""
        ...


class Store(Protocol):
    """What the API server and the head stand on. Open with `async with`."""

    @property
    def most_ops(self) -> int:
        """How many ops of usual size one commit may have; whoever has more to write divides it."""
        ...

    async def __aenter__(self) -> Store: ...

    async def __aexit__(self, *exc: object) -> None: ...

    async def revision(self) -> int:
        """The newest durable revision."""
        ...

    async def check(self) -> None:
        """Raise `Unavailable` unless the store can be read and written."""
        ...

    async def get(self, key: str, *, revision: int = 0) -> Entry | None:
        """The key now, or as of a past revision."""
        ...

    async def list(self, prefix: str, *, revision: int = 0, limit: int = 0, after: str = "") -> Page:
        """Keys below a prefix in key order, now or as of a past revision; `after` and `limit` page through them."""
        ...

    async def commit(self, ops: Sequence[Op]) -> int:
        """Write all of it or nothing, durably; the revision it got.

        A commit that changes nothing (no ops, or only deletions of missing keys) takes no revision and returns the
        current one. Raises `CompareFailed` for the first expectation, in the order of `ops`, that does not hold;
        `Invalid` for a key that is unusable or named twice; `StoreFull`; `OutcomeUnknown` when it cannot be told.
        """
        ...

    def watch(self, prefix: str, *, after: int) -> Watch:
        """Events below a prefix with revision > `after`, in order, in batches. Raises `Compacted` if history is gone.

        `after` may lie in the future; below `oldest()` it is refused, with the first read. Events of a commit come in
        the order of its ops. A reader too slow for the backend's buffer also gets `Compacted`, never a gap. A batch
        never splits a commit. An empty batch is a progress mark: it may come at any time and says nothing but that the
        watch is alive.
        """
        ...

    async def compact(self, revision: int) -> None:
        """Forget history before `revision`; the state as of `revision` and later stays readable.

        Raises `FutureRevision`; a revision not above the oldest changes nothing. Space is given back in the background.
        """
        ...

    async def oldest(self) -> int:
        """The oldest revision that can still be read."""
        ...


def prefix_end(prefix: str) -> str | None:
    """The smallest text that sorts after every key below the prefix; None when nothing does (the empty prefix)."""
    kept = prefix.rstrip(chr(_LAST_CODE_POINT))
    if not kept:
        return None
    last = ord(kept[-1])
    following = _FIRST_AFTER_SURROGATES if last == _LAST_BEFORE_SURROGATES else last + 1
    return kept[:-1] + chr(following)


def check_key(key: str) -> None:
    """Raise `Invalid` unless the key is non-empty text that has a UTF-8 form."""
    fault = _fault(key)
    if fault:
        raise errors.Invalid(fault)


def check_ops(ops: Sequence[Op]) -> None:
    """Raise `Invalid` unless every key is usable and named once, and every expectation is a revision."""
    problems: list[str] = []
    seen: set[str] = set()
    for op in ops:
        key = op.key
        if not key or not key.isascii():
            fault = _fault(key)
            if fault:
                problems.append(fault)
        if key in seen:
            problems.append(f"key {key!r} occurs twice in one commit")
        seen.add(key)
        if op.expect is not None and op.expect < 0:
            problems.append(f"key {key!r} expects revision {op.expect}, which is not a valid revision")
        if isinstance(op, Put) and not isinstance(op.value, bytes):
            problems.append(f"the value of key {key!r} is {type(op.value).__name__}, not bytes")
    if problems:
        raise errors.Invalid("the commit cannot be written", problems=problems)


def _fault(key: str) -> str:
    if not key:
        return "a key must not be empty"
    try:
        key.encode()
    except UnicodeEncodeError:
        return f"key {key!r} cannot be encoded as UTF-8"
    return ""
