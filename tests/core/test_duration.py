"""Durations in Go's syntax."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.core import duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5m", 300),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("1.5s", 1.5),
        ("0", 0),
        ("-2s", -2),
        ("1h0m0s", 3600),
        (".5s", 0.5),
        ("7us", 7e-6),
    ],
)
def test_go_durations_are_read(text: str, seconds: float) -> None:
    assert duration.parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "5x", "-", "1h-2m", "soon", "5mm"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        duration.parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(90, "1m30s"), (0.25, "250ms"), (0, "0s"), (3600, "1h"), (3661.5, "1h1m1.5s"), (-5, "-5s")]
)
def test_durations_are_written_in_their_short_form(seconds: float, text: str) -> None:
    assert duration.format_duration(seconds) == text


@given(st.integers(-(10**9), 10**9))
def test_what_is_written_can_be_read_back(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert duration.parse_duration(duration.format_duration(seconds)) == pytest.approx(seconds, rel=1e-6)
