"""What a plan of a pool is made of, and how nodes without a block get one.

In: blocks, nodes, what is held back. Out: the values of `plan_ippool.py` and `plan_cidrpool.py`. Pure.

Blocks are given in the order of node names, the lowest free one first; but a node whose block is held back for it gets
that one again, and after a change of the block size a node gets, where it can, a block out of its old one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from bedplate.ipam import selectors
from bedplate.ipam.addresses import parse_address
from bedplate.ipam.blocks import FreeBlocks, Grid
from bedplate.ipam.pools import ExcludeIndexRange, ExcludeRange, NodeSelector
from bedplate.ipam.ranges import Range, RangeSet
from bedplate.ipam.validation import Problem

__all__ = [
    "NOTHING",
    "Freed",
    "FreedWhy",
    "Held",
    "HeldBlock",
    "Mode",
    "Plan",
    "PlanNode",
    "Unplaced",
    "UnplacedWhy",
    "excluded_addresses",
    "excluded_offsets",
    "fill",
    "held_indexes",
    "matching_names",
]

A = TypeVar("A")


class Mode(StrEnum):
    """What becomes of blocks when a spec is edited."""

    STABLE = "stable"
    """Keep every block that still fits, change gateways alone, and keep all of them while the spec is invalid."""
    UPSTREAM = "upstream"
    """As the original: an invalid spec empties the status, a new gateway index reallocates all prefixes."""


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A node, as far as selectors look at it."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


class UnplacedWhy(StrEnum):
    """Why a node has no block."""

    EXHAUSTED = "exhausted"
    QUARANTINED = "quarantined"
    """Blocks are left, but all of them are held back for nodes that went away."""


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A node that should have a block and has none."""

    node: str
    why: UnplacedWhy


class FreedWhy(StrEnum):
    """Why a block was given up."""

    NODE_GONE = "node-gone"
    """The node was deleted, or the selector no longer matches it."""
    MOVED = "moved"
    """The node has another block now, or none: this one does not fit the spec, or was another's as well."""


@dataclass(frozen=True, slots=True)
class Freed:
    """A block that stands in the status and is given up by the plan. `block` is `first-last` or a prefix."""

    node: str
    block: str
    why: FreedWhy


@dataclass(frozen=True, slots=True)
class HeldBlock:
    """Addresses that only their former node may get."""

    node: str
    bits: int
    addresses: Range


@dataclass(frozen=True, slots=True)
class Held:
    """All that is held back in a pool."""

    blocks: tuple[HeldBlock, ...] = ()


NOTHING = Held()


@dataclass(frozen=True, slots=True)
class Plan(Generic[A]):
    """What the status of a pool shall be."""

    allocations: tuple[A, ...] = ()
    """The whole status, in the order of node names."""
    unplaced: tuple[Unplaced, ...] = ()
    problems: tuple[Problem, ...] = ()
    """What is wrong with the spec; then nothing was planned."""
    freed: tuple[Freed, ...] = ()


def matching_names(selector: NodeSelector | None, nodes: Iterable[PlanNode]) -> list[str]:
    """The nodes a pool is for, by name; code points sort as their bytes do."""
    matches = selectors.matcher(selector)
    return sorted({node.name for node in nodes if matches(node.name, node.labels)})


def excluded_addresses(exclusions: Iterable[ExcludeRange]) -> RangeSet:
    """The exclusions of a valid spec, merged."""
    ends = ((parse_address(entry.start_ip), parse_address(entry.end_ip)) for entry in exclusions)
    return RangeSet(Range(start.value, end.value) for start, end in ends if start is not None and end is not None)


def excluded_offsets(exclusions: Iterable[ExcludeIndexRange]) -> RangeSet:
    """What is excluded in every block, as offsets from its start."""
    return RangeSet(Range(entry.start_index, entry.end_index) for entry in exclusions)


def held_indexes(grid: Grid, bits: int, held: Held) -> RangeSet:
    """Which blocks hold an address that is held back."""
    return RangeSet(grid.touched_by(block.addresses) for block in held.blocks if block.bits == bits)


def fill(
    names: Collection[str],
    grid: Grid,
    free: FreeBlocks,
    bits: int,
    held: Held,
    homes: Mapping[str, Range],
) -> tuple[dict[str, int], tuple[Unplaced, ...]]:
    """Blocks for these nodes (sorted), by index; and those that get none."""
    placed: dict[str, int] = {}
    _give_back(placed, frozenset(names), grid, free, bits, held)
    if homes:
        _settle_near(placed, (name for name in names if name not in placed), grid, free, homes)
    rest = iter([name for name in names if name not in placed])
    without: list[str] = []
    for name in rest:
        index = free.lowest()
        if index is None:
            without = [name, *rest]
        else:
            free.take(index)
            placed[name] = index
    why = UnplacedWhy.QUARANTINED if without and free.some_held_left() else UnplacedWhy.EXHAUSTED
    return placed, tuple(Unplaced(name, why) for name in without)


def _give_back(
    placed: dict[str, int], names: Collection[str], grid: Grid, free: FreeBlocks, bits: int, held: Held
) -> None:
    """A node that came back gets the block that was held back for it, if that is still a block."""
    for block in held.blocks:
        if block.bits != bits or block.node not in names or block.node in placed:
            continue
        index = grid.index_of(block.addresses.first)
        if index is not None and free.may_take(index):
            free.take(index)
            placed[block.node] = index


def _settle_near(
    placed: dict[str, int], names: Iterable[str], grid: Grid, free: FreeBlocks, homes: Mapping[str, Range]
) -> None:
    """First a block that lies in the node's old one whole, which nobody else can be using; then one that touches it."""
    homeless = [name for name in names if name in homes]
    for near in (grid.inside, grid.touched_by):
        for name in homeless:
            bounds = near(homes[name])
            index = free.lowest(bounds) if name not in placed and bounds.first <= bounds.last else None
            if index is not None:
                free.take(index)
                placed[name] = index
