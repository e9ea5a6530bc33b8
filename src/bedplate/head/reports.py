"""What a report of a node says to people: the words of its notices.

In: what a node did, what it failed at, what its checks said before and now. Out: notices without numbers. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from bedplate.api.headapi import Action, Failure
from bedplate.head.health import Measured
from bedplate.head.notices import News

__all__ = ["news"]


def news(
    node: str, actions: Iterable[Action], failures: Iterable[Failure], measured: Iterable[Measured], revision: int = 0
) -> list[News]:
    """One notice for each action, each failure, and each check that says something else than before."""
    found = [News(node, f"{one.kind.capitalize()} {one.name} was {one.verb}", "notice", revision) for one in actions]
    for one in failures:
        why = f": {one.text}" if one.text else ""
        text = f"{one.kind.capitalize()} {one.name} could not be {one.verb}{why}"
        found.append(News(node, text, "warning", revision))
    found.extend(_turned(one) for one in measured if _has_turned(one))
    return found


def _has_turned(one: Measured) -> bool:
    """A check that begins by passing is not reported."""
    return one.before != one.sample.status and not (one.before is None and one.sample.status == "PASS")


def _turned(one: Measured) -> News:
    if one.sample.status == "PASS":
        return News(one.node, f"Check {one.check} passes again")
    word = "failed" if one.sample.status == "FAIL" else "gives no answer"
    why = f": {one.sample.info}" if one.sample.info else ""
    return News(one.node, f"Check {one.check} {word}{why}", "warning")
