"""Metrics of the service controller, under the names that dashboards of Kubernetes know."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

__all__ = ["ServiceMetrics"]

_SECONDS = tuple(float(2**power) for power in range(15))


class ServiceMetrics:
    """`service_controller_*` of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.syncs = Counter(
            "service_controller_loadbalancer_sync",
            "How often a load balancer was configured, for a Service or for nodes",
            registry=registry,
        )
        self.node_errors = Counter(
            "service_controller_nodesync_error",
            "How often a load balancer could not be updated after nodes changed",
            registry=registry,
        )
        self.node_syncs = Histogram(
            "service_controller_nodesync_latency_seconds",
            "Time from a change of nodes until every affected load balancer was updated",
            buckets=_SECONDS,
            registry=registry,
        )
        self.host_updates = Histogram(
            "service_controller_update_loadbalancer_host_latency_seconds",
            "Time to update one load balancer after nodes changed",
            buckets=_SECONDS,
            registry=registry,
        )
