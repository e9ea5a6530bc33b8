"""Faults planted on purpose, one named topic at a time, so that the conformance suite can show that it would notice.

The entry point calls `plant` once with the value of `BEDPLATE_PLANT_FAULT`; code at a fault point asks `is_on`.
Without a planted fault that is one comparison with an empty text.
"""

from __future__ import annotations

from bedplate.core import errors

__all__ = ["TOPICS", "is_on", "plant"]

TOPICS: dict[str, str] = {
    "selectors": "watch events ignore that an object enters or leaves the selection",
    "bookmarks": "no bookmarks are sent",
}
"""Topic and what goes wrong when it is planted."""

_planted = {"topic": ""}


def plant(topic: str) -> None:
    """Plant the fault of a topic; an empty topic plants none."""
    if topic and topic not in TOPICS:
        raise errors.Invalid(f"no fault can be planted for {topic!r}", hint=f"one of {', '.join(sorted(TOPICS))}")
    _planted["topic"] = topic


def is_on(topic: str) -> bool:
    return _planted["topic"] == topic
