"""The states of nodes, the results of checks and how far a node is with a revision: the one list of words that REST,
the shell and the page say.

In: nothing. Out: the words, what each means, and the tone it is shown in (a class of the page's style sheet: `good`,
`bad`, `down` or `unknown`). A state has one word and one tone everywhere; how it comes about is `head.health`'s,
`head.progress`'s and `head.rollout`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, get_args

__all__ = [
    "APPLICATIONS",
    "MEANING",
    "PEOPLE",
    "PROGRESS",
    "RELEASES",
    "RESULTS",
    "STATES",
    "TONES",
    "Applied",
    "Granted",
    "Progress",
    "Release",
    "State",
    "Status",
    "health",
    "tone",
]

State = Literal["UP", "DOWN", "UNKNOWN"]
"""Whether a node reports."""
Status = Literal["PASS", "FAIL", "UNKNOWN"]
"""What a check says; of a node: what all its checks say together."""
Release = Literal["applied", "pending", "failed", "away", "held"]
"""How a node of a roll-out stands."""
Progress = Literal["applied", "pending", "held", "failed", "DOWN", "UNKNOWN"]
"""How far a node is with a revision; for one that does not report it is the state that says so."""
Applied = Literal["applied", "pending", "failed", "removing", "disabled"]
"""How an application of a Kubernetes cluster stands."""
Granted = Literal["ready", "pending", "failed", "conflict", "removing"]
"""How the rights of a user of a Kubernetes cluster stand."""

STATES: Final[tuple[State, ...]] = get_args(State)
RESULTS: Final[tuple[Status, ...]] = get_args(Status)
RELEASES: Final[tuple[Release, ...]] = get_args(Release)
PROGRESS: Final[tuple[Progress, ...]] = get_args(Progress)
APPLICATIONS: Final[tuple[Applied, ...]] = get_args(Applied)
PEOPLE: Final[tuple[Granted, ...]] = get_args(Granted)
MEANING: Final[Mapping[str, str]] = {
    "UP": "it reports",
    "DOWN": "it has stopped reporting",
    "UNKNOWN": "it has not reported yet, or is DOWN: nothing is known",
    "PASS": "all its checks pass",
    "FAIL": "it reports, and a check of it fails",
    "applied": "it has applied the revision",
    "pending": "it reports, and has not applied the revision yet",
    "failed": "it could not apply the revision, or a check of it fails since then",
    "away": "it did not report when the roll-out began, and is not waited for",
    "held": "it waits for its batch of the roll-out",
    "removing": "its objects are being deleted",
    "disabled": "it is not enabled, or its group is not, and has no objects in the cluster",
    "ready": "everything was made",
    "conflict": "somebody else made it, with other values",
}
TONES: Final[Mapping[str, str]] = {
    "UP": "good",
    "DOWN": "down",
    "UNKNOWN": "unknown",
    "PASS": "good",
    "FAIL": "bad",
    "applied": "good",
    "pending": "unknown",
    "failed": "bad",
    "away": "down",
    "held": "unknown",
    "removing": "unknown",
    "disabled": "down",
    "ready": "good",
    "conflict": "bad",
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
