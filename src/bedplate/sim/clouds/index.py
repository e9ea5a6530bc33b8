"""The objects of one kind that a simulated cloud holds, and its lists of them as they were some seconds ago.

In: objects put and dropped, each encoded once. Out: the object now (views are consistent), or all of them as of an
earlier moment (lists may lag). Selections (filtered and sorted lists) are remembered until something changes, so that
walking the pages of 5,000 objects does not sort them fifty times.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bedplate.core import clock
from bedplate.sim.clouds.exchange import encode

__all__ = ["Index", "Row"]

REMEMBERED_CHANGES = 10_000
REMEMBERED_SELECTIONS = 64


@dataclass(frozen=True, slots=True)
class Row:
    """An object and its JSON."""

    key: str
    data: Mapping[str, Any]
    encoded: bytes


@dataclass(frozen=True, slots=True)
class _Change:
    at: float
    key: str
    before: Row | None


class Index:
    """Rows by key, with enough history to show an earlier state."""

    def __init__(self, time: clock.Clock) -> None:
        self._time = time
        self._rows: dict[str, Row] = {}
        self._history: deque[_Change] = deque(maxlen=REMEMBERED_CHANGES)
        self._version = 0
        self._selections: OrderedDict[Hashable, Sequence[Row]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[Row]:
        return iter(list(self._rows.values()))

    def get(self, key: str) -> Row | None:
        return self._rows.get(key)

    def put(self, key: str, data: Mapping[str, Any]) -> Row:
        """Add or replace."""
        row = Row(key, data, encode(data))
        self._note(key)
        self._rows[key] = row
        return row

    def drop(self, key: str) -> None:
        """Take away; nothing happens when it is not there."""
        if key in self._rows:
            self._note(key)
            del self._rows[key]

    def select(self, query: Hashable, lag_s: float, choose: Callable[[Iterable[Row]], Sequence[Row]]) -> Sequence[Row]:
        """What `choose` makes of all rows as they were `lag_s` ago; `query` names the choice for the memory."""
        undone = self._younger_than(lag_s)
        key = (self._version, undone, query)
        rows = self._selections.get(key)
        if rows is None:
            rows = choose(self._before(undone).values())
            self._selections[key] = rows
            if len(self._selections) > REMEMBERED_SELECTIONS:
                self._selections.popitem(last=False)
        return rows

    def pick(self, keys: Iterable[str], lag_s: float) -> list[Row]:
        """The rows of these keys as they were `lag_s` ago, those that were there."""
        rows = self._before(self._younger_than(lag_s))
        return [rows[key] for key in keys if key in rows]

    def _note(self, key: str) -> None:
        self._history.append(_Change(self._time.monotonic(), key, self._rows.get(key)))
        self._version += 1

    def _younger_than(self, lag_s: float) -> int:
        """How many of the last changes are too young to be seen."""
        if lag_s <= 0:
            return 0
        cut = self._time.monotonic() - lag_s
        count = 0
        for change in reversed(self._history):
            if change.at <= cut:
                break
            count += 1
        return count

    def _before(self, undone: int) -> Mapping[str, Row]:
        if undone == 0:
            return self._rows
        rows = dict(self._rows)
        for position in range(1, undone + 1):
            change = self._history[-position]
            if change.before is None:
                rows.pop(change.key, None)
            else:
                rows[change.key] = change.before
        return rows
