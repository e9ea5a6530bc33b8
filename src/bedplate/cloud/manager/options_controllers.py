"""Flags of the four controllers. Declarations only; the defaults that differ from Kubernetes' are ours on purpose:
upstream's single worker and 20 requests per second make 1,000 nodes wait for minutes.
"""

# Flags are made by a function, and no value of them can be changed.
# ruff: noqa: RUF009

from __future__ import annotations

from dataclasses import dataclass

from bedplate.core.flags import Duration, flag

__all__ = ["CloudNode", "Lifecycle", "Route", "ServiceLB"]


@dataclass(frozen=True, slots=True)
class CloudNode:
    """cloud-node-controller."""

    concurrent_node_syncs: int = flag(16, "Nodes initialised at the same time.")
    concurrent_node_status_updates: int = flag(
        0, "Nodes refreshed at the same time; 0: as many as --concurrent-node-syncs."
    )
    reconcile_node_labels: bool = flag(
        True, "Correct type, zone and region labels on every refresh, not only when a node is initialised."
    )


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """cloud-node-lifecycle-controller."""

    concurrent_node_lifecycle_checks: int = flag(5, "Nodes asked about at the same time.")
    max_node_deletions_percent: int = flag(
        20,
        "More of the managed nodes (and more than one) absent at once: none is deleted; 100: no such brake.",
    )
    node_deletion_confirmations: int = flag(
        2, "Consecutive answers 'does not exist', the last one uncached, before a node is deleted; 1: as upstream."
    )
    node_out_of_service_taint: bool = flag(
        False,
        "Also taint node.kubernetes.io/out-of-service=nodeshutdown:NoExecute where the machine is switched off.",
    )
    node_startup_grace_period: Duration = flag(120.0, "Nodes younger than this are not deleted.")


@dataclass(frozen=True, slots=True)
class ServiceLB:
    """service-lb-controller."""

    concurrent_service_syncs: int = flag(4, "Services worked on at the same time; one that hangs holds up no other.")
    lb_failover_delay: Duration = flag(
        15.0, "How long a node must be not ready before load balancers that care move away from it."
    )
    load_balancer_class: tuple[str, ...] = flag(
        (), "Values of spec.loadBalancerClass that are ours, separated by commas; CLASS=PROVIDER with several clouds."
    )
    load_balancer_default_class: bool = flag(True, "Services without a loadBalancerClass are ours.")


@dataclass(frozen=True, slots=True)
class Route:
    """node-route-controller."""

    route_full_resync_period: Duration = flag(300.0, "Pause between two passes over all routes when nothing changes.")
