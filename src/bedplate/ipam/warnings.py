"""What is allowed in a pool but hardly meant.

In: valid specs. Out: sentences for the webhook and for Events; a pool is never refused for one of them. Pure; the cost
grows with the number of exclusions and pools, never with the size of a network.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bedplate.ipam.addresses import (
    Address,
    Network,
    first_usable,
    gateway_at,
    has_broadcast,
    is_small,
    parse_address,
    parse_network,
    text,
)
from bedplate.ipam.blocks import Grid, left_in
from bedplate.ipam.plan_cidrpool import cut_prefixes
from bedplate.ipam.plan_ippool import cut_blocks
from bedplate.ipam.planning import excluded_addresses, excluded_offsets
from bedplate.ipam.pools import CIDRPoolSpec, IPPoolSpec
from bedplate.ipam.ranges import Range, RangeSet

__all__ = [
    "Overlap",
    "Territory",
    "cidrpool_territory",
    "cidrpool_warnings",
    "ippool_territory",
    "ippool_warnings",
    "overlaps_of",
]

SHOWN = 3
"""How many blocks a sentence names."""


@dataclass(frozen=True, slots=True)
class Territory:
    """The addresses a pool may give: its network without what is excluded or reserved for nobody."""

    key: str
    network: Network
    addresses: RangeSet


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two pools that may give one address."""

    key: str
    other: str
    bits: int
    addresses: Range
    """The lowest run of addresses they share."""

    def __str__(self) -> str:
        first, last = (text(self.bits, value) for value in self.addresses)
        return f"{self.key} and {self.other} overlap from {first} to {last}"


def ippool_warnings(spec: IPPoolSpec) -> list[str]:
    """What is odd about an IPPool."""
    cut = cut_blocks(spec)
    warnings = list(_host_bits("subnet", spec.subnet))
    offsets = excluded_offsets(spec.per_node_exclusions)
    if offsets.covers(Range(0, cut.grid.span - 1)):
        return [*warnings, "spec.perNodeExclusions covers every address of a block: no node will get one"]
    if cut.grid.count == cut.barred.total():
        warnings.append("spec.exclusions and spec.gateway leave no block usable: no node will get one")
    gateway = parse_address(spec.gateway)
    if gateway is None:
        return warnings
    warnings.extend(_odd_gateway(cut.network, gateway))
    index = (gateway.value - cut.grid.first) // cut.grid.stride
    if 0 <= index < cut.grid.count and index not in cut.barred:
        left = left_in(cut.grid, index, excluded_addresses(spec.exclusions), offsets)
        if _none_but(left, gateway.value):
            warnings.append(f"the block at {_at(cut.network, cut.grid, index)} has no address left besides the gateway")
    return warnings


def cidrpool_warnings(spec: CIDRPoolSpec) -> list[str]:
    """What is odd about a CIDRPool."""
    cut = cut_prefixes(spec)
    offsets = excluded_offsets(spec.per_node_exclusions)
    hosts = Range(0 if is_small(cut.prefix_at(0)) else 1, cut.grid.span - 1)
    gateway = gateway_at(cut.prefix_at(0), spec.gateway_index) if spec.gateway_index is not None else None
    at = None if gateway is None else gateway.value - cut.cidr.base
    if offsets.covers(Range(0, hosts.last)):
        return ["spec.perNodeExclusions covers every address of a prefix: no node will get one"]
    if _none_but(offsets.gaps(hosts), at):
        return ["a prefix has no address for pods besides the gateway and spec.perNodeExclusions"]
    if cut.grid.count == cut.excluded.total():
        return ["spec.exclusions leaves no prefix usable: no node will get one"]
    addresses = excluded_addresses(spec.exclusions)
    network_addresses = offsets.union(RangeSet([Range(0, hosts.first - 1)]))
    useless = [
        f"{text(cut.cidr.bits, cut.grid.start_of(index))}/{cut.length}"
        for index in _at_ends(cut.grid, addresses)
        if index not in cut.excluded
        and _none_but(
            left_in(cut.grid, index, addresses, network_addresses),
            None if at is None else cut.grid.start_of(index) + at,
        )
    ]
    return [f"no address for pods is left in {_listed(useless)}"] if useless else []


def ippool_territory(key: str, spec: IPPoolSpec) -> Territory | None:
    """What an IPPool may give; None when its subnet means nothing."""
    parsed = parse_network(spec.subnet)
    return None if parsed is None else _territory(key, parsed[1], excluded_addresses(spec.exclusions))


def cidrpool_territory(key: str, spec: CIDRPoolSpec) -> Territory | None:
    """What a CIDRPool may give; None when its network means nothing."""
    parsed = parse_network(spec.cidr)
    if parsed is None:
        return None
    reserved = (parse_network(entry.prefix) for entry in spec.static_allocations if not entry.node_name)
    nobodys = RangeSet(Range(prefix[1].base, prefix[1].top) for prefix in reserved if prefix is not None)
    return _territory(key, parsed[1], excluded_addresses(spec.exclusions).union(nobodys))


def overlaps_of(territory: Territory, others: Iterable[Territory]) -> list[Overlap]:
    """Every other pool that this one shares addresses with."""
    overlaps = []
    for other in others:
        if other.key == territory.key or not territory.network.overlaps(other.network):
            continue
        shared = _first_shared(territory.addresses, other.addresses)
        if shared is not None:
            overlaps.append(Overlap(territory.key, other.key, territory.network.bits, shared))
    return overlaps


def _territory(key: str, network: Network, excluded: RangeSet) -> Territory:
    return Territory(key, network, RangeSet(excluded.gaps(Range(network.base, network.top))))


def _first_shared(left: RangeSet, other: RangeSet) -> Range | None:
    fewer, more = sorted((left, other), key=len)
    return next((shared for run in fewer for shared in more.within(run)), None)


def _host_bits(key: str, written: str) -> Iterable[str]:
    parsed = parse_network(written)
    if parsed is not None and parsed[0].value != parsed[1].base:
        yield f"spec.{key} {written} has host bits set; {parsed[1]} is used"


def _odd_gateway(network: Network, gateway: Address) -> Iterable[str]:
    if gateway.value < first_usable(network):
        yield f"spec.gateway {gateway} is the network address of {network}"
    elif has_broadcast(network) and gateway.value == network.top:
        yield f"spec.gateway {gateway} is the broadcast address of {network}"


def _at_ends(grid: Grid, addresses: RangeSet) -> list[int]:
    """The blocks that an exclusion begins or ends in: all others are excluded whole or not at all."""
    ends = {index for range_ in addresses for index in grid.touched_by(range_)}
    return sorted(index for index in ends if 0 <= index < grid.count)


def _none_but(left: Iterable[Range], gateway: int | None) -> bool:
    """Every address that is left is the gateway's; the first two runs tell."""
    return all(run.first == run.last == gateway for run in left)


def _at(network: Network, grid: Grid, index: int) -> str:
    return "-".join(text(network.bits, value) for value in grid.hosts_of(index))


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - SHOWN
    return ", ".join(texts[:SHOWN]) + (f" and {more} more" if more > 0 else "")
