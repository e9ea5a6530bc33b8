"""Sets of integers as ranges: addresses that are excluded, offsets in a block, indexes of blocks.

In: pairs of first and last value, both included, in any order. Out: sets that answer by bisection, so that no question
costs more than the logarithm of the number of ranges, however many values these hold. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

__all__ = ["EMPTY", "Range", "RangeSet"]


class Range(NamedTuple):
    """The values from `first` to `last`, both included."""

    first: int
    last: int


class RangeSet:
    """Ranges in ascending order; two of them neither overlap nor touch."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        firsts: list[int] = []
        lasts: list[int] = []
        for first, last in sorted(range_ for range_ in ranges if range_.first <= range_.last):
            if lasts and first <= lasts[-1] + 1:
                lasts[-1] = max(lasts[-1], last)
            else:
                firsts.append(first)
                lasts.append(last)
        self._firsts, self._lasts = firsts, lasts

    def __iter__(self) -> Iterator[Range]:
        return (Range(first, last) for first, last in zip(self._firsts, self._lasts, strict=True))

    def __len__(self) -> int:
        return len(self._firsts)

    def __contains__(self, value: int) -> bool:
        return self.around(value) is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and (self._firsts, self._lasts) == (other._firsts, other._lasts)

    def __hash__(self) -> int:
        return hash((tuple(self._firsts), tuple(self._lasts)))

    def __repr__(self) -> str:
        return f"RangeSet({list(self)!r})"

    def around(self, value: int) -> Range | None:
        """The range that holds the value."""
        at = bisect_right(self._firsts, value) - 1
        if at < 0 or self._lasts[at] < value:
            return None
        return Range(self._firsts[at], self._lasts[at])

    def covers(self, part: Range) -> bool:
        """Every value of the range is in the set. Ranges never touch, so one of them has to hold it all."""
        range_ = self.around(part.first)
        return range_ is not None and range_.last >= part.last

    def within(self, bounds: Range) -> Iterator[Range]:
        """The parts of the set that lie in the bounds, ascending."""
        at = max(bisect_right(self._firsts, bounds.first) - 1, 0)
        while at < len(self._firsts) and self._firsts[at] <= bounds.last:
            if self._lasts[at] >= bounds.first:
                yield Range(max(self._firsts[at], bounds.first), min(self._lasts[at], bounds.last))
            at += 1

    def gaps(self, bounds: Range) -> Iterator[Range]:
        """The parts of the bounds that the set does not hold, ascending."""
        start = bounds.first
        for range_ in self.within(bounds):
            if range_.first > start:
                yield Range(start, range_.first - 1)
            start = range_.last + 1
        if start <= bounds.last:
            yield Range(start, bounds.last)

    def union(self, other: RangeSet) -> RangeSet:
        """What is in one or the other."""
        if not self:
            return other
        return RangeSet((*self, *other)) if other else self

    def total(self) -> int:
        """How many values the set holds."""
        return sum(last - first + 1 for first, last in zip(self._firsts, self._lasts, strict=True))


EMPTY = RangeSet()
