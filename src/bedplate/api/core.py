"""The core group (v1): nodes, pods, services, events, namespaces, secrets, config maps, service accounts.

Lean: only fields that this project reads. Not here: images on a node, volumes, probes, managedFields.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from bedplate.api import meta
from bedplate.api.meta import field

__all__ = [
    "ClientIPConfig",
    "ConfigMap",
    "Container",
    "ContainerStatus",
    "Event",
    "EventSeries",
    "EventSource",
    "LoadBalancerIngress",
    "LoadBalancerStatus",
    "Namespace",
    "NamespaceSpec",
    "NamespaceStatus",
    "Node",
    "NodeAddress",
    "NodeSpec",
    "NodeStatus",
    "NodeSystemInfo",
    "Pod",
    "PodIP",
    "PodSpec",
    "PodStatus",
    "PortStatus",
    "ResourceRequirements",
    "Secret",
    "Service",
    "ServiceAccount",
    "ServicePort",
    "ServiceSpec",
    "ServiceStatus",
    "SessionAffinityConfig",
    "Taint",
    "Toleration",
]


class Taint(meta.Model, frozen=True):
    """What keeps pods off a node; (key, effect) identifies it."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: datetime | None = None


class NodeSpec(meta.Model, frozen=True):
    """What the cluster wants of a node."""

    pod_cidr: str = field("podCIDR")
    pod_cidrs: tuple[str, ...] = field("podCIDRs", ())
    provider_id: str = field("providerID")
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeAddress(meta.Model, frozen=True):
    """An address of a node: Hostname, InternalIP, ExternalIP, InternalDNS or ExternalDNS."""

    type: str = ""
    address: str = ""


class NodeSystemInfo(meta.Model, frozen=True):
    """What the kubelet says about its machine."""

    machine_id: str = field("machineID")
    system_uuid: str = field("systemUUID")
    boot_id: str = field("bootID")
    kernel_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""
    kubelet_version: str = ""
    operating_system: str = ""
    architecture: str = ""


class NodeStatus(meta.Model, frozen=True):
    """What is known of a node; `images` is left out on purpose (half of a large node's size)."""

    addresses: tuple[NodeAddress, ...] = ()
    conditions: tuple[meta.Condition, ...] = ()
    capacity: dict[str, str] = msgspec.field(default_factory=dict)
    allocatable: dict[str, str] = msgspec.field(default_factory=dict)
    node_info: NodeSystemInfo = NodeSystemInfo()
    phase: str = ""


class Node(meta.Object, frozen=True):
    """A machine of the cluster."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    def condition(self, type_: str) -> meta.Condition | None:
        return meta.find_condition(self.status.conditions, type_)

    @property
    def is_ready(self) -> bool:
        ready = self.condition("Ready")
        return ready is not None and ready.is_true


class Toleration(meta.Model, frozen=True):
    """A taint that a pod does not mind."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class ResourceRequirements(meta.Model, frozen=True):
    """Quantities stay text: they are compared and summed only where a scheduler needs them."""

    requests: dict[str, str] = msgspec.field(default_factory=dict)
    limits: dict[str, str] = msgspec.field(default_factory=dict)


class Container(meta.Model, frozen=True):
    """A container of a pod."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""


class PodSpec(meta.Model, frozen=True):
    """What a pod asks for."""

    node_name: str = ""
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    service_account_name: str = ""
    scheduler_name: str = ""
    host_network: bool = False
    hostname: str = ""
    restart_policy: str = ""
    priority: int | None = None
    termination_grace_period_seconds: int | None = None
    tolerations: tuple[Toleration, ...] = ()
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] = ()


class PodIP(meta.Model, frozen=True):
    """An address of a pod."""

    ip: str = ""


class ContainerStatus(meta.Model, frozen=True):
    """How a container is doing."""

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    container_id: str = field("containerID")


class PodStatus(meta.Model, frozen=True):
    """How a pod is doing."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    nominated_node_name: str = ""
    host_ip: str = field("hostIP")
    pod_ip: str = field("podIP")
    pod_ips: tuple[PodIP, ...] = field("podIPs", ())
    start_time: datetime | None = None
    conditions: tuple[meta.Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(meta.Object, frozen=True):
    """Containers that run together on one node."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_finished(self) -> bool:
        """It will not run again."""
        return self.status.phase in ("Succeeded", "Failed")


class ServicePort(meta.Model, frozen=True):
    """A port of a service; `target_port` is a number or a name."""

    name: str = ""
    protocol: str = "TCP"
    app_protocol: str | None = None
    port: int = 0
    target_port: int | str = 0
    node_port: int = 0


class ClientIPConfig(meta.Model, frozen=True):
    """How long a client stays with its backend."""

    timeout_seconds: int | None = None


class SessionAffinityConfig(meta.Model, frozen=True):
    """How session affinity works."""

    client_ip: ClientIPConfig | None = field("clientIP", None)


class ServiceSpec(meta.Model, frozen=True):
    """What a service offers."""

    type: str = ""
    selector: dict[str, str] = msgspec.field(default_factory=dict)
    ports: tuple[ServicePort, ...] = ()
    cluster_ip: str = field("clusterIP")
    cluster_ips: tuple[str, ...] = field("clusterIPs", ())
    ip_families: tuple[str, ...] = ()
    ip_family_policy: str | None = None
    external_ips: tuple[str, ...] = field("externalIPs", ())
    external_name: str = ""
    external_traffic_policy: str = ""
    internal_traffic_policy: str | None = None
    health_check_node_port: int = 0
    load_balancer_ip: str = field("loadBalancerIP")
    load_balancer_class: str | None = None
    load_balancer_source_ranges: tuple[str, ...] = ()
    allocate_load_balancer_node_ports: bool | None = None
    session_affinity: str = ""
    session_affinity_config: SessionAffinityConfig | None = None
    publish_not_ready_addresses: bool = False


class PortStatus(meta.Model, frozen=True):
    """How a port of a load balancer is doing."""

    port: int = 0
    protocol: str = ""
    error: str | None = None


class LoadBalancerIngress(meta.Model, frozen=True):
    """Where a load balancer can be reached."""

    ip: str = ""
    hostname: str = ""
    ip_mode: str | None = None
    ports: tuple[PortStatus, ...] = ()


class LoadBalancerStatus(meta.Model, frozen=True):
    """What the load balancer of a service has."""

    ingress: tuple[LoadBalancerIngress, ...] = ()


class ServiceStatus(meta.Model, frozen=True):
    """What a service has got."""

    load_balancer: LoadBalancerStatus = LoadBalancerStatus()
    conditions: tuple[meta.Condition, ...] = ()


class Service(meta.Object, frozen=True):
    """A stable address for a set of pods."""

    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()


class NamespaceSpec(meta.Model, frozen=True):
    """What holds a namespace's deletion."""

    finalizers: tuple[str, ...] = ()


class NamespaceStatus(meta.Model, frozen=True):
    """Active or Terminating."""

    phase: str = ""
    conditions: tuple[meta.Condition, ...] = ()


class Namespace(meta.Object, frozen=True):
    """A scope for names."""

    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


class Secret(meta.Object, frozen=True):
    """Confidential data; values are decoded from base64."""

    type: str = ""
    data: dict[str, bytes] = msgspec.field(default_factory=dict)
    immutable: bool | None = None

    def __repr__(self) -> str:
        # A secret in a log line or a traceback would leak its values.
        return f"Secret({self.metadata.namespace}/{self.metadata.name}, keys={sorted(self.data)})"


class ConfigMap(meta.Object, frozen=True):
    """Configuration data."""

    data: dict[str, str] = msgspec.field(default_factory=dict)
    binary_data: dict[str, bytes] = msgspec.field(default_factory=dict)
    immutable: bool | None = None


class ServiceAccount(meta.Object, frozen=True):
    """An identity for processes in pods."""

    automount_service_account_token: bool | None = None


class EventSource(meta.Model, frozen=True):
    """The component that reported an event."""

    component: str = ""
    host: str = ""


class EventSeries(meta.Model, frozen=True):
    """A run of equal events."""

    count: int = 0
    last_observed_time: datetime | None = None


class Event(meta.Object, frozen=True):
    """Something that happened to an object."""

    involved_object: meta.ObjectReference = meta.ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = ""
    action: str = ""
    count: int = 0
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    series: EventSeries | None = None
    source: EventSource = EventSource()
    reporting_component: str = ""
    reporting_instance: str = ""
