"""Pools as people look at them: blocks in their order, how many are free, how full each of them is. Values alone.

`build_views.py` makes them from custom resources; tables, JSON, pictures and explanations are made of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from bedplate.ipam import addresses
from bedplate.ipam.addresses import Address, Network
from bedplate.ipam.blocks import Grid
from bedplate.ipam.ranges import EMPTY, Range, RangeSet

__all__ = ["Block", "HeldBlock", "PoolView"]


@dataclass(frozen=True, slots=True)
class Block:
    """What one node has of a pool: `first` to `last` are what its pods may get, in number `index` of the blocks."""

    node: str
    index: int
    first: Address
    last: Address
    text: str
    gateway: Address | None
    excluded: RangeSet
    used: int = 0

    @property
    def size(self) -> int:
        return self.last.value - self.first.value + 1

    @property
    def usable(self) -> int:
        """Addresses that pods can get without asking for one by name: neither excluded nor the gateway's."""
        gateway = self.gateway
        is_lost = gateway is not None and self.holds(gateway) and not self.excludes(gateway)
        return self.size - self.excluded.total() - (1 if is_lost else 0)

    def holds(self, address: Address) -> bool:
        return address.bits == self.first.bits and self.first.value <= address.value <= self.last.value

    def excludes(self, address: Address) -> bool:
        return address.value in self.excluded


@dataclass(frozen=True, slots=True)
class HeldBlock:
    """A block that was a node's and that nobody gets before `until`."""

    index: int
    text: str
    node: str
    until: datetime | None


@dataclass(frozen=True, slots=True)
class PoolView:
    """One pool. Blocks are numbered from the lowest address; `excluded` are ranges of such numbers."""

    kind: str
    name: str
    namespace: str
    key: str
    network: Network | None
    network_text: str
    gateway: str
    block_text: str
    grid: Grid | None = None
    excluded: RangeSet = EMPTY
    reserved: tuple[int, ...] = ()
    blocks: tuple[Block, ...] = ()
    held: tuple[HeldBlock, ...] = ()
    strays: tuple[tuple[str, str], ...] = ()
    """Nodes with what the status says they have, though it is not a block of this spec."""
    problems: tuple[str, ...] = ()

    @property
    def bits(self) -> int:
        return self.network.bits if self.network is not None else addresses.V4

    @property
    def total(self) -> int:
        """Blocks that fit into the network, free or not."""
        return self.grid.count if self.grid is not None else 0

    @property
    def free(self) -> int:
        """Blocks that a node could get now."""
        taken = (
            {block.index for block in self.blocks}
            | {quarantined.index for quarantined in self.held}
            | set(self.reserved)
        )
        return max(0, self.total - self.excluded.total() - sum(index not in self.excluded for index in taken))

    @property
    def usable(self) -> int:
        """Addresses that pods can get from the blocks that are given."""
        return sum(block.usable for block in self.blocks)

    @property
    def used(self) -> int:
        return sum(block.used for block in self.blocks)

    @property
    def state(self) -> str:
        """In a word or two, what needs attention."""
        if self.problems:
            return "invalid"
        if self.strays:
            return "status does not fit"
        return "no free block" if self.free == 0 else "ok"

    def block_of(self, node: str) -> Block | None:
        return next((block for block in self.blocks if block.node == node), None)

    def block_with(self, address: Address) -> Block | None:
        return next((block for block in self.blocks if block.holds(address)), None)

    def index_of(self, address: Address) -> int | None:
        """The number of the block in which the address lies, allocated or not."""
        if self.network is None or self.grid is None or not self.network.holds(address):
            return None
        touched = self.grid.touched_by(Range(address.value, address.value))
        return touched.first if touched.first == touched.last else None
