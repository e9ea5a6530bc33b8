"""Blocks of equal size in a row: which of them are excluded whole, and which is the lowest that is free.

In: where the row begins, how long a block is, what is excluded. Out: indexes of blocks. Nothing here walks over blocks
or addresses: an excluded area costs the same whether it holds one block or 2^64 of them. Pure.

A block is excluded whole when the pool's exclusions and the ones that repeat in every block leave it no address. Such a
block lies inside one exclusion of the pool; or it holds the end of one, and an exclusion has two ends; or the repeated
exclusions cover any block on their own, and then there is no block at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bedplate.ipam.ranges import EMPTY, Range, RangeSet

__all__ = ["FreeBlocks", "Grid", "excluded_blocks", "left_in"]


@dataclass(frozen=True, slots=True)
class Grid:
    """`count` blocks of `stride` addresses from `first` on. Hosts may use the leading `span` addresses of a block."""

    first: int
    stride: int
    span: int
    count: int

    def index_of(self, start: int) -> int | None:
        """Which block begins at this address; None when none does. Blocks past the end are counted on."""
        index, rest = divmod(start - self.first, self.stride)
        return None if rest or index < 0 else index

    def start_of(self, index: int) -> int:
        """Where a block begins."""
        return self.first + index * self.stride

    def hosts_of(self, index: int) -> Range:
        """The addresses of a block that hosts may use."""
        start = self.start_of(index)
        return Range(start, start + self.span - 1)

    def touched_by(self, addresses: Range) -> Range:
        """The indexes of the blocks that hold one of these addresses; an empty range when none does."""
        return self._within((addresses.first - self.first) // self.stride, (addresses.last - self.first) // self.stride)

    def inside(self, addresses: Range) -> Range:
        """The indexes of the blocks that lie in these addresses whole; an empty range when none does."""
        below = (addresses.last + 1 - self.first) // self.stride
        return self._within(-((self.first - addresses.first) // self.stride), below - 1)

    def _within(self, first: int, last: int) -> Range:
        return Range(max(first, 0), min(last, self.count - 1))


def excluded_blocks(grid: Grid, addresses: RangeSet, offsets: RangeSet) -> RangeSet:
    """Which blocks have no address left, given excluded addresses and excluded offsets in every block."""
    if offsets.covers(Range(0, grid.span - 1)):
        return RangeSet([Range(0, grid.count - 1)])
    blocks: list[Range] = []
    judged = -1
    for range_ in addresses:
        blocks.append(grid.inside(range_))
        touched = grid.touched_by(range_)
        blocks.extend(
            Range(index, index)
            for index in {touched.first, touched.last}
            if judged < index <= touched.last and next(left_in(grid, index, addresses, offsets), None) is None
        )
        judged = max(judged, touched.last)
    return RangeSet(blocks)


def left_in(grid: Grid, index: int, addresses: RangeSet, offsets: RangeSet) -> Iterator[Range]:
    """The addresses of a block that are not excluded, ascending and lazily: the first ones cost a bisection."""
    start = grid.start_of(index)
    for gap in addresses.gaps(grid.hosts_of(index)):
        for left in offsets.gaps(Range(gap.first - start, gap.last - start)):
            yield Range(start + left.first, start + left.last)


class FreeBlocks:
    """Which blocks may be given: those that are neither excluded nor taken nor held back.

    Every block that was passed over points past what was found there, and pointers are shortened on the way, so that a
    search costs next to nothing however often it starts at the same place.
    """

    def __init__(self, count: int, excluded: RangeSet, held: RangeSet = EMPTY) -> None:
        self._count = count
        self._excluded = excluded
        self._held = held
        self._barred = excluded.union(held)
        self._taken: set[int] = set()
        self._next: dict[int, int] = {}

    def may_take(self, index: int) -> bool:
        """The block exists, is not excluded and belongs to nobody; whether it is held back is not asked."""
        return 0 <= index < self._count and index not in self._taken and index not in self._excluded

    def is_taken(self, index: int) -> bool:
        """The block is allocated."""
        return index in self._taken

    def take(self, index: int) -> None:
        """Mark the block as allocated; one outside the row may be named, too."""
        self._taken.add(index)
        self._next.setdefault(index, index + 1)

    def lowest(self, bounds: Range | None = None) -> int | None:
        """The lowest free block, of those in the bounds if there are any."""
        first, last = bounds or Range(0, self._count - 1)
        index = self._from(max(first, 0))
        return index if index <= min(last, self._count - 1) else None

    def some_held_left(self) -> bool:
        """Some block would be free were it not held back."""
        return any(self._some_untaken(gap) for range_ in self._held for gap in self._excluded.gaps(range_))

    def _some_untaken(self, indexes: Range) -> bool:
        size = indexes.last - indexes.first + 1
        return size > len(self._taken) or any(at not in self._taken for at in range(indexes.first, indexes.last + 1))

    def _from(self, start: int) -> int:
        passed = []
        at = start
        while True:
            after = self._next.get(at)
            if after is None:
                barred = self._barred.around(at)
                if barred is None:
                    break
                after = barred.last + 1
            passed.append(at)
            at = after
        for index in passed:
            self._next[index] = at
        return at
