"""What differs between IPPool and CIDRPool for the controller.

In: pools. Out: plans, sizes, and the names under which people see each kind. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from bedplate.api.resources import ResourceRef
from bedplate.ipam import usable
from bedplate.ipam.addresses import Network, parse_network
from bedplate.ipam.plan_cidrpool import cut_prefixes, plan_cidrpool
from bedplate.ipam.plan_ippool import cut_blocks, plan_ippool
from bedplate.ipam.planning import Held, Mode, Plan, PlanNode
from bedplate.ipam.pools import CIDRPOOLS, IPPOOLS, CIDRPool, IPPool
from bedplate.ipam.ranges import Range, RangeSet

__all__ = ["BOTH", "CIDRPOOL", "IPPOOL", "Kind"]

P = TypeVar("P", bound=IPPool | CIDRPool)


@dataclass(frozen=True, slots=True)
class Kind(Generic[P]):
    """One kind of pool."""

    name: str
    """Of the controller, in logs and metrics."""
    ref: ResourceRef[P]
    component: str
    """The source of its Events."""
    exhausted: str
    """The reason of the Event for a node without a block."""
    plan: Callable[[P, Iterable[PlanNode], Held, Mode], Plan[Any]]
    capacity: Callable[[P], int]
    """How many blocks a valid pool has."""
    usable: Callable[[Any, Iterable[Any]], list[int]]
    """How many addresses each of some blocks has for pods, given the pool's spec."""


def _network(written: str) -> Network | None:
    parsed = parse_network(written)
    return parsed[1] if parsed is not None else None


def _blocks(pool: IPPool) -> int:
    cut = cut_blocks(pool.spec)
    return cut.grid.count - cut.barred.total()


def _prefixes(pool: CIDRPool) -> int:
    cut = cut_prefixes(pool.spec)
    owned, nobodys = set(), []
    for entry in pool.spec.static_allocations:
        prefix = _network(entry.prefix)
        index = cut.grid.index_of(prefix.base) if prefix is not None else None
        if index is not None and entry.node_name:
            owned.add(index)
        elif index is not None:
            nobodys.append(Range(index, index))
    barred = cut.excluded.union(RangeSet(nobodys))
    # A static prefix is its node's even where it is excluded.
    return cut.grid.count - barred.total() + sum(1 for index in owned if index in barred)


IPPOOL: Kind[IPPool] = Kind(
    "ippool",
    IPPOOLS,
    "IPPoolController",
    "NoFreeRanges",
    plan_ippool,
    _blocks,
    usable.in_blocks,
)
CIDRPOOL: Kind[CIDRPool] = Kind(
    "cidrpool",
    CIDRPOOLS,
    "CIDRPoolController",
    "NoFreePrefixes",
    plan_cidrpool,
    _prefixes,
    usable.in_prefixes,
)
BOTH: tuple[Kind[Any], ...] = (IPPOOL, CIDRPOOL)
