"""The registry of a program's metrics, and one set of metrics per registry.

In: a prometheus registry and a class whose constructor registers its metrics. Out: the one instance for that registry,
so that any number of queues, clients and controllers may share a registry without registering a name twice.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from bedplate.core.figures import Registry

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["CONTENT_TYPE", "registry", "shared"]

# Prometheus' text format, which every scraper reads.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
M = TypeVar("M")
R = TypeVar("R", bound=Registry)
_known: weakref.WeakKeyDictionary[Registry, dict[Any, Any]] = weakref.WeakKeyDictionary()


def shared(registry: R, factory: Callable[[R], M]) -> M:
    """The instance of `factory` that belongs to `registry`, made on first use."""
    instances = _known.setdefault(registry, {})
    if factory not in instances:
        instances[factory] = factory(registry)
    metrics: M = instances[factory]
    return metrics


def registry() -> CollectorRegistry:
    """A registry with the metrics of the process, the interpreter and its garbage collector."""
    from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

    collectors = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=collectors)
    return collectors
