"""Blocks in files that others write, too, and what may be shown of a desired state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.api.desired import BEGIN, END, Desired, File, block_of, merged

lines = st.lists(st.sampled_from(["one", "two", "", "# three"]), max_size=5).map(
    lambda found: "".join(f"{line}\n" for line in found)
)


@given(lines, lines, lines)
def test_a_block_is_replaced_and_everything_else_stays(own: str, first: str, second: str) -> None:
    present = merged(own, first)
    assert merged(present, first) == present
    assert merged(merged(present, second), first) == present
    assert merged(present, None) == own


def test_a_block_stays_where_somebody_moved_it() -> None:
    present = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert merged(present, "new\n") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


@pytest.mark.parametrize("present", [f"before\n{BEGIN}\nold\n", f"before\n{BEGIN}\nold"])
def test_a_block_without_an_end_is_closed(present: str) -> None:
    assert merged(present, "new\n") == f"before\n{BEGIN}\nnew\n{END}\n"


@pytest.mark.parametrize("own", ["a\r\nb\r\n", "form\x0cfeed\n", "next\x85line\u2028\n", "\ud800\n", "\n\n a\n"])
def test_what_stands_around_a_block_keeps_every_byte(own: str) -> None:
    present = merged(own, "new\n")
    assert present == f"{own}{BEGIN}\nnew\n{END}\n"
    assert merged(present, None) == own


@given(lines, lines)
def test_the_content_of_a_block_is_read_back(own: str, content: str) -> None:
    assert block_of(own) is None
    assert block_of(merged(own, content)) == content


def test_a_block_with_line_ends_of_windows_is_found() -> None:
    present = f"before\n{BEGIN}\nold\n{END}\nafter\n".replace("\n", "\r\n")
    assert block_of(present) == "old\r\n"
    assert merged(present, "new\n") == f"before\r\n{BEGIN}\nnew\n{END}\nafter\r\n"


def test_secret_content_is_masked_and_the_rest_is_not() -> None:
    state = Desired(node="n", files=(File(path="/a", content="x", secret=True), File(path="/b", content="y")))
    assert [file.content for file in state.masked().files] == ["*****", "y"]
    assert state.digest != state.masked().digest
