"""What a report of a node says to people: the words of its notices.

In: what a node did, what it failed at, what its checks said before and now. Out: notices without numbers. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bedplate.head.health import Measured
from bedplate.head.notices import News

__all__ = ["Done", "Failed", "news"]


class Done(NamedTuple):
    """Something a node did: kind `service`, name `nginx`, verb `reloaded`."""

    kind: str
    name: str
    verb: str


class Failed(NamedTuple):
    """Something a node could not do, and why."""

    kind: str
    name: str
    verb: str
    text: str = ""


def news(
    node: str, done: Iterable[Done], failed: Iterable[Failed], measured: Iterable[Measured], revision: int = 0
) -> list[News]:
    """One notice for each action, each failure, and each check that says something else than before."""
    found = [News(node, f"{one.kind.capitalize()} {one.name} was {one.verb}", "notice", revision) for one in done]
    for one in failed:
        why = f": {one.text}" if one.text else ""
        text = f"{one.kind.capitalize()} {one.name} could not be {one.verb}{why}"
        found.append(News(node, text, "warning", revision))
    found.extend(_turned(one) for one in measured if _has_turned(one))
    return found


def _has_turned(one: Measured) -> bool:
    """A check that begins by passing is no news."""
    return one.before != one.sample.status and not (one.before is None and one.sample.status == "PASS")


def _turned(one: Measured) -> News:
    if one.sample.status == "PASS":
        return News(one.node, f"Check {one.check} passes again")
    word = "failed" if one.sample.status == "FAIL" else "gives no answer"
    why = f": {one.sample.info}" if one.sample.info else ""
    return News(one.node, f"Check {one.check} {word}{why}", "warning")
