"""Which numbers of a block are free, and which comes next.

In: the ends of a block, what is never given, and numbers as they are taken and given back. Out: the next free number
after a pointer, going round. Pure.

What is not free is kept as spans that neither overlap nor touch: one search by halves finds the span a number lies
in, and its end is the answer, however much is held and however large the block is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from bedplate.ipam.node.poolconfig import Span, merge

__all__ = ["FreeSet"]


class FreeSet:
    """The free numbers of [start, end]. Numbers outside may be taken and given back: that changes nothing."""

    __slots__ = ("_blocked", "_end", "_firsts", "_lasts", "_start", "capacity", "free")

    def __init__(self, start: int, end: int, never: Iterable[Span] = (), taken: Iterable[int] = ()) -> None:
        self._start, self._end = start, end
        blocked = merge((max(first, start), min(last, end)) for first, last in never if first <= end and last >= start)
        self._blocked = blocked
        self.capacity = end - start + 1 - sum(last - first + 1 for first, last in blocked)
        """How many numbers may ever be given."""
        inside = ((number, number) for number in taken if start <= number <= end)
        spans = merge((*blocked, *inside))
        self._firsts = [first for first, _ in spans]
        self._lasts = [last for _, last in spans]
        self.free = end - start + 1 - sum(last - first + 1 for first, last in spans)
        """How many can be given now."""

    def after(self, pointer: int | None) -> int | None:
        """The next free number after the pointer, going round; from the start when the pointer is not in the block."""
        if not self.free:
            return None
        if pointer is not None and self._start <= pointer < self._end:
            number = self._next(pointer + 1)
            if number <= self._end:
                return number
        return self._next(self._start)

    def take(self, number: int) -> None:
        """The number is held now."""
        if not self._start <= number <= self._end:
            return
        at = bisect_right(self._firsts, number)
        if at and number <= self._lasts[at - 1]:
            return
        joins_left = at > 0 and self._lasts[at - 1] == number - 1
        joins_right = at < len(self._firsts) and self._firsts[at] == number + 1
        if joins_left and joins_right:
            self._lasts[at - 1] = self._lasts[at]
            del self._firsts[at], self._lasts[at]
        elif joins_left:
            self._lasts[at - 1] = number
        elif joins_right:
            self._firsts[at] = number
        else:
            self._firsts.insert(at, number)
            self._lasts.insert(at, number)
        self.free -= 1

    def give_back(self, number: int) -> None:
        """Nobody holds the number any more."""
        at = bisect_right(self._firsts, number) - 1
        if at < 0 or number > self._lasts[at] or self._is_blocked(number):
            return
        first, last = self._firsts[at], self._lasts[at]
        if first == last:
            del self._firsts[at], self._lasts[at]
        elif number == first:
            self._firsts[at] = number + 1
        elif number == last:
            self._lasts[at] = number - 1
        else:
            self._lasts[at] = number - 1
            self._firsts.insert(at + 1, number + 1)
            self._lasts.insert(at + 1, last)
        self.free += 1

    def _next(self, number: int) -> int:
        at = bisect_right(self._firsts, number) - 1
        return self._lasts[at] + 1 if at >= 0 and number <= self._lasts[at] else number

    def _is_blocked(self, number: int) -> bool:
        at = bisect_right(self._blocked, (number, self._end + 1)) - 1
        return at >= 0 and number <= self._blocked[at][1]
