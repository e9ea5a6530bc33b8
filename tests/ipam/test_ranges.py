"""Range sets against sets of single values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bedplate.ipam.ranges import EMPTY, Range, RangeSet

values = st.integers(min_value=-5, max_value=40)
ranges = st.builds(lambda first, length: Range(first, first + length), values, st.integers(min_value=-1, max_value=12))
some_ranges = st.lists(ranges, max_size=8)


def singles(given_ranges: list[Range]) -> set[int]:
    return {value for first, last in given_ranges for value in range(first, last + 1)}


@given(some_ranges)
def test_a_set_holds_what_its_ranges_hold_in_as_few_ranges_as_possible(given_ranges: list[Range]) -> None:
    made = RangeSet(given_ranges)
    assert singles(list(made)) == singles(given_ranges)
    assert made.total() == len(singles(given_ranges))
    assert all(after.first > before.last + 1 for before, after in zip(list(made), list(made)[1:], strict=False))


@given(some_ranges, values)
def test_a_value_is_found_with_the_range_around_it(given_ranges: list[Range], value: int) -> None:
    made = RangeSet(given_ranges)
    assert (value in made) == (value in singles(given_ranges))
    around = made.around(value)
    assert around is None or (around in list(made) and around.first <= value <= around.last)


@given(some_ranges, ranges)
def test_coverage_parts_and_gaps_are_those_of_the_single_values(given_ranges: list[Range], bounds: Range) -> None:
    made, inside = RangeSet(given_ranges), singles([bounds])
    if inside:
        assert made.covers(bounds) == (inside <= singles(given_ranges))
    assert singles(list(made.within(bounds))) == inside & singles(given_ranges)
    assert singles(list(made.gaps(bounds))) == inside - singles(given_ranges)


@given(some_ranges, some_ranges)
def test_a_union_holds_both_sides(one: list[Range], other: list[Range]) -> None:
    assert RangeSet(one).union(RangeSet(other)) == RangeSet([*one, *other])


def test_touching_ranges_become_one_and_equal_sets_are_equal() -> None:
    made = RangeSet([Range(5, 9), Range(1, 4), Range(12, 12)])
    assert list(made) == [Range(1, 9), Range(12, 12)]
    assert made == RangeSet([Range(12, 12), Range(1, 9)])
    assert hash(made) == hash(RangeSet([Range(12, 12), Range(1, 9)]))
    assert not EMPTY and len(made) == 2


def test_ranges_of_an_ipv6_network_cost_nothing() -> None:
    made = RangeSet([Range(0, 2**80), Range(2**80 + 1, 2**100)])
    assert list(made) == [Range(0, 2**100)]
    assert made.covers(Range(2**79, 2**99))
