"""The status of an IPPool: which block of addresses each node has.

In: the pool with its present status, the nodes, what is held back, the mode. Out: a `Plan`. Pure; N nodes cost
O(N log N), exclusions O(E log E), whatever the size of the subnet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bedplate.ipam.addresses import (
    Network,
    first_usable,
    last_usable,
    parse_address,
    parse_network,
    text,
)
from bedplate.ipam.blocks import FreeBlocks, Grid, excluded_blocks, left_in
from bedplate.ipam.planning import (
    NOTHING,
    Freed,
    FreedWhy,
    Held,
    Mode,
    Plan,
    PlanNode,
    Unplaced,
    excluded_addresses,
    excluded_offsets,
    fill,
    held_indexes,
    matching_names,
)
from bedplate.ipam.pools import IPAllocation, IPPool, IPPoolSpec
from bedplate.ipam.ranges import Range, RangeSet
from bedplate.ipam.validation import ippool_problems

__all__ = ["BlockCut", "block_text", "cut_blocks", "plan_ippool"]


@dataclass(frozen=True, slots=True)
class BlockCut:
    """How a subnet is cut: its blocks, and those of them that nobody may have."""

    network: Network
    grid: Grid
    barred: RangeSet
    """Blocks without an address to give."""
    tail: int | None
    """The index of a block behind the others that would end at the broadcast address. None is given like that, but
    one that stands in a status is not taken away, just as the original does."""


class _Entry(NamedTuple):
    """An entry of the status that could be read. Addresses of another family than the pool's have no place there."""

    node: str
    addresses: Range
    bits: int


def plan_ippool(
    pool: IPPool, nodes: Iterable[PlanNode], held: Held = NOTHING, mode: Mode = Mode.STABLE
) -> Plan[IPAllocation]:
    """What the status shall be."""
    problems = tuple(ippool_problems(pool.name, pool.spec))
    if problems:
        return Plan(pool.status.allocations if mode is Mode.STABLE else (), problems=problems)
    if mode is Mode.UPSTREAM:
        held = NOTHING
    names = matching_names(pool.spec.node_selector, nodes)
    cut = cut_blocks(pool.spec)
    entries = _read(pool.status.allocations)
    given, unplaced = _assign(cut, names, entries, held, mode)
    bits = cut.network.bits
    if unplaced and len({entry.node for entry in entries}) < len(entries):
        # The earlier one of two blocks of a node was free so far; the original gives it on its next pass.
        settled = [_Entry(name, addresses, bits) for name, addresses in given.items()]
        given, unplaced = _assign(cut, names, settled, held, mode)
    allocations = tuple(
        IPAllocation(node_name=name, start_ip=text(bits, first), end_ip=text(bits, last))
        for name, (first, last) in given.items()
    )
    return Plan(allocations, unplaced, freed=_freed(entries, given, frozenset(names)))


def _assign(
    cut: BlockCut, names: Sequence[str], entries: Sequence[_Entry], held: Held, mode: Mode
) -> tuple[dict[str, Range], tuple[Unplaced, ...]]:
    """The addresses of each node, in the order of names; and the nodes without."""
    bits = cut.network.bits
    free = FreeBlocks(cut.grid.count, cut.barred, held_indexes(cut.grid, bits, held))
    kept = _keep(entries, frozenset(names), cut, free)
    homes = _old_homes(entries, cut) if mode is Mode.STABLE else {}
    new, unplaced = fill([name for name in names if name not in kept], cut.grid, free, bits, held, homes)
    blocks = kept | new
    return {name: cut.grid.hosts_of(blocks[name]) for name in names if name in blocks}, unplaced


def cut_blocks(spec: IPPoolSpec) -> BlockCut:
    """The blocks of a valid spec."""
    parsed = parse_network(spec.subnet)
    assert parsed is not None
    network = parsed[1]
    size = spec.per_node_block_size
    first = first_usable(network)
    grid = Grid(first, size, size, (last_usable(network) - first + 1) // size)
    addresses, offsets = excluded_addresses(spec.exclusions), excluded_offsets(spec.per_node_exclusions)
    gateway = parse_address(spec.gateway)
    if size == 1 and gateway is not None:
        # A block of one address that is the gateway's would serve nobody.
        addresses = addresses.union(RangeSet([Range(gateway.value, gateway.value)]))
    ends_at_broadcast = grid.start_of(grid.count + 1) == network.top + 1
    usable_tail = ends_at_broadcast and any(left_in(grid, grid.count, addresses, offsets))
    return BlockCut(network, grid, excluded_blocks(grid, addresses, offsets), grid.count if usable_tail else None)


def block_text(bits: int, addresses: Range) -> str:
    """How a block is named: `first-last`."""
    return f"{text(bits, addresses.first)}-{text(bits, addresses.last)}"


def _read(allocations: Iterable[IPAllocation]) -> list[_Entry]:
    entries = []
    for entry in allocations:
        start, end = parse_address(entry.start_ip), parse_address(entry.end_ip)
        if start is not None and end is not None and start.bits == end.bits and start.value <= end.value:
            entries.append(_Entry(entry.node_name, Range(start.value, end.value), start.bits))
    return entries


def _keep(entries: Iterable[_Entry], names: frozenset[str], cut: BlockCut, free: FreeBlocks) -> dict[str, int]:
    """The blocks that nodes have and that still fit; of two nodes with one block the first in the status keeps it.

    A node with two entries gets the later block; the earlier one is free for now, as it is with the original.
    """
    kept: dict[str, int] = {}
    for entry in entries:
        first, last = entry.addresses
        if entry.node not in names or entry.bits != cut.network.bits or last - first + 1 != cut.grid.stride:
            continue
        if not cut.network.base <= first <= last <= cut.network.top:
            continue
        index = cut.grid.index_of(first)
        if index is None or not (free.may_take(index) or (index == cut.tail and not free.is_taken(index))):
            continue
        free.take(index)
        kept[entry.node] = index
    return kept


def _old_homes(entries: Sequence[_Entry], cut: BlockCut) -> Mapping[str, Range]:
    """Where nodes were before the block size changed: all entries have one length, and it is not the pool's."""
    lengths = {entry.addresses.last - entry.addresses.first + 1 for entry in entries}
    if len(lengths) != 1 or lengths == {cut.grid.stride}:
        return {}
    return {entry.node: entry.addresses for entry in entries if entry.bits == cut.network.bits}


def _freed(entries: Iterable[_Entry], given: Mapping[str, Range], names: frozenset[str]) -> tuple[Freed, ...]:
    return tuple(
        Freed(
            entry.node,
            block_text(entry.bits, entry.addresses),
            FreedWhy.MOVED if entry.node in names else FreedWhy.NODE_GONE,
        )
        for entry in entries
        if given.get(entry.node) != entry.addresses
    )
