"""What the daemon counts.

In: a registry, the library's or one that waits for it. Out: counters and histograms of calls and of the cleaner, and
gauges of every pool and of the store, read when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bedplate.core.figures import Counter, Gauge, Histogram, Registry
from bedplate.ipam.node.commits import Commit
from bedplate.ipam.node.http2 import Code
from bedplate.ipam.node.reservations import Usage

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["CallMetrics", "CleanerMetrics", "Snapshot", "StateCollector", "StoreMetrics"]

_BUCKETS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class CallMetrics:
    """Calls by method and code."""

    def __init__(self, registry: Registry) -> None:
        self._total = Counter(
            "bedplate_ipam_node_calls_total", "gRPC calls handled.", ("method", "code"), registry=registry
        )
        self._seconds = Histogram(
            "bedplate_ipam_node_call_duration_seconds",
            "Time from a request to its response.",
            ("method",),
            buckets=_BUCKETS,
            registry=registry,
        )
        self.foreign = Counter(
            "bedplate_ipam_node_foreign_static_addresses_total",
            "Static addresses that were allocated although they are in another node's block.",
            ("pool",),
            registry=registry,
        )

    def count(self, method: str, code: Code, seconds: float) -> None:
        """One call has ended."""
        self._total.labels(method, code.name).inc()
        self._seconds.labels(method).observe(seconds)


class CleanerMetrics:
    """What became of reservations that nobody asked to free."""

    def __init__(self, registry: Registry) -> None:
        self.released = Counter(
            "bedplate_ipam_node_cleaner_releases_total",
            "Reservations that were freed because their owner is proven dead.",
            ("proof",),
            registry=registry,
        )
        self.passes = Counter(
            "bedplate_ipam_node_cleaner_passes_total", "Passes over all reservations.", ("result",), registry=registry
        )


class StoreMetrics:
    """What the disk does."""

    def __init__(self, registry: Registry) -> None:
        self._seconds = Histogram(
            "bedplate_ipam_node_store_commit_duration_seconds",
            "Time to write one batch of changes and to sync it to the disk.",
            buckets=_BUCKETS,
            registry=registry,
        )
        self._calls = Counter(
            "bedplate_ipam_node_store_committed_calls_total", "Calls whose changes are on the disk.", registry=registry
        )
        self._file = Gauge("bedplate_ipam_node_store_bytes", "Size of the store file.", registry=registry)
        self._journal = Gauge(
            "bedplate_ipam_node_store_journal_bytes", "Size of the journal that extends it.", registry=registry
        )
        self._mode = Gauge(
            "bedplate_ipam_node_store_journal_mode",
            "1 when changes are acknowledged after they are in the journal, because "
            "the file is too large to rewrite each time.",
            registry=registry,
        )

    def loaded(self, file: Path) -> None:
        """The store was opened."""
        self._file.set(file.stat().st_size)

    def count(self, commit: Commit) -> None:
        """One batch was written."""
        self._seconds.observe(commit.seconds)
        self._calls.inc(commit.calls)
        self._file.set(commit.file_bytes)
        self._journal.set(commit.journal_bytes)
        self._mode.set(0 if commit.is_whole else 1)


class Snapshot(NamedTuple):
    """What the gauges show."""

    usage: Mapping[str, Usage]
    problems: Mapping[str, str]
    is_ready: bool


class StateCollector:
    """Gauges that are read from the daemon when somebody looks."""

    def __init__(self, registry: Registry, look: Callable[[], Snapshot]) -> None:
        self._look = look
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance: what there is depends on the daemon's state."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """What the daemon says now."""
        from prometheus_client.core import GaugeMetricFamily

        usages = self._look()
        capacity = GaugeMetricFamily(
            "bedplate_ipam_node_pool_capacity",
            "Addresses of this node's block that can be allocated.",
            labels=("pool",),
        )
        used = GaugeMetricFamily("bedplate_ipam_node_pool_used", "Addresses that are held.", labels=("pool",))
        free = GaugeMetricFamily(
            "bedplate_ipam_node_pool_free", "Addresses that can be allocated now.", labels=("pool",)
        )
        for pool, usage in usages.usage.items():
            capacity.add_metric((pool,), usage.capacity)
            used.add_metric((pool,), usage.held)
            free.add_metric((pool,), usage.free)
        invalid = GaugeMetricFamily(
            "bedplate_ipam_node_pool_invalid", "1 for a pool whose spec or entry is wrong.", labels=("pool",)
        )
        for pool in usages.problems:
            invalid.add_metric((pool,), 1)
        ready = GaugeMetricFamily(
            "bedplate_ipam_node_ready", "1 when addresses can be allocated.", float(usages.is_ready)
        )
        yield from (capacity, used, free, invalid, ready)
