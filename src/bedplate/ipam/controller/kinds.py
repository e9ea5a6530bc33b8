"""What differs between IPPool and CIDRPool for the controller.

In: pools. Out: plans, sizes, and the names under which people see each kind. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from bedplate.api.resources import ResourceRef
from bedplate.ipam.addresses import Network, parse_network
from bedplate.ipam.plan_cidrpool import cut_prefixes, plan_cidrpool
from bedplate.ipam.plan_ippool import cut_blocks, plan_ippool
from bedplate.ipam.planning import Held, Mode, Plan, PlanNode
from bedplate.ipam.pools import CIDRPOOLS, IPPOOLS, CIDRPool, IPPool

__all__ = ["BOTH", "CIDRPOOL", "IPPOOL", "Kind"]

P = TypeVar("P", bound=IPPool | CIDRPool)


@dataclass(frozen=True, slots=True)
class Kind(Generic[P]):
    """One kind of pool."""

    name: str
    """Of the controller, in logs and metrics."""
    ref: ResourceRef[P]
    component: str
    """The source of its Events (§5.6)."""
    exhausted: str
    """The reason of the Event for a node without a block."""
    plan: Callable[[P, Iterable[PlanNode], Held, Mode], Plan[Any]]
    network: Callable[[P], Network | None]
    """What the pool cuts; None when that cannot be read."""
    capacity: Callable[[P], int]
    """How many blocks a valid pool has."""


def _network(written: str) -> Network | None:
    parsed = parse_network(written)
    return parsed[1] if parsed is not None else None


def _blocks(pool: IPPool) -> int:
    cut = cut_blocks(pool.spec)
    return cut.grid.count - cut.barred.total()


def _prefixes(pool: CIDRPool) -> int:
    cut = cut_prefixes(pool.spec)
    # A static prefix is its node's even where it is excluded; one that is nobody's can be nobody's block.
    reserved = sum(1 for one in pool.spec.static_allocations if not one.node_name)
    return cut.grid.count - cut.excluded.total() - reserved


IPPOOL: Kind[IPPool] = Kind(
    "ippool",
    IPPOOLS,
    "IPPoolController",
    "NoFreeRanges",
    plan_ippool,
    lambda pool: _network(pool.spec.subnet),
    _blocks,
)
CIDRPOOL: Kind[CIDRPool] = Kind(
    "cidrpool",
    CIDRPOOLS,
    "CIDRPoolController",
    "NoFreePrefixes",
    plan_cidrpool,
    lambda pool: _network(pool.spec.cidr),
    _prefixes,
)
BOTH: tuple[Kind[Any], ...] = (IPPOOL, CIDRPOOL)
