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
from bedplate.cloud.manager.connection import controller_client
from bedplate.cloud.manager.leading import Started
from bedplate.cloud.manager.options import Options
from bedplate.cloud.routing import Clouds
from bedplate.core import clock
from bedplate.kube.client import Client
from bedplate.program.clients import Clients
from bedplate.runtime.cache import Cache
from bedplate.runtime.events import Recorders
from bedplate.runtime.manager import Leading

__all__ = ["Caches", "Wiring", "event_account", "lifecycle_options", "node_options", "route_options", "service_options"]

NODE_ACCOUNT, SERVICE_ACCOUNT, ROUTE_ACCOUNT = "node-controller", "service-controller", "route-controller"
SERVICE_COMPONENT, ROUTE_COMPONENT = "service-controller", "route_controller"


def event_account(options: Options) -> str:
    """The service account that writes the Events of all controllers, at one rate: that of the first one that runs."""
    enabled = selection.enabled_controllers(options.generic.controllers)[0]
    if enabled & {selection.NODE, selection.LIFECYCLE}:
        return NODE_ACCOUNT
    return SERVICE_ACCOUNT if selection.SERVICE in enabled else ROUTE_ACCOUNT


@dataclass(frozen=True, slots=True)
class Caches:
    """What controllers and providers read. A cache is filled only when something reads it."""

    nodes: Cache[core.Node] = field(default_factory=Cache)
    services: Cache[core.Service] = field(default_factory=Cache)
    slices: Cache[discovery.EndpointSlice] = field(default_factory=Cache)


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
        mass_deletion_hold_s=flags.mass_deletion_hold,
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
        """Whether load balancers are kept for Services."""
        return selection.SERVICE in self.enabled and any(cloud.load_balancers is not None for cloud in self.clouds)

    async def controllers(self, clients: Clients) -> list[Started]:
        """The controllers that were asked for and have something to do, in the order of their start."""
        controllers: list[Started] = []
        if self.enabled & {selection.NODE, selection.LIFECYCLE}:
            client = await self._client(clients, NODE_ACCOUNT)
            if selection.NODE in self.enabled:
                controllers.append(Started(selection.NODE, self._node(client)))
            if selection.LIFECYCLE in self.enabled:
                controllers.append(Started(selection.LIFECYCLE, self._lifecycle(client)))
        if selection.SERVICE in self.enabled:
            client = await self._client(clients, SERVICE_ACCOUNT)
            controllers.append(Started(selection.SERVICE, self._service(client)))
        if selection.ROUTE in self.enabled:
            client = await self._client(clients, ROUTE_ACCOUNT)
            controllers.append(Started(selection.ROUTE, self._route(client)))
        return [controller for controller in controllers if controller.parts]

    async def _client(self, clients: Clients, account: str) -> Client:
        return await controller_client(clients, self.options, account)

    def _node(self, client: Client) -> list[Leading]:
        recorder = self.recorders.get(node.COMPONENT)
        options = node_options(self.options)
        nodes = self.caches.nodes
        controller = node.NodeController(client, self.clouds, nodes, recorder, options, self.time, self.registry)
        recorder.give_way_to(controller.is_behind)
        return controller.parts()

    def _lifecycle(self, client: Client) -> list[Leading]:
        recorder = self.recorders.get(lifecycle.COMPONENT)
        options, nodes = lifecycle_options(self.options), self.caches.nodes
        controller = lifecycle.LifecycleController(
            client, self.clouds, nodes, recorder, options, self.time, self.registry
        )
        return controller.parts()

    def _service(self, client: Client) -> list[Leading]:
        controller = service.ServiceController(
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
        return controller.parts()

    def _route(self, client: Client) -> list[Leading]:
        recorder, options = self.recorders.get(ROUTE_COMPONENT), route_options(self.options)
        controller = route.RouteController(
            client, self.clouds, self.caches.nodes, recorder, options, self.time, self.registry
        )
        return controller.parts()
