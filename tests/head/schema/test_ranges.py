"""Names of nodes in short."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.head.schema import ranges


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node00[4-6]", ["node004", "node005", "node006"]),
        ("node[001-002,7]", ["node001", "node002", "node7"]),
        ("node001..node003", ["node001", "node002", "node003"]),
        ("node010,node2 node10", ["node2", "node010", "node10"]),
        ("node[9-11]", ["node9", "node10", "node11"]),
        ("rack[1-2]n1", ["rack1n1", "rack2n1"]),
        ("", []),
    ],
)
def test_item_037_ranges_expand(text: str, names: list[str]) -> None:
    assert sorted(ranges.expand(text)) == sorted(names)


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["node001", "node002", "node003"], "node001..node003"),
        (["node001", "node002"], "node001,node002"),
        (["node001", "node003", "node004", "node005", "x"], "node001,node003..node005,x"),
        (["node9", "node10", "node11"], "node9..node11"),
        (["node099", "node100", "node101"], "node099..node101"),
        ([], ""),
    ],
)
def test_item_037_lists_are_shown_compressed(names: list[str], shown: str) -> None:
    assert ranges.compress(names) == shown


@pytest.mark.parametrize(
    "text", ["node[1-", "node1-3]", "node[3-1]", "node[a-c]", "a..b", "node1..rack3", "node[1-999999]"]
)
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        ranges.expand(text)


@given(st.sets(st.builds("{}{}".format, st.sampled_from(["node", "r1n", "x-"]), st.integers(0, 120).map(str))))
def test_what_is_shown_is_read_back(names: set[str]) -> None:
    assert set(ranges.expand(ranges.compress(names))) == names
