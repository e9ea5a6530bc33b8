"""Ranges of pod addresses: one for each node, none twice, and who has one keeps it."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.core import errors
from bedplate.head.clusters.membership import allocate

PODS = ipaddress.IPv4Network("172.29.0.0/16")


@given(st.sets(st.integers(0, 99), max_size=30), st.sets(st.integers(0, 99), max_size=30))
def test_item_96_every_node_has_a_range_of_its_own_and_keeps_it(before: set[int], after: set[int]) -> None:
    first = allocate(PODS, 24, [f"n{number}" for number in sorted(before)], {})
    second = allocate(PODS, 24, [f"n{number}" for number in sorted(after)], first)
    for ranges in (first, second):
        assert len(set(ranges.values())) == len(ranges)
        assert all(range_.prefixlen == 24 and range_.subnet_of(PODS) for range_ in ranges.values())
    assert all(second[node] == range_ for node, range_ in first.items() if node in second)


def test_a_network_that_is_too_small_is_told() -> None:
    with pytest.raises(errors.Invalid, match="no range of 24 bits left for c"):
        allocate(ipaddress.IPv4Network("10.0.0.0/23"), 24, ["a", "b", "c"], {})
