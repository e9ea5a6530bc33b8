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
    items = [
        News(node, f"{action.kind.capitalize()} {action.name} was {action.verb}", "notice", revision)
        for action in actions
    ]
    for failure in failures:
        why = f": {failure.text}" if failure.text else ""
        text = f"{failure.kind.capitalize()} {failure.name} could not be {failure.verb}{why}"
        items.append(News(node, text, "warning", revision))
    items.extend(_turned(result) for result in measured if _has_turned(result))
    return items


def _has_turned(result: Measured) -> bool:
    """A check that begins by passing is not reported."""
    return result.before != result.sample.status and not (result.before is None and result.sample.status == "PASS")


def _turned(result: Measured) -> News:
    if result.sample.status == "PASS":
        return News(result.node, f"Check {result.check} passes again")
    word = "failed" if result.sample.status == "FAIL" else "gives no answer"
    why = f": {result.sample.info}" if result.sample.info else ""
    return News(result.node, f"Check {result.check} {word}{why}", "warning")
