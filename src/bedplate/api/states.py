"""The states of nodes and the results of checks: the one list of words that REST, the shell and the page say.

In: nothing. Out: the words, what each means, and the tone it is shown in (a class of the page's style sheet: `good`,
`bad`, `down` or `unknown`). A state has one word and one tone everywhere; how it comes about is `head.health`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, get_args

__all__ = ["MEANING", "RESULTS", "STATES", "TONES", "State", "Status", "health", "tone"]

State = Literal["UP", "DOWN", "UNKNOWN"]
"""Whether a node reports."""
Status = Literal["PASS", "FAIL", "UNKNOWN"]
"""What a check says; of a node: what all its checks say together."""

STATES: Final[tuple[State, ...]] = get_args(State)
RESULTS: Final[tuple[Status, ...]] = get_args(Status)
MEANING: Final[Mapping[str, str]] = {
    "UP": "it reports",
    "DOWN": "it has stopped reporting",
    "UNKNOWN": "it has not reported yet, or is DOWN: nothing is known",
    "PASS": "all its checks pass",
    "FAIL": "it reports, and a check of it fails",
}
TONES: Final[Mapping[str, str]] = {
    "UP": "good",
    "DOWN": "down",
    "UNKNOWN": "unknown",
    "PASS": "good",
    "FAIL": "bad",
}


def health(results: Iterable[Status]) -> Status:
    """One word for all checks of a node."""
    words = set(results)
    if "FAIL" in words:
        return "FAIL"
    return "PASS" if words == {"PASS"} else "UNKNOWN"


def tone(state: State, status: Status) -> str:
    """How a node is shown where one colour stands for it: a failing check is seen before that it is up."""
    return TONES[status] if state == "UP" and status == "FAIL" else TONES[state]
