"""A revision for some nodes first: which ones have it, when the next ones get it, and what stops it.

In: a roll-out as it is kept, what is seen of its nodes, the time. Out: the roll-out as it is from then on. Pure. Nodes
that do not have the revision yet are held back: they are to be what they were before it. The next batch gets it once
all nodes of the last one have applied it and were well for a while. It stops where more nodes than allowed have failed
it: could not apply it, fell silent, or have a check that fails and did not before. Who was silent when it began gets
it with its batch and is not waited for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from bedplate.core.clock import parse_rfc3339, rfc3339_micro

__all__ = ["Batches", "Rollout", "Seen", "Standing", "batch_size", "begin", "resumed", "standing", "step"]

State = Literal["running", "paused", "stopped", "done", "undone"]


class Batches(NamedTuple):
    """How a commit reaches nodes: so many at a time (a number, or a share such as `10%`), stopping once more than
    `max_failed` have failed it, each batch watched for `settle_s`."""

    size: str
    max_failed: int = 0
    settle_s: float = 10.0


class Rollout(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a revision has come. The first `released` of `nodes` have it, the others are as in `base`. `failed` says
    why by node; those in `forgiven` no longer count. `sick` are the checks that failed before it, `away` who was silent
    then. `well_since` is when the released ones were first all found to have it."""

    revision: int
    base: int
    by: str
    started: str
    nodes: tuple[str, ...]
    batch: int
    max_failed: int = 0
    settle_s: float = 0.0
    released: int = 0
    state: State = "running"
    well_since: str = ""
    failed: dict[str, str] = {}
    forgiven: tuple[str, ...] = ()
    sick: dict[str, tuple[str, ...]] = {}
    away: tuple[str, ...] = ()
    text: str = ""

    @property
    def is_open(self) -> bool:
        """Whether nodes are held back."""
        return self.state in ("running", "paused", "stopped")

    @property
    def held(self) -> Sequence[str]:
        """The nodes that do not have the revision yet."""
        return self.nodes[self.released :] if self.is_open else ()


class Seen(NamedTuple):
    """What is known of a node: whether it is what it should be, why not as it says itself, whether it reports, and
    the checks that fail, with what they say."""

    has_applied: bool
    failures: Sequence[str] = ()
    is_up: bool = True
    failing: Mapping[str, str] = {}


class Standing(NamedTuple):
    """How a node stands: `pending`, `applied`, `failed` or `away`, and why."""

    state: Literal["pending", "applied", "failed", "away"]
    text: str = ""


def batch_size(text: str, nodes: int) -> int:
    """How many nodes `10%` or `10` are. Raises ValueError."""
    digits, is_share = text.removesuffix("%"), text.endswith("%")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 7 and int(digits) > 0):
        raise ValueError(f"{text!r} is not a number of nodes, such as 5 or 10%")
    if is_share and int(digits) > 100:
        raise ValueError(f"{text} is more than all nodes")
    return max(1, math.ceil(nodes * int(digits) / 100)) if is_share else int(digits)


def begin(
    revision: int,
    nodes: Sequence[str],
    *,
    by: str,
    batch: int,
    max_failed: int,
    settle_s: float,
    seen: Callable[[str], Seen],
    now: datetime,
) -> Rollout:
    """A roll-out whose first batch has the revision."""
    looks = {node: seen(node) for node in nodes}
    return Rollout(
        revision=revision,
        base=revision - 1,
        by=by,
        started=rfc3339_micro(now),
        nodes=tuple(nodes),
        batch=batch,
        max_failed=max_failed,
        settle_s=settle_s,
        released=min(batch, len(nodes)),
        sick={node: tuple(sorted(look.failing)) for node, look in looks.items() if look.failing},
        away=tuple(node for node, look in looks.items() if not look.is_up),
    )


def standing(rollout: Rollout, node: str, seen: Seen) -> Standing:
    """How one of its nodes stands that has the revision."""
    if seen.failures and not seen.has_applied:
        return Standing("failed", "; ".join(seen.failures[:3]))
    before = rollout.sick.get(node, ())
    broken = [f"{check}: {info}" if info else check for check, info in seen.failing.items() if check not in before]
    if broken and seen.has_applied:
        return Standing("failed", f"check {', '.join(sorted(broken)[:3])} fails")
    if seen.has_applied:
        return Standing("applied")
    if seen.is_up:
        return Standing("pending")
    return Standing("away") if node in rollout.away else Standing("failed", "it has stopped reporting")


def step(rollout: Rollout, seen: Callable[[str], Seen], now: datetime) -> Rollout:
    """The roll-out after a look at its nodes: as it was, further, stopped or done."""
    if rollout.state != "running":
        return rollout
    stands = {node: standing(rollout, node, seen(node)) for node in rollout.nodes[: rollout.released]}
    failed = {node: stand.text for node, stand in stands.items() if stand.state == "failed"}
    after = msgspec.structs.replace(rollout, failed=failed)
    counted = [node for node in failed if node not in rollout.forgiven]
    if len(counted) > rollout.max_failed:
        text = f"{counted[0]}: {failed[counted[0]]}"
        return msgspec.structs.replace(after, state="stopped", text=text, well_since="")
    if any(stand.state == "pending" for stand in stands.values()):
        return msgspec.structs.replace(after, well_since="")
    if not after.well_since:
        after = msgspec.structs.replace(after, well_since=rfc3339_micro(now))
    if (now - parse_rfc3339(after.well_since)).total_seconds() < after.settle_s:
        return after
    if after.released >= len(after.nodes):
        return msgspec.structs.replace(after, state="done", well_since="")
    return msgspec.structs.replace(after, released=min(after.released + after.batch, len(after.nodes)), well_since="")


def resumed(rollout: Rollout) -> Rollout:
    """The roll-out that goes on although nodes have failed."""
    forgiven = tuple(sorted({*rollout.forgiven, *rollout.failed}))
    return msgspec.structs.replace(rollout, state="running", forgiven=forgiven, text="", well_since="")
