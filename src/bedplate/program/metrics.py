"""The registry of a program's metrics, with those of the process in it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

__all__ = ["registry"]


def registry() -> CollectorRegistry:
    """A registry with the metrics of the process, the interpreter and its garbage collector."""
    collectors = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=collectors)
    return collectors
