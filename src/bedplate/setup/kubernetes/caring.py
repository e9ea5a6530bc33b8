"""What the setup tool asks the nodes of a running cluster for, and waits for.

In: a head, nodes, an action of `headapi.Care`. Out: requests that ended; `Terminal` with what the nodes said where one
did not succeed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bedplate.api import headapi
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.core.clock import Clock

__all__ = ["care", "in_words"]

_POLL_S = 0.1
_TAKEN_S, _ENDS_S = 60.0, 3600.0
_OVER = ("done", "failed", "expired")


async def care(
    head: HeadClient,
    clock: Clock,
    nodes: Sequence[str],
    request: headapi.Care,
    tell: Callable[[str], None] = lambda text: None,
    *,
    is_strict: bool = True,
) -> Sequence[headapi.ErrandState]:
    """Ask nodes, all at once, and wait for the end. Raises `Terminal` unless all succeed, or `is_strict` is off."""
    if not nodes:
        return []
    asked = {item.id for item in await head.ask_errand(nodes, "care", lasts_s=_TAKEN_S, care=request)}
    told: dict[str, str] = {}
    end_s = clock.monotonic() + _ENDS_S
    while True:
        states = [item for item in await head.errands(nodes) if item.id in asked]
        for item in states:
            if item.text and told.get(item.id) != item.text:
                told[item.id] = item.text
                tell(f"{item.node}: {item.text}")
        if all(item.state in _OVER for item in states) or clock.monotonic() > end_s:
            break
        await clock.sleep(_POLL_S)
    bad = [item for item in states if item.state != "done"]
    if bad and is_strict:
        raise errors.Terminal(
            f"{request.action} did not succeed on {len(bad)} of {len(states)} nodes: {in_words(bad)}",
            hint="put the cause right, then retry",
        )
    return states


def in_words(states: Sequence[headapi.ErrandState]) -> str:
    """What became of requests, for people."""
    reasons = {"expired": "its agent did not take the request in time", "waiting": "its agent has not taken it"}
    return "; ".join(f"{item.node}: {item.text or reasons.get(item.state, item.state)}" for item in states)
