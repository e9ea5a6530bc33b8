"""What differs between IPPool and CIDRPool for the controller, and what is odd about a pool beside the others.

In: pools. Out: plans, sizes, the names under which people see each kind; and, with the pools that are known, what is
odd about one that is looked at or about to be stored. What the sentences say is decided by `warnings.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from bedplate.api.resources import ResourceRef
from bedplate.ipam import validation, warnings
from bedplate.ipam.addresses import Address, first_usable, last_usable, parse_address, parse_network
from bedplate.ipam.plan_cidrpool import cut_prefixes, plan_cidrpool
from bedplate.ipam.plan_ippool import cut_blocks, plan_ippool
from bedplate.ipam.planning import Held, Mode, Plan, PlanNode, excluded_addresses, excluded_offsets
from bedplate.ipam.pools import (
    CIDRPOOLS,
    IPPOOLS,
    CIDRAllocation,
    CIDRPool,
    CIDRPoolSpec,
    IPAllocation,
    IPPool,
    IPPoolSpec,
)
from bedplate.ipam.ranges import Range, RangeSet
from bedplate.ipam.warnings import Territory
from bedplate.runtime.cache import Cache

__all__ = ["BOTH", "CIDRPOOL", "IPPOOL", "Kind", "Neighbours"]

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
    """How many addresses each of some blocks has for pods, given the pool's spec: without the exclusions of the pool,
    those of every block, and the gateway, which takes an address from the block it stands in. A block costs the
    exclusions that touch it; an entry of a status that means nothing counts nothing."""
    territory: Callable[[str, Any], Territory | None]
    """What a pool of this name and spec may give."""
    warnings: Callable[[Any], list[str]]
    """What is odd about a spec."""
    problems: Callable[[str, Any], list[validation.Problem]]
    """What is wrong with the spec of a pool of this name."""


def _blocks(pool: IPPool) -> int:
    cut = cut_blocks(pool.spec)
    return cut.grid.count - cut.barred.total()


def _prefixes(pool: CIDRPool) -> int:
    cut = cut_prefixes(pool.spec)
    owned, nobodys = set(), []
    for entry in pool.spec.static_allocations:
        parsed = parse_network(entry.prefix)
        index = cut.grid.index_of(parsed[1].base) if parsed is not None else None
        if index is not None and entry.node_name:
            owned.add(index)
        elif index is not None:
            nobodys.append(Range(index, index))
    barred = cut.excluded.union(RangeSet(nobodys))
    # A static prefix is its node's even where it is excluded.
    return cut.grid.count - barred.total() + sum(1 for index in owned if index in barred)


def _usable_in_blocks(spec: IPPoolSpec, allocations: Iterable[IPAllocation]) -> list[int]:
    addresses, offsets = excluded_addresses(spec.exclusions), excluded_offsets(spec.per_node_exclusions)
    gateway = parse_address(spec.gateway)
    counts = []
    for entry in allocations:
        first, last = parse_address(entry.start_ip), parse_address(entry.end_ip)
        if first is not None and last is not None:
            hosts = Range(first.value, last.value)
            counts.append(_left(hosts, first.value, addresses, offsets, _value(gateway, first.bits)))
    return counts


def _usable_in_prefixes(spec: CIDRPoolSpec, allocations: Iterable[CIDRAllocation]) -> list[int]:
    addresses, offsets = excluded_addresses(spec.exclusions), excluded_offsets(spec.per_node_exclusions)
    counts = []
    for entry in allocations:
        parsed = parse_network(entry.prefix)
        if parsed is not None:
            prefix = parsed[1]
            hosts = Range(first_usable(prefix), last_usable(prefix))
            gateway = _value(parse_address(entry.gateway), prefix.bits)
            counts.append(_left(hosts, prefix.base, addresses, offsets, gateway))
    return counts


def _value(gateway: Address | None, bits: int) -> int | None:
    return gateway.value if gateway is not None and gateway.bits == bits else None


def _left(hosts: Range, base: int, addresses: RangeSet, offsets: RangeSet, gateway: int | None) -> int:
    count = 0
    for gap in addresses.gaps(hosts):
        for left in offsets.gaps(Range(gap.first - base, gap.last - base)):
            count += left.last - left.first + 1
            count -= gateway is not None and left.first <= gateway - base <= left.last
    return count


IPPOOL: Kind[IPPool] = Kind(
    "ippool",
    IPPOOLS,
    "IPPoolController",
    "NoFreeRanges",
    plan_ippool,
    _blocks,
    _usable_in_blocks,
    warnings.ippool_territory,
    warnings.ippool_warnings,
    validation.ippool_problems,
)
CIDRPOOL: Kind[CIDRPool] = Kind(
    "cidrpool",
    CIDRPOOLS,
    "CIDRPoolController",
    "NoFreePrefixes",
    plan_cidrpool,
    _prefixes,
    _usable_in_prefixes,
    warnings.cidrpool_territory,
    warnings.cidrpool_warnings,
    validation.cidrpool_problems,
)
BOTH: tuple[Kind[Any], ...] = (IPPOOL, CIDRPOOL)


class Neighbours:
    """What is odd about a pool, by itself and beside the others: for Events and for the webhook's warnings."""

    def __init__(self, pools: Mapping[str, Cache[Any]]) -> None:
        self._pools = pools
        self._known: dict[tuple[str, str], tuple[Any, Territory | None]] = {}
        """By kind and key: a spec and what it may give."""

    def overlaps(self, kind: Kind[Any], pool: Any) -> list[str]:
        """With which other pools this one shares addresses."""
        own = _territory(kind, pool)
        if own is None:
            return []
        return [str(overlap) for overlap in warnings.overlaps_of(own, self._territories())]

    def warnings(self, kind: Kind[Any], pool: Any) -> list[str]:
        """What to say about a pool that may be stored."""
        return [*kind.warnings(pool.spec), *self.overlaps(kind, pool)]

    def _territories(self) -> list[Territory]:
        """What every known pool may give; computed again only where a spec changed."""
        before, self._known = self._known, {}
        for kind in BOTH:
            for pool in self._pools[kind.name]:
                place = (kind.name, pool.name)
                known = before.get(place)
                if known is None or known[0] != pool.spec:
                    known = (pool.spec, _territory(kind, pool))
                self._known[place] = known
        return [territory for _, territory in self._known.values() if territory is not None]


def _territory(kind: Kind[Any], pool: Any) -> Territory | None:
    """What a pool may give; None for an invalid one, which gives nothing."""
    if kind.problems(pool.name, pool.spec):
        return None
    return kind.territory(f"{kind.ref.kind} {pool.name}", pool.spec)
