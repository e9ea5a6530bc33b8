"""The next free number is the one that a walk along the block would find."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bedplate.ipam.node.book import FreeSet
from bedplate.ipam.ranges import Range


def walk(start: int, end: int, busy: set[int], pointer: int | None) -> int | None:
    """The order of allocation, literally: from after the pointer up, round at the end, until the circle is full."""
    begin = pointer + 1 if pointer is not None and start <= pointer <= end else start
    for step in range(end - start + 1):
        number = start + (begin - start + step) % (end - start + 1)
        if number not in busy:
            return number
    return None


spans = st.lists(
    st.tuples(st.integers(-3, 45), st.integers(0, 6)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=4
)


@given(
    st.sampled_from([0, 1 << 32, 1 << 127]),
    st.integers(0, 40),
    spans,
    st.lists(st.integers(-2, 43), max_size=80),
    st.data(),
)
def test_the_next_number_is_that_of_a_walk(
    base: int, size: int, never: list[tuple[int, int]], moves: list[int], data: st.DataObject
) -> None:
    start, end = base, base + size
    blocked = {base + number for first, last in never for number in range(first, last + 1)}
    held: set[int] = set()
    at_once = data.draw(st.booleans())
    free = FreeSet(start, end, [Range(base + first, base + last) for first, last in never])
    for move in moves:
        number = base + move
        if number in held:
            held.discard(number)
            free.give_back(number)
        else:
            held.add(number)
            free.take(number)
    if at_once:
        free = FreeSet(start, end, [Range(base + first, base + last) for first, last in never], held)
    pointer = data.draw(st.none() | st.integers(-2, 43).map(lambda number: base + number))
    assert free.after(pointer) == walk(start, end, held | blocked, pointer)
    inside = set(range(start, end + 1))
    assert free.free == len(inside - held - blocked)
    assert free.capacity == len(inside - blocked)


def test_a_huge_block_costs_no_more_than_a_small_one() -> None:
    start, end = 0xFD00 << 112, (0xFD00 << 112) + (1 << 64) - 1
    free = FreeSet(start, end, [Range(start, start + (1 << 63))])
    pointer = None
    for count in range(5000):
        number = free.after(pointer)
        assert number == start + (1 << 63) + 1 + count
        free.take(number)
        pointer = number
    assert free.after(end) == pointer + 1
    assert free.free == (1 << 64) - (1 << 63) - 1 - 5000


def test_a_full_block_gives_nothing_until_something_comes_back() -> None:
    free = FreeSet(1, 4, [Range(1, 1)], [2, 3, 4])
    assert free.after(4) is None
    free.give_back(1)
    assert free.after(4) is None
    free.give_back(3)
    assert free.after(4) == free.after(3) == 3
