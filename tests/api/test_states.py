"""The words of states: each has one meaning and one colour."""

from __future__ import annotations

import pytest

from bedplate.api import states
from bedplate.api.states import Status


def test_every_word_has_a_meaning_and_a_tone() -> None:
    words = {*states.STATES, *states.RESULTS, *states.RELEASES, *states.PROGRESS, *states.APPLICATIONS, *states.PEOPLE}
    assert set(states.MEANING) == set(states.TONES) == words
    assert set(states.TONES.values()) == {"good", "bad", "down", "unknown"}


@pytest.mark.parametrize(
    ("results", "word"),
    [
        ([], "UNKNOWN"),
        (["PASS"], "PASS"),
        (["PASS", "UNKNOWN"], "UNKNOWN"),
        (["PASS", "FAIL", "UNKNOWN"], "FAIL"),
    ],
)
def test_one_word_for_all_checks(results: list[Status], word: str) -> None:
    assert states.health(results) == word


def test_a_failing_check_is_seen_unless_the_node_is_silent() -> None:
    assert states.tone("UP", "FAIL") == "bad"
    assert states.tone("UP", "PASS") == states.tone("UP", "UNKNOWN") == "good"
    assert states.tone("DOWN", "FAIL") == "down"
