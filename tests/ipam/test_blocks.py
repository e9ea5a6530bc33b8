"""Blocks in a row, against a model that looks at every address."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bedplate.ipam.blocks import FreeBlocks, Grid, excluded_blocks, left_in
from bedplate.ipam.ranges import EMPTY, Range, RangeSet


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    stride = draw(st.integers(min_value=1, max_value=9))
    return Grid(
        draw(st.integers(min_value=0, max_value=20)),
        stride,
        draw(st.integers(min_value=max(stride - 1, 1), max_value=stride)),
        draw(st.integers(min_value=0, max_value=12)),
    )


def range_sets(low: int, high: int) -> st.SearchStrategy[RangeSet]:
    return st.lists(
        st.builds(lambda a, b: Range(min(a, b), max(a, b)), st.integers(low, high), st.integers(low, high)), max_size=6
    ).map(RangeSet)


def hosts_left(grid: Grid, index: int, addresses: RangeSet, offsets: RangeSet) -> list[int]:
    start = grid.first + index * grid.stride
    return [start + at for at in range(grid.span) if start + at not in addresses and at not in offsets]


@given(grids(), range_sets(0, 130), range_sets(0, 9))
def test_a_block_is_excluded_when_no_address_of_it_is_left(grid: Grid, addresses: RangeSet, offsets: RangeSet) -> None:
    excluded = excluded_blocks(grid, addresses, offsets)
    wanted = {index for index in range(grid.count) if not hosts_left(grid, index, addresses, offsets)}
    assert {index for index in range(-2, grid.count + 3) if index in excluded} == wanted
    for index in range(grid.count):
        left = [value for run in left_in(grid, index, addresses, offsets) for value in range(run.first, run.last + 1)]
        assert left == hosts_left(grid, index, addresses, offsets)


@given(grids(), st.integers(-10, 140), st.integers(0, 60))
def test_the_blocks_in_and_around_some_addresses(grid: Grid, first: int, length: int) -> None:
    wanted = Range(first, first + length)
    blocks = {
        index: set(range(grid.start_of(index), grid.start_of(index) + grid.stride)) for index in range(grid.count)
    }
    asked = set(range(wanted.first, wanted.last + 1))
    inside, touched = grid.inside(wanted), grid.touched_by(wanted)
    assert [index for index in blocks if blocks[index] <= asked] == list(range(inside.first, inside.last + 1))
    assert [index for index in blocks if blocks[index] & asked] == list(range(touched.first, touched.last + 1))


@given(grids(), st.integers(-10, 140))
def test_only_the_first_address_of_a_block_tells_its_index(grid: Grid, start: int) -> None:
    index = grid.index_of(start)
    below, rest = divmod(start - grid.first, grid.stride)
    assert index == (below if rest == 0 and below >= 0 else None)
    if index is not None:
        assert grid.hosts_of(index) == Range(start, start + grid.span - 1)


@given(st.data())
def test_the_lowest_free_block_is_the_one_a_scan_finds(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 25))
    excluded, held = data.draw(range_sets(0, 25)), data.draw(range_sets(0, 25))
    free, taken = FreeBlocks(count, excluded, held), set[int]()
    for _ in range(data.draw(st.integers(0, 30))):
        low, high = sorted((data.draw(st.integers(-2, 27)), data.draw(st.integers(-2, 27))))
        bounds = data.draw(st.sampled_from([None, Range(low, high)]))
        open_to_all = [at for at in range(count) if at not in excluded and at not in held and at not in taken]
        inside = [at for at in open_to_all if bounds is None or low <= at <= high]
        assert free.lowest(bounds) == (inside[0] if inside else None)
        for at in range(-1, count + 2):
            assert free.may_take(at) == (0 <= at < count and at not in excluded and at not in taken)
            assert free.is_taken(at) == (at in taken)
        taking = data.draw(st.one_of(st.just(free.lowest(bounds)), st.integers(0, 26)))
        if taking is not None:
            free.take(taking)
            taken.add(taking)
    kept_back = [at for at in range(26) if at in held and at not in excluded and at not in taken]
    assert free.some_held_left() == bool(kept_back)


def test_a_row_of_two_to_the_eighty_blocks_is_searched_at_once() -> None:
    grid = Grid(1, 500, 500, 2**80 // 500)
    whole = RangeSet([Range(0, 2**90)])
    assert FreeBlocks(grid.count, excluded_blocks(grid, whole, EMPTY)).lowest() is None
    assert FreeBlocks(grid.count, excluded_blocks(grid, EMPTY, RangeSet([Range(0, 499)]))).lowest() is None
    half = RangeSet([Range(0, 2**79)])
    assert FreeBlocks(grid.count, excluded_blocks(grid, half, EMPTY)).lowest() == (2**79 - 1) // 500
