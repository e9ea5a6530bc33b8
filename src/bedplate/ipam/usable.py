"""How many addresses pods can get from the blocks that nodes have.

In: a valid pool's spec and the blocks in its status. Out: a number for each block: its addresses without the exclusions
of the pool, those of every block, and the gateway, which takes an address from the block it stands in. Pure; a block
costs the exclusions that touch it. An entry of a status that means nothing counts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from bedplate.ipam.addresses import Address, Network, first_usable, last_usable, parse_address, parse_network
from bedplate.ipam.planning import excluded_addresses, excluded_offsets
from bedplate.ipam.pools import CIDRAllocation, CIDRPoolSpec, IPAllocation, IPPoolSpec
from bedplate.ipam.ranges import Range, RangeSet

__all__ = ["in_blocks", "in_prefixes"]


def in_blocks(spec: IPPoolSpec, allocations: Iterable[IPAllocation]) -> list[int]:
    """The usable addresses of each block of an IPPool."""
    addresses, offsets = excluded_addresses(spec.exclusions), excluded_offsets(spec.per_node_exclusions)
    gateway = parse_address(spec.gateway)
    counts = []
    for entry in allocations:
        first, last = parse_address(entry.start_ip), parse_address(entry.end_ip)
        if first is not None and last is not None:
            hosts = Range(first.value, last.value)
            counts.append(_left(hosts, first.value, addresses, offsets, _value(gateway, first.bits)))
    return counts


def in_prefixes(spec: CIDRPoolSpec, allocations: Iterable[CIDRAllocation]) -> list[int]:
    """The usable addresses of each prefix of a CIDRPool."""
    addresses, offsets = excluded_addresses(spec.exclusions), excluded_offsets(spec.per_node_exclusions)
    counts = []
    for entry in allocations:
        parsed = parse_network(entry.prefix)
        if parsed is not None:
            prefix: Network = parsed[1]
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
