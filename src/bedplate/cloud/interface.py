"""What a cloud provider is: the abilities the controllers call, and the values that pass between them.

A provider offers any of `instances`, `legacy` (Instances and Zones of the old interface), `load_balancers` and
`routes`; what it lacks is None, and the controller that needs it is skipped. Nodes and Services passed in are never
changed.
Errors: see `errors`; whatever is not `InstanceNotFound` is a failure to find out, never absence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import msgspec

from bedplate.api import core

__all__ = [
    "Address",
    "Carried",
    "InstanceMetadata",
    "Instances",
    "LegacyInstances",
    "Listing",
    "LoadBalancers",
    "Placed",
    "Provider",
    "Route",
    "Routes",
    "Target",
    "Zone",
    "same_status",
]


@dataclass(frozen=True, slots=True)
class Address:
    """One address of a machine; `type` is a Node address type (InternalIP, ExternalIP, Hostname, …)."""

    type: str
    address: str


@dataclass(frozen=True, slots=True)
class InstanceMetadata:
    """What a cloud knows of a node's machine; empty text means that the cloud does not say."""

    provider_id: str = ""
    instance_type: str = ""
    addresses: tuple[Address, ...] = ()
    zone: str = ""
    region: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Zone:
    """Where a machine stands."""

    failure_domain: str = ""
    region: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """A complete list of a cloud's machines: how many there are, and which of the nodes asked about are among them."""

    machines: int
    nodes: frozenset[str] = frozenset()


class Instances(Protocol):
    """Machines (InstancesV2). A node is found by its provider ID, else by its name or other fields."""

    async def exists(self, node: core.Node, *, fresh: bool = False) -> bool:
        """Whether the machine is there. `fresh`: ask the cloud itself, no cache. Raising `InstanceNotFound` is a no."""

    async def is_shutdown(self, node: core.Node, *, fresh: bool = False) -> bool:
        """Whether the machine is there and switched off."""

    async def metadata(self, node: core.Node) -> InstanceMetadata | None:
        """What the cloud knows of it; None: nothing to do for this node. `InstanceNotFound` when there is none."""

    def was_absent(self, name: str, within_s: float) -> bool:
        """Whether a complete list, read at most that long ago, held no machine of this name. Asks nobody."""

    async def listing(self, nodes: Sequence[core.Node]) -> Listing:
        """All machines of the cloud, read now; raises when the list cannot be had or is not complete. A node with a
        malformed provider ID is not among them, and does not keep the others from being looked for."""


class LegacyInstances(Protocol):
    """Instances (v1) and Zones of the old interface; used only where a provider offers no `Instances`."""

    async def node_addresses(self, name: str) -> Sequence[Address]: ...

    async def node_addresses_by_provider_id(self, provider_id: str) -> Sequence[Address]: ...

    async def instance_id(self, name: str) -> str: ...

    async def instance_type(self, name: str) -> str: ...

    async def instance_type_by_provider_id(self, provider_id: str) -> str: ...

    async def exists_by_provider_id(self, provider_id: str) -> bool: ...

    async def is_shutdown_by_provider_id(self, provider_id: str) -> bool: ...

    async def zone_by_node_name(self, name: str) -> Zone: ...

    async def zone_by_provider_id(self, provider_id: str) -> Zone: ...


@dataclass(frozen=True, slots=True)
class Target:
    """A node that may carry a load balancer's traffic, and whether it could do so now.

    `is_ready` is the kubelet's Ready condition after the fail-over delay; `has_endpoints` is False only where the
    Service's traffic policy is Local and the node has no ready endpoint of it.
    """

    node: core.Node
    is_ready: bool = True
    has_endpoints: bool = True


class LoadBalancers(Protocol):
    """Load balancers. All calls are idempotent; one hung call must not hold up another Service."""

    needs_ready_nodes: bool
    """Whether targets' readiness matters: then a change of it leads to `update`."""

    def name(self, cluster: str, service: core.Service) -> str: ...

    async def get(self, cluster: str, service: core.Service) -> core.LoadBalancerStatus | None:
        """The load balancer's status; None when it does not exist."""

    async def ensure(
        self, cluster: str, service: core.Service, targets: Sequence[Target]
    ) -> core.LoadBalancerStatus | None:
        """Make it so; return the status to publish."""

    async def update(
        self, cluster: str, service: core.Service, targets: Sequence[Target]
    ) -> core.LoadBalancerStatus | None:
        """Only the targets changed; return the status to publish, or None to leave it."""

    async def delete(self, cluster: str, service: core.Service) -> None:
        """Remove it; absent is success."""


@runtime_checkable
class Carried(Protocol):
    """What load balancers that stay on their nodes may offer besides: as long as those nodes can serve, the readiness
    of any other does not lead to `update`. Without it every change of targets does."""

    def carriers(self, service: core.Service) -> frozenset[str]:
        """The nodes that carry the Service's traffic, as far as known without asking; empty when not known."""


@runtime_checkable
class Placed(Protocol):
    """What load balancers that put a Service on one node may offer besides, for explanations."""

    async def obstacles(self, cluster: str, service: core.Service, targets: Sequence[Target]) -> Mapping[str, str]:
        """By the names of nodes: why the Service cannot be put there. Reads, and changes nothing."""


@dataclass(frozen=True, slots=True)
class Route:
    """A route of the cloud's network to a node's pods."""

    name: str = ""
    target_node: str = ""
    destination_cidr: str = ""
    enable_node_addresses: bool = False
    target_node_addresses: tuple[Address, ...] = ()
    is_blackhole: bool = False


class Routes(Protocol):
    """Routes to pods in the cloud's own network."""

    async def list(self, cluster: str) -> Sequence[Route]: ...

    async def create(self, cluster: str, name_hint: str, route: Route) -> None: ...

    async def delete(self, cluster: str, route: Route) -> None: ...


@runtime_checkable
class Provider(Protocol):
    """One cloud. Made by its factory without I/O; `start` may check credentials, and does so again after a failure."""

    name: str
    schemes: tuple[str, ...]
    """Provider-ID schemes it answers for, its own first (`nvidia-bmm`, `nvidia-carbide`)."""
    has_cluster_id: bool
    instances: Instances | None
    legacy: LegacyInstances | None
    load_balancers: LoadBalancers | None
    routes: Routes | None

    async def start(self) -> None:
        """Open connections; check what can be checked. Raises only for what no retry can fix."""

    async def close(self) -> None: ...

    def is_foreign(self, provider_id: str) -> str:
        """Why a provider ID of this scheme is not ours all the same (another organisation); empty when it is ours."""

    async def check_ready(self) -> None:
        """Raise, with the reason, while the credentials have not been verified: what `/readyz` says."""


def same_status(left: core.LoadBalancerStatus, other: core.LoadBalancerStatus) -> bool:
    """Whether two statuses mean the same: the API server writes an absent ipMode as VIP."""
    return [_explicit(entry) for entry in left.ingress] == [_explicit(entry) for entry in other.ingress]


def _explicit(entry: core.LoadBalancerIngress) -> core.LoadBalancerIngress:
    if entry.ip and not entry.ip_mode:
        return msgspec.structs.replace(entry, ip_mode="VIP")
    return entry
