"""The mapping that is never changed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.head.persistent import Pmap

keys = st.one_of(st.integers(-50, 5000), st.integers(0, 40).map(lambda number: number << 61))
steps = st.lists(st.tuples(st.booleans(), keys, st.integers()), max_size=200)


@settings(deadline=None)
@given(st.dictionaries(keys, st.integers(), max_size=100), steps)
def test_it_holds_what_a_dict_holds_and_the_old_one_stays(
    first: dict[int, int], work: list[tuple[bool, int, int]]
) -> None:
    held, model = Pmap(first.items()), dict(first)
    for sets, key, value in work:
        old, before = held, dict(held)
        if sets:
            held, model = held.set(key, value), {**model, key: value}
        else:
            held, model = held.drop(key), {name: kept for name, kept in model.items() if name != key}
        assert held == model
        assert len(held) == len(model)
        assert held.get(key) == model.get(key)
        assert dict(old) == before


def test_a_change_in_a_large_mapping_shares_the_rest() -> None:
    class Thing:
        pass

    large = Pmap((number, Thing()) for number in range(10_000))
    changed = large.set(5, Thing())
    assert sum(1 for number in large if large[number] is not changed[number]) == 1
    shared = sum(1 for one, other in zip(large._root, changed._root, strict=True) if one is other)
    assert shared == len(large._root) - 1
