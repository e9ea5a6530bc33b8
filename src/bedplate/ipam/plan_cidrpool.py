"""The status of a CIDRPool: which prefix and which gateway each node has.

In: the pool with its present status, the nodes, what is held back, the mode. Out: a `Plan`. Pure; N nodes cost
O(N log N), exclusions O(E log E), static allocations O(S), whatever the size of the network.

Prefixes are compared as networks, never as texts. A text that stands in the status or in a static allocation is
kept as it was written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bedplate.ipam.addresses import Network, has_broadcast, parse_network, text
from bedplate.ipam.blocks import FreeBlocks, Grid, excluded_blocks
from bedplate.ipam.planning import (
    NOTHING,
    Freed,
    FreedWhy,
    Held,
    Mode,
    Plan,
    PlanNode,
    excluded_addresses,
    excluded_offsets,
    fill,
    held_indexes,
    matching_names,
)
from bedplate.ipam.pools import CIDRAllocation, CIDRPool, CIDRPoolSpec, StaticAllocation
from bedplate.ipam.ranges import Range, RangeSet
from bedplate.ipam.validation import cidrpool_problems

__all__ = ["PrefixCut", "cut_prefixes", "plan_cidrpool"]


@dataclass(frozen=True, slots=True)
class PrefixCut:
    """How a network is cut: its prefixes, those that nobody may have, and those that are spoken for."""

    cidr: Network
    length: int
    grid: Grid
    excluded: RangeSet
    statics: Mapping[str, StaticAllocation]
    """By node."""
    spoken_for: frozenset[Network]
    """All static prefixes, also those of nodes that are not there, and those without a node."""
    gateway_index: int | None

    def prefix_at(self, index: int) -> Network:
        """The prefix with this index."""
        return Network(self.cidr.bits, self.grid.start_of(index), self.length)

    def gateway_of(self, prefix: Network) -> str:
        """The gateway of one of these prefixes; empty when they have none."""
        return "" if self.gateway_index is None else text(prefix.bits, prefix.base + self.gateway_index)


class _Entry(NamedTuple):
    """An entry of the status whose prefix could be read and has no host bits."""

    written: CIDRAllocation
    prefix: Network


def plan_cidrpool(
    pool: CIDRPool, nodes: Iterable[PlanNode], held: Held = NOTHING, mode: Mode = Mode.STABLE
) -> Plan[CIDRAllocation]:
    """What the status shall be."""
    spec = pool.spec
    problems = tuple(cidrpool_problems(pool.name, spec))
    if problems:
        return Plan(pool.status.allocations if mode is Mode.STABLE else (), problems=problems)
    if mode is Mode.UPSTREAM:
        held = NOTHING
    names = matching_names(spec.node_selector, nodes)
    cut = cut_prefixes(spec)
    entries = _read(pool.status.allocations)
    free = FreeBlocks(cut.grid.count, cut.excluded, held_indexes(cut.grid, cut.cidr.bits, held))
    for prefix in cut.spoken_for:
        free.take((prefix.base - cut.grid.first) // cut.grid.stride)
    given = {name: _static(cut, cut.statics[name]) for name in names if name in cut.statics}
    given |= _keep(pool.status.allocations, entries, frozenset(names) - given.keys(), cut, free, mode)
    homes = _old_homes(entries, cut) if mode is Mode.STABLE else {}
    rest = [name for name in names if name not in given]
    new, unplaced = fill(rest, cut.grid, free, cut.cidr.bits, held, homes)
    for name, index in new.items():
        prefix = cut.prefix_at(index)
        given[name] = CIDRAllocation(node_name=name, gateway=cut.gateway_of(prefix), prefix=str(prefix))
    allocations = tuple(given[name] for name in names if name in given)
    return Plan(allocations, unplaced, freed=_freed(entries, given, frozenset(names)))


def cut_prefixes(spec: CIDRPoolSpec) -> PrefixCut:
    """The prefixes of a valid spec."""
    parsed = parse_network(spec.cidr)
    assert parsed is not None
    cidr, length = parsed[1], spec.per_node_network_prefix
    stride = 1 << (cidr.bits - length)
    span = stride - 1 if has_broadcast(Network(cidr.bits, cidr.base, length)) else stride
    grid = Grid(cidr.base, stride, span, 1 << (length - cidr.length))
    excluded = excluded_blocks(grid, excluded_addresses(spec.exclusions), excluded_offsets(spec.per_node_exclusions))
    spoken_for = (parse_network(entry.prefix) for entry in spec.static_allocations)
    return PrefixCut(
        cidr,
        length,
        grid,
        excluded,
        {entry.node_name: entry for entry in spec.static_allocations if entry.node_name},
        frozenset(prefix[1] for prefix in spoken_for if prefix is not None),
        spec.gateway_index,
    )


def _static(cut: PrefixCut, entry: StaticAllocation) -> CIDRAllocation:
    gateway = entry.gateway
    parsed = parse_network(entry.prefix)
    if not gateway and parsed is not None:
        gateway = cut.gateway_of(parsed[1])
    return CIDRAllocation(node_name=entry.node_name, gateway=gateway, prefix=entry.prefix)


def _read(allocations: Iterable[CIDRAllocation]) -> list[_Entry]:
    entries = []
    for written in allocations:
        parsed = parse_network(written.prefix)
        if parsed is not None and parsed[0] == (parsed[1].bits, parsed[1].base):
            entries.append(_Entry(written, parsed[1]))
    return entries


def _keep(
    allocations: Sequence[CIDRAllocation],
    entries: Iterable[_Entry],
    names: frozenset[str],
    cut: PrefixCut,
    free: FreeBlocks,
    mode: Mode,
) -> dict[str, CIDRAllocation]:
    """The prefixes that nodes without a static one have and that still fit; two entries that clash are both dropped.

    Static prefixes are taken already, so that nobody else keeps one. A gateway that is not the computed one costs a
    node its prefix in the original; ours puts the gateway right.
    """
    clashes = _Clashes(allocations, entries, count_gateways=mode is Mode.UPSTREAM)
    kept: dict[str, CIDRAllocation] = {}
    for entry in entries:
        written, prefix = entry.written, entry.prefix
        if written.node_name not in names or clashes.with_another(entry):
            continue
        if prefix.length != cut.length or not cut.cidr.holds_network(prefix):
            continue
        gateway = cut.gateway_of(prefix)
        index = (prefix.base - cut.grid.first) // cut.grid.stride
        if not free.may_take(index) or (mode is Mode.UPSTREAM and written.gateway != gateway):
            continue
        free.take(index)
        same = written.gateway == gateway
        kept[written.node_name] = (
            written if same else CIDRAllocation(node_name=written.node_name, gateway=gateway, prefix=written.prefix)
        )
    return kept


class _Clashes:
    """Which entries of a status share a node, a prefix or (if that counts) a gateway with another one."""

    def __init__(
        self, allocations: Iterable[CIDRAllocation], entries: Iterable[_Entry], *, count_gateways: bool
    ) -> None:
        everything = list(allocations)
        self._nodes = Counter(written.node_name for written in everything)
        self._prefixes = Counter(entry.prefix for entry in entries)
        self._gateways = Counter(written.gateway for written in everything if written.gateway and count_gateways)

    def with_another(self, entry: _Entry) -> bool:
        return (
            self._nodes[entry.written.node_name] > 1
            or self._prefixes[entry.prefix] > 1
            or self._gateways[entry.written.gateway] > 1
        )


def _old_homes(entries: list[_Entry], cut: PrefixCut) -> Mapping[str, Range]:
    """Where nodes were before the prefix length changed: all entries have one length, and it is not the pool's."""
    lengths = {entry.prefix.length for entry in entries}
    if len(lengths) != 1 or lengths == {cut.length}:
        return {}
    return {
        entry.written.node_name: Range(entry.prefix.base, entry.prefix.top)
        for entry in entries
        if entry.prefix.bits == cut.cidr.bits
    }


def _freed(entries: Iterable[_Entry], given: Mapping[str, CIDRAllocation], names: frozenset[str]) -> tuple[Freed, ...]:
    freed = []
    for entry in entries:
        node = entry.written.node_name
        now = given.get(node)
        if now is None or not _is_prefix(now.prefix, entry):
            freed.append(Freed(node, str(entry.prefix), FreedWhy.MOVED if node in names else FreedWhy.NODE_GONE))
    return tuple(freed)


def _is_prefix(written: str, entry: _Entry) -> bool:
    if written == entry.written.prefix:
        return True
    parsed = parse_network(written)
    return parsed is not None and parsed[1] == entry.prefix
