"""What a store should do, in the plainest form: every state it ever had, kept whole.

In: commits and compactions. Out: the answers a store must give. Revisions count up from where the real store stood.
"""

from __future__ import annotations

from collections.abc import Sequence

from bedplate.store.interface import Compacted, CompareFailed, Entry, Event, FutureRevision, Op, Page, Put


class Model:
    """A dictionary with its whole history."""

    def __init__(self, revision: int) -> None:
        self.first = revision
        self.revision = revision
        self.oldest = revision
        self.states: dict[int, dict[str, Entry]] = {revision: {}}
        self.events: list[Event] = []

    def commit(self, ops: Sequence[Op]) -> int:
        state = dict(self.states[self.revision])
        for op in ops:
            current = state.get(op.key)
            if op.expect is not None and op.expect != (current.revision if current else 0):
                raise CompareFailed(op.key, current, op.expect)
        revision = self.revision + 1
        events = []
        for op in ops:
            old = state.pop(op.key, None)
            if isinstance(op, Put):
                entry = Entry(op.key, op.value, revision, old.created if old else revision)
                state[op.key] = entry
                events.append(Event(op.key, revision, entry, old))
            elif old is not None:
                events.append(Event(op.key, revision, None, old))
        if events:
            self.revision = revision
            self.states[revision] = state
            self.events += events
        return self.revision

    def compact(self, revision: int) -> None:
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        self.oldest = max(self.oldest, revision)

    def state(self, revision: int) -> dict[str, Entry]:
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        if revision < self.oldest:
            raise Compacted(revision, self.oldest)
        return self.states[revision]

    def page(self, prefix: str, revision: int, limit: int = 0, after: str = "") -> Page:
        state = self.state(revision)
        found = [state[key] for key in sorted(state) if key.startswith(prefix) and key > after]
        shown = found[:limit] if limit else found
        return Page(shown, revision, len(found) > len(shown), len(found) - len(shown))

    def since(self, prefix: str, after: int) -> list[Event]:
        if after < self.oldest:
            raise Compacted(after, self.oldest)
        return [event for event in self.events if event.revision > after and event.key.startswith(prefix)]
