"""Metrics of the controller.

In: what each pass found. Out: samples in the registry that the program passes in, one set a pool; a pool that is gone
leaves none behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge

__all__ = ["PoolMetrics", "Usage"]

_POOL = ("kind", "pool")


@dataclass(frozen=True, slots=True)
class Usage:
    """The numbers of one pool. `capacity` counts the blocks that can be given at all; `usable` gives the addresses for
    pods of each block that nodes have, and is called when metrics are read: it costs more than the rest."""

    capacity: int = 0
    used: int = 0
    quarantined: int = 0
    nodes_without_block: int = 0
    is_valid: bool = True
    usable: Callable[[], Sequence[int]] = tuple

    @property
    def free(self) -> int:
        """Blocks that a new node could get now."""
        return max(0, self.capacity - self.used - self.quarantined)


class PoolMetrics:
    """`bedplate_ipam_*` of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"bedplate_ipam_pool_{name}", text, _POOL, registry=registry)

        self._capacity = gauge("blocks_capacity", "Blocks that the pool can assign to nodes.")
        self._used = gauge("blocks_used", "Blocks that nodes have.")
        self._free = gauge("blocks_free", "Blocks that a new node could get now.")
        self._quarantined = gauge("blocks_quarantined", "Blocks that are held back for nodes that were removed.")
        self._without = gauge("nodes_without_block", "Nodes that the pool selects but has no block for.")
        self._addresses = gauge("addresses_usable", "Addresses for pods in all blocks that nodes have.")
        self._smallest = gauge(
            "block_addresses_usable_min", "Addresses for pods in the smallest block that a node has."
        )
        self._valid = gauge("spec_valid", "1 when the pool's spec can be served, 0 when it cannot.")
        self.writes = Counter(
            "bedplate_ipam_status_writes",
            "Writes of a pool's status.",
            ("kind", "result"),
            registry=registry,
        )
        self.changes = Counter(
            "bedplate_ipam_node_changes",
            "Changes of nodes, by whether they affected a pool.",
            ("kind", "concerned"),
            registry=registry,
        )

    def show(self, kind: str, pool: str, usage: Usage) -> None:
        """The numbers of a pool from now on."""
        for gauge, value in (
            (self._capacity, usage.capacity),
            (self._used, usage.used),
            (self._free, usage.free),
            (self._quarantined, usage.quarantined),
            (self._without, usage.nodes_without_block),
            (self._valid, int(usage.is_valid)),
        ):
            gauge.labels(kind, pool).set(float(value))
        self._addresses.labels(kind, pool).set_function(lambda: float(sum(usage.usable())))
        self._smallest.labels(kind, pool).set_function(lambda: float(min(usage.usable(), default=0)))

    def forget(self, kind: str, pool: str) -> None:
        """The pool is gone."""
        blocks = (self._capacity, self._used, self._free, self._quarantined)
        for gauge in (*blocks, self._without, self._valid, self._addresses, self._smallest):
            try:
                gauge.remove(kind, pool)
            except KeyError:
                # It was never shown.
                pass
