"""Every flag of the manager as one typed value.

In: the words of a command line. Out: `Options` and every problem of syntax; `validation` finds those of values.
`GROUPS` is the order of `--help` and of `/configz`; a flag's value stands in its group: `options.generic.dry_run`.
The defaults that differ from Kubernetes' are ours on purpose: upstream's single worker and 20 requests per second make
1,000 nodes wait for minutes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from bedplate.cloud.manager.options_serving import (
    Authentication,
    Authorization,
    SecureServing,
    Webhook,
    WebhookServing,
)
from bedplate.core.flags import Duration, Flag, Group, flag
from bedplate.core.flags_global import Global
from bedplate.program import options as program
from bedplate.program.options import Reading

__all__ = [
    "GROUPS",
    "Cloud",
    "CloudNode",
    "Debugging",
    "Generic",
    "LeaderMigration",
    "Lifecycle",
    "Misc",
    "Options",
    "Route",
    "ServiceLB",
    "read",
]

# Flags are made by a function, and no value of them can be changed.
# ruff: noqa: RUF009


@dataclass(frozen=True, slots=True)
class Generic:
    """What every cloud controller manager takes."""

    allocate_node_cidrs: bool = flag(
        False, "Accepted without effect: no provider here allocates pod networks; kube-controller-manager does."
    )
    allow_untagged_cloud: bool = flag(
        False,
        "Accepted without effect: clusters are told apart by the UID of the namespace kube-system.",
        deprecated="it will be removed in a later version, as in Kubernetes",
    )
    cidr_allocator_type: str = flag(
        "RangeAllocator", "Accepted without effect, as --allocate-node-cidrs is: RangeAllocator or CloudAllocator."
    )
    cloud_config: tuple[str, ...] = flag(
        (),
        "The provider's configuration file; with several providers NAME=FILE for each, separated by commas. "
        "Its keys are listed in docs/reference/cloud-config.md; environment variables take precedence.",
    )
    cloud_provider: tuple[str, ...] = flag(
        (),
        "The cloud, or several separated by commas: a node belongs to the one whose provider ID it has. Required.",
    )
    cluster_cidr: str = flag(
        "", "Pod networks of the cluster, one or one per IP family; needed only by the route controller."
    )
    cluster_name: str = flag("kubernetes", "Name of the cluster; part of the names of load balancers.")
    configure_cloud_routes: bool = flag(True, "Run the route controller where the provider has routes.")
    controller_start_interval: Duration = flag(0.0, "Pause between the starts of two controllers, with random jitter.")
    controllers: tuple[str, ...] = flag(
        ("*",),
        "Controllers to run: '*' all, 'name' that one, '-name' not that one. "
        "All: cloud-node-controller, cloud-node-lifecycle-controller, node-route-controller, service-lb-controller.",
    )
    external_cloud_volume_plugin: str = flag("", "Accepted without effect: there is no volume controller here.")
    feature_gates: tuple[str, ...] = flag((), "Name=true|false, separated by commas; the names are listed below.")
    kube_api_burst: int = flag(100, "Requests to the API server that may be sent at once, above --kube-api-qps.")
    kube_api_content_type: str = flag(
        "application/vnd.kubernetes.protobuf", "Accepted without effect: JSON is used, decoded into lean models."
    )
    kube_api_qps: float = flag(50.0, "Requests per second to the API server.")
    event_qps: float = flag(50.0, "Events per second; a limit of their own, so that they do not delay other writes.")
    leader_elect: bool = flag(True, "Work only while holding a Lease, so that several replicas may run.")
    leader_elect_lease_duration: Duration = flag(
        15.0, "How long others wait after the last renewal they saw before they take over."
    )
    leader_elect_renew_deadline: Duration = flag(10.0, "How long the leader tries to renew before it exits.")
    leader_elect_resource_lock: str = flag("leases", "Kind of the lock; Kubernetes supports no other kind any more.")
    leader_elect_resource_name: str = flag("cloud-controller-manager", "Name of the Lease.")
    leader_elect_resource_namespace: str = flag("kube-system", "Namespace of the Lease.")
    leader_elect_retry_period: Duration = flag(2.0, "Pause between two tries to acquire or renew.")
    min_resync_period: Duration = flag(
        12 * 3600.0, "Controllers reconcile every object again after one to two times this period."
    )
    node_monitor_period: Duration = flag(5.0, "Pause between two passes over nodes that are not ready.")
    node_sync_period: Duration = flag(
        0.0, "Accepted without effect.", deprecated="it has had no effect in Kubernetes for several releases"
    )
    route_reconciliation_period: Duration = flag(
        10.0, "Shortest time between two passes of the route controller, which works on changes."
    )
    use_service_account_credentials: bool = flag(
        False,
        "Controllers write, Events too, with the service accounts node-controller, service-controller and "
        "route-controller of kube-system, whose tokens this program requests and renews; watches stay with its own "
        "account.",
    )
    dry_run: bool = flag(
        False,
        "Log what would be written to Kubernetes and to the cloud, and write nothing at all, no Lease either: it runs "
        "beside the manager in charge, without leader election and with its own account. -v=4 shows the contents.",
    )
    node_selector: str = flag("", "Labels of the nodes to manage (a=b,c!=d,e in (f,g)); all others are ignored.")


@dataclass(frozen=True, slots=True)
class LeaderMigration:
    """A second lock, for moving controllers out of kube-controller-manager."""

    enable_leader_migration: bool = flag(
        False,
        "Refused: it moves controllers out of a kube-controller-manager, which has had none since 1.31.",
    )
    leader_migration_config: str = flag("", "File for --enable-leader-migration; refused when set, as that is.")


@dataclass(frozen=True, slots=True)
class Debugging:
    """What /debug offers."""

    contention_profiling: bool = flag(
        False, "Record what keeps the event loop from running for more than 50 ms; shown by /debug/pprof/block."
    )
    profiling: bool = flag(True, "Serve /debug/pprof/ to clients that the API server authorizes.")


@dataclass(frozen=True, slots=True)
class Cloud:
    """How the clouds' APIs are used; each provider has these limits for itself."""

    cloud_api_qps: float = flag(
        0.0,
        "Ceiling of requests per second to one cloud; 0: none. Either way fewer are sent at once after 429, 5xx and "
        "slow responses, and none before a Retry-After is over.",
    )
    cloud_api_burst: int = flag(
        200,
        "Requests to one cloud that may be sent at once where a ceiling is set. Changes have a limit of their own: 5 a "
        "second, 20 at once.",
    )
    cloud_api_timeout: Duration = flag(30.0, "Longest time for one operation of a cloud, retries included.")
    cloud_cache_ttl: Duration = flag(
        30.0, "How long responses about a machine are cached. Deletions never use a cached one."
    )


@dataclass(frozen=True, slots=True)
class Misc:
    """Where the API server is."""

    kubeconfig: str = flag(
        "", "Kubeconfig with the cluster and the credentials; without it the pod's service account is used."
    )
    master: str = flag("", "Address of the API server; overrides the kubeconfig.")
    node_status_update_frequency: Duration = flag(
        300.0, "Pause between two refreshes of all nodes' addresses and labels."
    )


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

    concurrent_node_lifecycle_checks: int = flag(5, "Nodes checked at the same time.")
    mass_deletion_hold: Duration = flag(
        900.0,
        "How long it must be proven at every look that machines are gone before more nodes than "
        "--max-node-deletions-percent are deleted after all; 0: never.",
    )
    max_node_deletions_percent: int = flag(
        20,
        "If more than this share of the managed nodes (and more than one) is "
        "absent at once, none is deleted before --mass-deletion-hold has passed; 100: no limit.",
    )
    node_deletion_confirmations: int = flag(
        2, "Consecutive 'does not exist' responses, the last one uncached, before a node is deleted; 1: as upstream."
    )
    node_out_of_service_taint: bool = flag(
        False,
        "Also taint node.kubernetes.io/out-of-service=nodeshutdown:NoExecute where the machine is switched off.",
    )
    node_startup_grace_period: Duration = flag(120.0, "Nodes younger than this are not deleted.")
    node_terminated_grace_period: Duration = flag(
        3600.0,
        "A machine that its cloud lists as Terminated for this long (NVIDIA BMM) counts as one that does not exist, "
        "with the same confirmations; 0: never.",
    )


@dataclass(frozen=True, slots=True)
class ServiceLB:
    """service-lb-controller."""

    concurrent_service_syncs: int = flag(
        4, "Services processed at the same time; one that hangs does not delay the others."
    )
    lb_failover_delay: Duration = flag(
        15.0, "How long a node must be not ready before load balancers that track readiness move away from it."
    )
    load_balancer_class: tuple[str, ...] = flag(
        (), "Values of spec.loadBalancerClass to serve, separated by commas; CLASS=PROVIDER with several clouds."
    )
    load_balancer_default_class: bool = flag(True, "Serve Services without a loadBalancerClass.")


@dataclass(frozen=True, slots=True)
class Route:
    """node-route-controller."""

    route_full_resync_period: Duration = flag(300.0, "Pause between two passes over all routes when nothing changes.")


GROUPS: tuple[Group, ...] = (
    Group("debugging", "Debugging", Debugging),
    Group("leader_migration", "Leader-migration", LeaderMigration),
    Group("generic", "Generic", Generic),
    Group("cloud", "Cloud", Cloud),
    Group("cloud_node", "Cloud-node-controller", CloudNode),
    Group("lifecycle", "Cloud-node-lifecycle-controller", Lifecycle),
    Group("route", "Node-route-controller", Route),
    Group("service_lb", "Service-lb-controller", ServiceLB),
    Group("webhook", "Webhook", Webhook),
    Group("webhook_serving", "Webhook serving", WebhookServing),
    Group("secure_serving", "Secure serving", SecureServing),
    Group("authentication", "Authentication", Authentication),
    Group("authorization", "Authorization", Authorization),
    Group("misc", "Misc", Misc),
    Group("globals", "Global", Global),
)


@dataclass(frozen=True, slots=True)
class Options(program.Options):
    """What the manager was told, group by group."""

    GROUPS: ClassVar = GROUPS

    debugging: Debugging = field(default_factory=Debugging)
    leader_migration: LeaderMigration = field(default_factory=LeaderMigration)
    generic: Generic = field(default_factory=Generic)
    cloud: Cloud = field(default_factory=Cloud)
    cloud_node: CloudNode = field(default_factory=CloudNode)
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    route: Route = field(default_factory=Route)
    service_lb: ServiceLB = field(default_factory=ServiceLB)
    webhook: Webhook = field(default_factory=Webhook)
    webhook_serving: WebhookServing = field(default_factory=WebhookServing)
    secure_serving: SecureServing = field(default_factory=SecureServing)
    authentication: Authentication = field(default_factory=Authentication)
    authorization: Authorization = field(default_factory=Authorization)
    misc: Misc = field(default_factory=Misc)


def read(
    words: Sequence[str], defaults: Options | None = None, *, extra: Sequence[Flag] = (), takes_arguments: bool = False
) -> Reading[Options]:
    """Parse a command line; `defaults` apply to the flags that it does not have."""

    def refuse(word: str) -> str | None:
        return None if takes_arguments else f"unexpected argument {word!r}"

    reading = program.read(Options, words, defaults, refuse=refuse, extra=extra)
    serving = reading.options.secure_serving
    if not serving.address or "bind-address" in reading.options.given:
        return reading
    serving = dataclasses.replace(serving, bind_address=serving.address)
    return dataclasses.replace(reading, options=dataclasses.replace(reading.options, secure_serving=serving))
