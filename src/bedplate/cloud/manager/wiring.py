"""The four controllers, made from the flags.

In: options, clouds, caches, clients. Out: the parts that run while leading. No decision about a node or a Service is
made here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from bedplate.api import core, discovery
from bedplate.cloud.controllers import lifecycle, node, route, service
from bedplate.cloud.manager import selection
from bedplate.cloud.manager.connection import Clients
from bedplate.cloud.manager.leading import Recording, Started
from bedplate.cloud.manager.options import Options
from bedplate.cloud.routing import Clouds
from bedplate.core import clock
from bedplate.kube.client import Client
from bedplate.runtime.cache import Cache
from bedplate.runtime.events import EventRecorder
from bedplate.runtime.manager import Leading

__all__ = ["Caches", "Recorders", "Wiring", "lifecycle_options", "node_options", "route_options", "service_options"]

NODE_ACCOUNT, SERVICE_ACCOUNT, ROUTE_ACCOUNT = "node-controller", "service-controller", "route-controller"
SERVICE_COMPONENT, ROUTE_COMPONENT = "service-controller", "route_controller"


@dataclass(frozen=True, slots=True)
class Caches:
    """What controllers and providers read. A cache is filled only when something reads it."""

    nodes: Cache[core.Node] = field(default_factory=Cache)
    services: Cache[core.Service] = field(default_factory=Cache)
    slices: Cache[discovery.EndpointSlice] = field(default_factory=Cache)


class Recorders:
    """One recorder per component, all writing through one client, and thereby at one rate."""

    def __init__(self, client: Client, time: clock.Clock) -> None:
        self._client = client
        self._time = time
        self._made: dict[str, EventRecorder] = {}

    def get(self, component: str) -> EventRecorder:
        """The recorder whose events name this component as their source."""
        if component not in self._made:
            self._made[component] = EventRecorder(self._client, component, time=self._time)
        return self._made[component]

    def parts(self) -> list[Leading]:
        """What writes their events while leading."""
        return [Recording(f"events of {name}", one) for name, one in self._made.items()]


def node_options(options: Options) -> node.NodeOptions:
    """The flags of the node controller."""
    flags = options.cloud_node
    return node.NodeOptions(
        concurrent_node_syncs=flags.concurrent_node_syncs,
        concurrent_node_status_updates=flags.concurrent_node_status_updates,
        node_status_update_frequency_s=options.misc.node_status_update_frequency,
        reconcile_node_labels=flags.reconcile_node_labels,
    )


def lifecycle_options(options: Options) -> lifecycle.LifecycleOptions:
    """The flags of the lifecycle controller."""
    flags = options.lifecycle
    return lifecycle.LifecycleOptions(
        node_monitor_period_s=options.generic.node_monitor_period,
        concurrent_node_lifecycle_checks=flags.concurrent_node_lifecycle_checks,
        node_deletion_confirmations=flags.node_deletion_confirmations,
        max_node_deletions_percent=flags.max_node_deletions_percent,
        node_startup_grace_period_s=flags.node_startup_grace_period,
        node_out_of_service_taint=flags.node_out_of_service_taint,
    )


def service_options(options: Options) -> service.ServiceOptions:
    """The flags of the service controller."""
    flags = options.service_lb
    return service.ServiceOptions(
        cluster_name=options.generic.cluster_name,
        concurrent_service_syncs=flags.concurrent_service_syncs,
        load_balancer_class=flags.load_balancer_class,
        load_balancer_default_class=flags.load_balancer_default_class,
        lb_failover_delay_s=flags.lb_failover_delay,
        cloud_api_timeout_s=options.cloud.cloud_api_timeout,
    )


def route_options(options: Options) -> route.RouteOptions:
    """The flags of the route controller."""
    generic = options.generic
    return route.RouteOptions(
        configure_cloud_routes=generic.configure_cloud_routes,
        cluster_cidr=generic.cluster_cidr,
        cluster_name=generic.cluster_name,
        route_reconciliation_period_s=generic.route_reconciliation_period,
        route_full_resync_period_s=options.route.route_full_resync_period,
        node_selector=generic.node_selector,
        cloud_api_timeout_s=options.cloud.cloud_api_timeout,
    )


@dataclass(frozen=True, slots=True)
class Wiring:
    """What every controller needs."""

    options: Options
    clouds: Clouds
    caches: Caches
    recorders: Recorders
    time: clock.Clock
    registry: CollectorRegistry

    @property
    def enabled(self) -> frozenset[str]:
        return selection.enabled_controllers(self.options.generic.controllers)[0]

    @property
    def has_load_balancers(self) -> bool:
        """Whether Services are anybody's business here."""
        return selection.SERVICE in self.enabled and any(one.load_balancers is not None for one in self.clouds)

    async def controllers(self, clients: Clients) -> list[Started]:
        """The controllers that were asked for and have something to do, in the order of their start."""
        found: list[Started] = []
        if self.enabled & {selection.NODE, selection.LIFECYCLE}:
            client = await clients.controller(NODE_ACCOUNT)
            if selection.NODE in self.enabled:
                found.append(Started(selection.NODE, self._node(client)))
            if selection.LIFECYCLE in self.enabled:
                found.append(Started(selection.LIFECYCLE, self._lifecycle(client)))
        if selection.SERVICE in self.enabled:
            found.append(Started(selection.SERVICE, self._service(await clients.controller(SERVICE_ACCOUNT))))
        if selection.ROUTE in self.enabled:
            found.append(Started(selection.ROUTE, self._route(await clients.controller(ROUTE_ACCOUNT))))
        return [one for one in found if one.parts]

    def _node(self, client: Client) -> list[Leading]:
        recorder = self.recorders.get(node.COMPONENT)
        options = node_options(self.options)
        nodes = self.caches.nodes
        return node.NodeController(client, self.clouds, nodes, recorder, options, self.time, self.registry).parts()

    def _lifecycle(self, client: Client) -> list[Leading]:
        recorder = self.recorders.get(lifecycle.COMPONENT)
        options, nodes = lifecycle_options(self.options), self.caches.nodes
        made = lifecycle.LifecycleController(client, self.clouds, nodes, recorder, options, self.time, self.registry)
        return made.parts()

    def _service(self, client: Client) -> list[Leading]:
        made = service.ServiceController(
            client,
            self.clouds,
            self.caches.services,
            self.caches.nodes,
            self.caches.slices,
            self.recorders.get(SERVICE_COMPONENT),
            service_options(self.options),
            self.time,
            self.registry,
        )
        return made.parts()

    def _route(self, client: Client) -> list[Leading]:
        recorder, options = self.recorders.get(ROUTE_COMPONENT), route_options(self.options)
        made = route.RouteController(
            client, self.clouds, self.caches.nodes, recorder, options, self.time, self.registry
        )
        return made.parts()
