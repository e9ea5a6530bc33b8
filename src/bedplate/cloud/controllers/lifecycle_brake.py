"""The brake on deletions: when it holds, and the proof that opens it.

In: how many nodes are managed and seem absent, here and in other clouds; the absences of one pass, and what a list of
the cloud's machines showed in that pass. Out: the sentence that says why nothing is deleted, and a `Proof` that the
next pass gets. Pure.

The proof is complete when for `hold_s` every absent machine was denied specifically and without a cache at every look,
the list of machines could be read each time and showed none of them, and each time it showed at least one other: then
credentials, project and site are right, and the machines are gone. One look that differs starts it again. A cloud that
shows no machine at all never opens the brake.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from bedplate.core import clock
from bedplate.core.duration import format_duration

__all__ = ["Absence", "Census", "Proof", "Sighting", "Stage", "allowed", "engaged", "opening_told", "outlook", "prove"]

LOOKS = 3
"""Looks farther apart than this part of the hold prove nothing about the time between them."""
_OPENS_AT = re.compile(r"opens by itself at (\S+Z)")


@dataclass(frozen=True, slots=True)
class Census:
    """How many nodes are managed, and how many of them seem absent without that being proven."""

    managed: int = 0
    absent: int = 0

    def __add__(self, other: Census) -> Census:
        """Both together."""
        return Census(self.managed + other.managed, self.absent + other.absent)


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a list of the cloud's machines, read in this pass, showed; `error`: why there is no complete list."""

    machines: int = 0
    nodes: frozenset[str] = frozenset()
    """The names of the cloud's nodes whose machine it showed."""
    error: str = "the cloud's machines were not listed"


@dataclass(frozen=True, slots=True)
class Absence:
    """One node that seems absent; `since` is None when the last answer about it was not a denial."""

    node: str
    since: float | None
    is_fresh: bool


class Stage(StrEnum):
    """How far the proof is."""

    OFF = "off"
    BROKEN = "broken"
    BEGINS = "begins"
    COUNTING = "counting"
    PROVEN = "proven"


@dataclass(frozen=True, slots=True)
class Proof:
    """What was proven up to the look at `at`; both times and `opens_at` are monotonic."""

    stage: Stage = Stage.OFF
    since: float | None = None
    at: float = 0.0
    opens_at: float | None = None
    obstacle: str = ""
    is_listed: bool = False
    """The list is as it must be: it is worth asking about the absent machines without a cache."""


def allowed(managed: int, percent: int) -> int:
    """How many nodes may be absent at once: that share of the managed ones, but always one."""
    return max(1, managed * percent // 100)


def engaged(here: Census, elsewhere: Census, max_percent: int) -> str:
    """The sentence that says why nothing is deleted; empty when the brake is off.

    It is applied to this cloud's nodes, so that a small cloud that loses everything is noticed beside a large one, and
    to all nodes of the manager, so that many small losses do not add up to a large one.
    """
    if max_percent >= 100:
        return ""
    for scope, census in (("of this cloud", here), ("of all clouds", here + elsewhere)):
        most = allowed(census.managed, max_percent)
        if census.absent > most:
            return (
                f"{census.absent} of the {census.managed} managed nodes {scope} seem absent at once, more than the "
                f"{most} that {max_percent} % allow (--max-node-deletions-percent): none is deleted"
            )
    return ""


def prove(earlier: Proof, absences: Collection[Absence], sighting: Sighting, hold_s: float, now: float) -> Proof:
    """The proof after one more look; `hold_s` 0: there is none, and the brake never opens by itself."""
    if hold_s <= 0:
        return Proof(at=now)
    if obstacle := _list_obstacle(absences, sighting):
        return Proof(Stage.BROKEN, at=now, obstacle=obstacle)
    unanswered = sorted(absence.node for absence in absences if absence.since is None)
    if unanswered:
        obstacle = f"the last response about the machine of {unanswered[0]} was not that it does not exist"
        return Proof(Stage.BROKEN, at=now, obstacle=obstacle, is_listed=True)
    if not all(absence.is_fresh for absence in absences):
        return Proof(Stage.BEGINS, at=now, is_listed=True)
    is_continued = earlier.since is not None and now - earlier.at <= hold_s / LOOKS
    since = earlier.since if is_continued and earlier.since is not None else now
    youngest = max((absence.since for absence in absences if absence.since is not None), default=since)
    opens_at = max(since, youngest) + hold_s
    stage = Stage.PROVEN if now >= opens_at else Stage.COUNTING
    return Proof(stage, since, now, opens_at, is_listed=True)


def _list_obstacle(absences: Collection[Absence], sighting: Sighting) -> str:
    if sighting.error:
        return f"the list of machines is needed as a proof and cannot be read: {sighting.error}"
    if not sighting.machines:
        return "the cloud shows no machine at all, so that it may be the wrong one; check credentials, project and site"
    if listed := sorted(sighting.nodes & {absence.node for absence in absences}):
        return f"the cloud lists the machine of {listed[0]}, which it otherwise reports as absent"
    return ""


def outlook(proof: Proof, hold_s: float, monotonic: float, wall: datetime) -> str:
    """When the brake opens by itself, or why it does not."""
    match proof.stage:
        case Stage.OFF:
            return "it does not open by itself (--mass-deletion-hold=0): delete the Nodes if their machines are gone"
        case Stage.BROKEN:
            return f"it does not open by itself: {proof.obstacle}"
        case Stage.BEGINS:
            return f"it opens by itself after {format_duration(hold_s)} of proof (--mass-deletion-hold) from now on"
        case Stage.PROVEN:
            return "the absence of this cloud's machines is proven, that of other clouds' machines is not"
    left_s = max(0.0, (proof.opens_at or monotonic) - monotonic)
    at = (wall + timedelta(seconds=left_s)).astimezone(UTC).replace(microsecond=0)
    return (
        f"it opens by itself at {clock.rfc3339(at)}, in {format_duration(float(round(left_s)))} "
        "(--mass-deletion-hold), if every look until then finds the same"
    )


def opening_told(message: str) -> datetime | None:
    """The moment that an event with an `outlook` names; None when it names none."""
    match = _OPENS_AT.search(message)
    return clock.parse_rfc3339(match[1]) if match else None
