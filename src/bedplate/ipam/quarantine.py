"""Blocks of nodes that went away are held back for a while.

In: what a pool's annotation says, a planner, the time, how long and when to hold back. Out: a plan that gives no such
block to another node, and the entries that the annotation shall have. Pure.

Pods may still run on a node that was deleted or relabelled; were its block given away at once, two pods would have one
address. So the block is written into an annotation **before** the status that gives it up is written, and until its
time has come only the same node gets it. A static allocation is an order and takes a prefix out of quarantine.

The annotation is JSON: block → {"node", "until"}. What cannot be read is reported and means nothing. Its size is
bounded; when too many nodes leave at once, the entries that would end first are left out, and that is reported too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec

from bedplate.core.clock import parse_rfc3339, rfc3339
from bedplate.ipam.addresses import parse_address, parse_network
from bedplate.ipam.planning import NOTHING, FreedWhy, Held, HeldBlock, Plan
from bedplate.ipam.pools import CIDRAllocation, IPAllocation
from bedplate.ipam.ranges import Range

__all__ = [
    "ANNOTATION",
    "Entry",
    "Hold",
    "Policy",
    "Quarantined",
    "Reading",
    "addresses_of",
    "plan_held",
    "read",
    "write",
]

ANNOTATION = "bedplate.dev/quarantine"
MAX_BYTES = 128 * 1024
"""Half of what an object's annotations may weigh together."""

A = TypeVar("A", bound=IPAllocation | CIDRAllocation)


class Policy(StrEnum):
    """Which blocks are held back."""

    OFF = "off"
    ALWAYS = "always"
    PODS = "pods"
    """Those of nodes that the cluster still had pods on when they went."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A block that is held back for its former node."""

    block: str
    node: str
    until: datetime


@dataclass(frozen=True, slots=True)
class Hold:
    """How blocks are held back."""

    policy: Policy
    period: timedelta = timedelta(minutes=10)
    has_pods: Callable[[str], bool] = lambda _node: True
    """Are pods of this node still recorded? It is asked once for a block that is given up."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What an annotation says, and what is wrong with it."""

    entries: tuple[Entry, ...] = ()
    complaint: str = ""


@dataclass(frozen=True, slots=True)
class Quarantined(Generic[A]):
    """A plan, and what is held back with it. The annotation is written first, then the status."""

    plan: Plan[A]
    entries: tuple[Entry, ...]
    left_out: tuple[Entry, ...] = ()
    """Blocks that should be held back and are not, because the annotation would be too large."""

    def next_end(self) -> datetime | None:
        """When the next block becomes free: the pool is to be planned again then."""
        return min((entry.until for entry in self.entries), default=None)


def plan_held(plan: Callable[[Held], Plan[A]], entries: Sequence[Entry], now: datetime, hold: Hold) -> Quarantined[A]:
    """Plan with what is held back already, and with what this very plan gives up."""
    if hold.policy is Policy.OFF:
        return Quarantined(plan(NOTHING), ())
    present = tuple(entry for entry in entries if entry.until > now)
    result = plan(_held(present))
    if result.problems:
        return Quarantined(result, tuple(entries))
    added = _newly_held(result, present, now, hold)
    kept, left_out = _bounded((*present, *added))
    if added or left_out:
        result = plan(_held(kept))
    given = {where for where in map(_addresses_given, result.allocations) if where is not None}
    return Quarantined(result, tuple(entry for entry in kept if addresses_of(entry.block) not in given), left_out)


def read(annotation: str | None) -> Reading:
    """The entries of an annotation, in its order."""
    if not annotation:
        return Reading()
    try:
        document = msgspec.json.decode(annotation)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return Reading(complaint=f"is not JSON: {error}")
    if not isinstance(document, dict):
        return Reading(complaint="is not a JSON object")
    entries = [_entry(block, value) for block, value in document.items()]
    bad = [block for block, entry in zip(document, entries, strict=True) if entry is None]
    complaint = f"{len(bad)} entries are invalid, the first is {bad[0][:80]!r}" if bad else ""
    return Reading(tuple(entry for entry in entries if entry is not None), complaint)


def write(entries: Iterable[Entry]) -> str:
    """The annotation; empty when nothing is held back."""
    document = {entry.block: {"node": entry.node, "until": rfc3339(entry.until)} for entry in entries}
    return msgspec.json.encode(document, order="sorted").decode() if document else ""


def _entry(block: str, value: Any) -> Entry | None:
    if not isinstance(value, dict) or addresses_of(block) is None:
        return None
    node, until = value.get("node"), value.get("until")
    if not isinstance(node, str) or not isinstance(until, str):
        return None
    try:
        return Entry(block, node, parse_rfc3339(until))
    except (ValueError, OverflowError):
        return None


def _newly_held(plan: Plan[A], present: Iterable[Entry], now: datetime, hold: Hold) -> list[Entry]:
    known = {entry.block for entry in present}
    added = {
        freed.block: Entry(freed.block, freed.node, now + hold.period)
        for freed in plan.freed
        if freed.why is FreedWhy.NODE_GONE
        and freed.block not in known
        and (hold.policy is Policy.ALWAYS or hold.has_pods(freed.node))
    }
    return list(added.values())


def _bounded(entries: Iterable[Entry]) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
    """As many entries as there is room for, those that end last first; and the rest."""
    by_end = sorted(entries, key=lambda entry: (-entry.until.timestamp(), entry.block))
    room = MAX_BYTES - len("{}")
    for at, entry in enumerate(by_end):
        room -= len(write([entry]).encode()) - len("{}") + len(",")
        if room < 0:
            return tuple(by_end[:at]), tuple(by_end[at:])
    return tuple(by_end), ()


def _held(entries: Iterable[Entry]) -> Held:
    blocks = ((entry.node, addresses_of(entry.block)) for entry in entries)
    return Held(tuple(HeldBlock(node, *where) for node, where in blocks if where is not None))


def addresses_of(block: str) -> tuple[int, Range] | None:
    """Family and addresses of a block by its name, `first-last` or a prefix; None when that means nothing."""
    if "/" in block:
        parsed = parse_network(block)
        return None if parsed is None else (parsed[1].bits, Range(parsed[1].base, parsed[1].top))
    start, _, end = block.partition("-")
    return _between(start, end)


def _addresses_given(allocation: IPAllocation | CIDRAllocation) -> tuple[int, Range] | None:
    if isinstance(allocation, CIDRAllocation):
        return addresses_of(allocation.prefix)
    return _between(allocation.start_ip, allocation.end_ip)


def _between(start: str, end: str) -> tuple[int, Range] | None:
    first, last = parse_address(start), parse_address(end)
    if first is None or last is None or first.bits != last.bits or first.value > last.value:
        return None
    return first.bits, Range(first.value, last.value)
