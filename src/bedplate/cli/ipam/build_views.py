"""From custom resources to views: what a pool's spec and status mean in blocks and addresses.

In: an IPPool or CIDRPool, what is held back, and which addresses are in use. Out: a `PoolView`. Pure. What a status
says is shown as it is, also when it does not fit the spec: such entries are `strays`.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from bedplate.cli.ipam.survey import Pool
from bedplate.cli.ipam.views import Block, HeldBlock, PoolView
from bedplate.ipam import addresses, pools
from bedplate.ipam.addresses import Address, Network
from bedplate.ipam.blocks import Grid, excluded_blocks
from bedplate.ipam.ranges import Range, RangeSet

__all__ = ["Held", "view_of"]

Held = Mapping[str, tuple[str, datetime | None]]
"""Block as it was written in the status → whose it was, and until when nobody gets it."""


def view_of(
    pool: Pool, *, used: Sequence[Address] = (), quarantined: Held | None = None, problems: Sequence[str] = ()
) -> PoolView:
    """The view of one pool. `used`: in order, each once."""
    bare = _ippool(pool) if isinstance(pool, pools.IPPool) else _cidrpool(pool)
    bare = dataclasses.replace(bare, problems=tuple(problems))
    if bare.grid is None or bare.network is None:
        return dataclasses.replace(bare, strays=tuple((entry.node, entry.text) for entry in _entries(pool)))
    wide = RangeSet(_exclusions(pool, bare.network.bits))
    entries = list(_entries(pool))
    blocks = [block for entry in entries if (block := _block(entry, pool, bare.network, bare.grid, wide)) is not None]
    known = {(block.node, block.text) for block in blocks}
    return dataclasses.replace(
        bare,
        excluded=_excluded(pool, bare, bare.grid, wide),
        reserved=_reserved(pool, blocks, bare.network, bare.grid),
        blocks=tuple(_counted(blocks, used)),
        held=tuple(_held(quarantined or {}, bare.network, bare.grid)),
        strays=tuple(
            (allocation.node, allocation.text)
            for allocation in entries
            if (allocation.node, allocation.text) not in known
        ),
    )


def _ippool(pool: pools.IPPool) -> PoolView:
    parsed = addresses.parse_network(pool.spec.subnet)
    network = parsed[1] if parsed is not None else None
    size = pool.spec.per_node_block_size
    grid = None
    if network is not None and size > 0:
        grid = Grid(addresses.first_usable(network), size, size, addresses.usable(network) // size)
    return PoolView(
        "IPPool",
        pool.name,
        pool.namespace,
        pool.name,
        network,
        str(network) if network is not None else pool.spec.subnet,
        pool.spec.gateway,
        f"{size} addresses",
        grid,
    )


def _cidrpool(pool: pools.CIDRPool) -> PoolView:
    parsed = addresses.parse_network(pool.spec.cidr)
    network = parsed[1] if parsed is not None else None
    length, index = pool.spec.per_node_network_prefix, pool.spec.gateway_index
    grid = None
    if network is not None and network.length <= length <= network.bits:
        prefix = Network(network.bits, network.base, length)
        span = addresses.last_usable(prefix) - prefix.base + 1
        grid = Grid(network.base, 1 << (network.bits - length), span, 1 << (length - network.length))
    return PoolView(
        "CIDRPool",
        pool.name,
        pool.namespace,
        pools.cidrpool_key(pool.name),
        network,
        str(network) if network is not None else pool.spec.cidr,
        f"index {index}" if index is not None else "",
        f"/{length}",
        grid,
    )


def _exclusions(pool: Pool, bits: int) -> Iterator[Range]:
    for exclusion in pool.spec.exclusions:
        first, last = addresses.parse_address(exclusion.start_ip), addresses.parse_address(exclusion.end_ip)
        if first is not None and last is not None and first.bits == last.bits == bits:
            yield Range(first.value, last.value)


def _excluded(pool: Pool, view: PoolView, grid: Grid, wide: RangeSet) -> RangeSet:
    offsets = RangeSet(Range(exclusion.start_index, exclusion.end_index) for exclusion in pool.spec.per_node_exclusions)
    gateway = addresses.parse_address(view.gateway)
    if grid.stride == 1 and isinstance(pool, pools.IPPool) and gateway is not None and gateway.bits == view.bits:
        # A block of the gateway alone would have nothing for pods.
        wide = wide.union(RangeSet([Range(gateway.value, gateway.value)]))
    return excluded_blocks(grid, wide, offsets)


@dataclasses.dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of a status: `first` and `last` as pods may get them, None when the text means nothing."""

    node: str
    text: str
    first: Address | None
    last: Address | None
    gateway: Address | None


def _entries(pool: Pool) -> Iterator[_Entry]:
    if isinstance(pool, pools.IPPool):
        gateway = addresses.parse_address(pool.spec.gateway)
        for allocation in pool.status.allocations:
            first, last = addresses.parse_address(allocation.start_ip), addresses.parse_address(allocation.end_ip)
            yield _Entry(allocation.node_name, f"{allocation.start_ip}-{allocation.end_ip}", first, last, gateway)
        return
    for entry in pool.status.allocations:
        gateway = addresses.parse_address(entry.gateway)
        parsed = addresses.parse_network(entry.prefix)
        if parsed is None:
            yield _Entry(entry.node_name, entry.prefix, None, None, gateway)
            continue
        network = parsed[1]
        first = Address(network.bits, addresses.first_usable(network))
        last = Address(network.bits, addresses.last_usable(network))
        yield _Entry(entry.node_name, entry.prefix, first, last, gateway)


def _block(entry: _Entry, pool: Pool, network: Network, grid: Grid, wide: RangeSet) -> Block | None:
    """The entry as a block of this pool; None when it is none."""
    first, last = entry.first, entry.last
    if first is None or last is None or not (network.holds(first) and network.holds(last)):
        return None
    index = (first.value - grid.first) // grid.stride
    hosts = grid.hosts_of(index)
    lowest = hosts.first
    if isinstance(pool, pools.CIDRPool):
        prefix = Network(network.bits, hosts.first, pool.spec.per_node_network_prefix)
        lowest = addresses.first_usable(prefix)
    if (first.value, last.value) != (lowest, hosts.last):
        return None
    own = [
        Range(hosts.first + exclusion.start_index, hosts.first + exclusion.end_index)
        for exclusion in pool.spec.per_node_exclusions
    ]
    bounds = Range(first.value, last.value)
    excluded = RangeSet((*wide.within(bounds), *RangeSet(own).within(bounds)))
    return Block(entry.node, index, first, last, entry.text, entry.gateway, excluded)


def _counted(blocks: Sequence[Block], used: Sequence[Address]) -> list[Block]:
    """Blocks with the number of their addresses that are in use, sorted by node and then by address."""
    return [
        dataclasses.replace(block, used=bisect_right(used, block.last) - bisect_left(used, block.first))
        for block in sorted(blocks, key=lambda block: (block.node, block.first))
    ]


def _reserved(pool: Pool, blocks: Sequence[Block], network: Network, grid: Grid) -> tuple[int, ...]:
    """Prefixes that are kept for a node that has none yet, or for nobody."""
    if isinstance(pool, pools.IPPool):
        return ()
    parsed = [addresses.parse_network(prefix.prefix) for prefix in pool.spec.static_allocations]
    indexes = [
        grid.index_of(prefix[1].base) for prefix in parsed if prefix is not None and network.holds_network(prefix[1])
    ]
    return tuple(sorted({index for index in indexes if index is not None} - {block.index for block in blocks}))


def _held(quarantined: Held, network: Network, grid: Grid) -> Iterator[HeldBlock]:
    for text, (node, until) in sorted(quarantined.items()):
        start = addresses.parse_address(text.partition("-")[0].partition("/")[0])
        index = grid.index_of(start.value) if start is not None and network.holds(start) else None
        if index is not None:
            yield HeldBlock(index, text, node, until)
