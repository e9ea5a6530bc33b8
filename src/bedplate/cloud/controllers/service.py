"""The service controller: Services of type LoadBalancer get a load balancer and lose it again.

In: caches of Services, Nodes and EndpointSlices. Out: keys on one queue, worked off by `ServiceSync`. What brings a
Service onto it:

    Services        new and wanted; changed in a way that matters; to be cleaned up; gone though we made one for it
    Nodes           a change of the target set, or of readiness where the provider cares, makes a pass over all
                    Services we know; those whose load balancer knows other targets are queued
    EndpointSlices  other nodes have endpoints of a Service whose traffic must stay local
    every 30 s      whatever is not as it should be and does not wait for a retry; every 100 s a pass over the nodes
    one gone        Services that failed: they may have lacked just that address or port

With several providers, see `service_plan` for whose a Service is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from bedplate.api import core, discovery, identity
from bedplate.cloud.controllers import service_plan as plans
from bedplate.cloud.controllers.dispatch import Dispatcher
from bedplate.cloud.controllers.service_metrics import ServiceMetrics
from bedplate.cloud.controllers.service_sync import ServiceSync
from bedplate.cloud.controllers.targets import BY_SERVICE, TargetBook, is_local, nodes_with_endpoints, service_of_slice
from bedplate.cloud.routing import Clouds
from bedplate.core import clock, logging
from bedplate.core.metrics import shared
from bedplate.core.tasks import TaskGroup
from bedplate.kube.client import Client
from bedplate.runtime.cache import Cache, Change
from bedplate.runtime.leaderelection import Recorder
from bedplate.runtime.manager import Leading
from bedplate.runtime.workqueue import WorkQueue

__all__ = ["ServiceController", "ServiceOptions"]

log = logging.get_logger("cloud.service")
SERVICE_RESYNC_S = 30.0
NODE_RESYNC_S = 100.0
NODE_BATCH_S = 0.25
"""Changes of nodes that come together make one pass."""
SLICES_WAIT_S = 10.0
CALLS_PER_OPERATION = 4
"""How many cloud calls' time one operation on a load balancer may take."""
_ALL_NODES = "nodes"


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """The manager's flags that this controller reads."""

    cluster_name: str = "kubernetes"
    concurrent_service_syncs: int = 4
    load_balancer_class: tuple[str, ...] = ()
    load_balancer_default_class: bool = True
    lb_failover_delay_s: float = 15.0
    cloud_api_timeout_s: float = 30.0


@dataclass(slots=True)
class _Pass:
    """The Services that one pass over the nodes has queued and that are not done yet."""

    started: float
    left: set[str] = field(default_factory=set)


class ServiceController:
    """Runs while this process leads: `run` ends with the task that calls it."""

    name = "service-lb-controller"

    def __init__(
        self,
        client: Client,
        clouds: Clouds,
        services: Cache[core.Service],
        nodes: Cache[core.Node],
        endpoint_slices: Cache[discovery.EndpointSlice],
        recorder: Recorder,
        options: ServiceOptions,
        time: clock.Clock,
        registry: CollectorRegistry,
    ) -> None:
        balancers = {cloud.name: cloud.load_balancers for cloud in clouds if cloud.load_balancers is not None}
        self.ownership = plans.Ownership(
            tuple(balancers),
            plans.parse_classes(options.load_balancer_class),
            options.load_balancer_default_class,
        )
        self.books = {
            name: TargetBook(
                name,
                needs_ready=balancer.needs_ready_nodes,
                delay_s=options.lb_failover_delay_s,
                place=clouds.place,
                time=time,
            )
            for name, balancer in balancers.items()
        }
        endpoint_slices.add_indexes({BY_SERVICE: service_of_slice})
        self._services, self._nodes, self._slices = services, nodes, endpoint_slices
        self._time = time
        self._metrics = shared(registry, ServiceMetrics)
        self.sync = ServiceSync(
            client,
            balancers,
            self.books,
            services,
            endpoint_slices,
            recorder,
            ownership=self.ownership,
            cluster=options.cluster_name,
            timeout_s=options.cloud_api_timeout_s * CALLS_PER_OPERATION,
            metrics=self._metrics,
            time=time,
        )
        self._dispatcher = Dispatcher(
            "service", self._work, self._lane, width=options.concurrent_service_syncs, time=time, registry=registry
        )
        self._node_queue: WorkQueue[str] = WorkQueue("node", time=time, registry=registry)
        self._passes: list[_Pass] = []

    def parts(self) -> list[Leading]:
        """What to run while leading: nothing where no provider has load balancers."""
        if not self.books:
            log.info("service.unsupported", hint="no cloud provider of this manager has load balancers")
            return []
        return [self]

    async def run(self) -> None:
        """Work until cancelled."""
        for cache in (self._services, self._nodes):
            await cache.synced.wait()
        await self._await_slices()
        # Nodes first: the first Service must find its targets.
        self._nodes.on_change(self._node_changed)
        self._slices.on_change(self._slice_changed)
        self._services.on_change(self._service_changed)
        try:
            async with TaskGroup() as tasks:
                tasks.create_task(self._dispatcher.run())
                tasks.create_task(self._work_on_nodes())
                tasks.create_task(self._every(SERVICE_RESYNC_S, self._resync))
                tasks.create_task(self._every(NODE_RESYNC_S, lambda: self._node_queue.add(_ALL_NODES)))
        finally:
            await self._node_queue.shut_down()

    async def _await_slices(self) -> None:
        """Give EndpointSlices a moment to arrive. Only Services with a Local policy need them, and the originals' roles
        do not allow to read them, with which everything else must work, and without delay."""
        if not any(is_local(service) for service in self._services):
            return
        waits = [
            asyncio.ensure_future(self._slices.synced.wait()),
            asyncio.ensure_future(self._time.sleep(SLICES_WAIT_S)),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        if not self._slices.synced.is_set():
            log.warning("service.no_endpointslices", hint="Services with externalTrafficPolicy Local wait for them")

    async def _every(self, period_s: float, action: Callable[[], None]) -> None:
        while True:
            await self._time.sleep(period_s)
            action()

    # Services

    def _service_changed(self, change: Change[core.Service]) -> None:
        if self._concerns_us(change):
            self._dispatcher.queue.add(change.key)

    def _concerns_us(self, change: Change[core.Service]) -> bool:
        old, new = change.old, change.new
        is_known = change.key in self.sync.memories
        if new is None:
            return is_known
        if plans.needs_cleanup(new) or (is_known and new.metadata.is_deleting):
            return True
        if old is None:
            return bool(self.ownership.owner(new).provider)
        return bool(plans.update_reason(old, new, self.ownership))

    def _resync(self) -> None:
        """Queue whatever is not as it should be, except what failed and waits for its time."""
        for service in self._services:
            key = identity.key_of(service)
            if self._dispatcher.is_waiting(key):
                continue
            if any(not isinstance(step, plans.Nothing | plans.Forget) for step in self.sync.plan(key)):
                self._dispatcher.queue.add(key)

    def _lane(self, key: str) -> str:
        memory, service = self.sync.memories.get(key), self._services.get(key)
        if memory is not None:
            return memory.provider
        return self.ownership.owner(service).provider if service is not None else ""

    async def _work(self, key: str) -> float | None:
        had_one = key in self.sync.memories
        try:
            return await self.sync.sync(key)
        finally:
            self._finish(key)
            if had_one and key not in self.sync.memories:
                self._wake_waiting()

    def _wake_waiting(self) -> None:
        """An address or a port is free again: it may be the one that a failed Service waits for."""
        for key in self._dispatcher.waiting():
            if key in self.sync.memories:
                self._dispatcher.queue.add(key)

    # Nodes and endpoints

    def _node_changed(self, change: Change[core.Node]) -> None:
        # Every book must see it: no short cut.
        matters = [book.observe(change) for book in self.books.values()]
        if any(matters):
            self._node_queue.add(_ALL_NODES)
        elif change.new is not None and not change.new.is_ready:
            self._await_next_due()

    def _slice_changed(self, change: Change[discovery.EndpointSlice]) -> None:
        before = nodes_with_endpoints([change.old] if change.old is not None else [])
        after = nodes_with_endpoints([change.new] if change.new is not None else [])
        if before == after:
            return
        for obj in (change.old, change.new):
            for key in service_of_slice(obj) if obj is not None else ():
                if key in self.sync.memories and self.sync.is_behind(key):
                    self._dispatcher.queue.add(key)

    async def _work_on_nodes(self) -> None:
        while True:
            key = await self._node_queue.get()
            try:
                await self._time.sleep(NODE_BATCH_S)
                self.pass_over_nodes()
            finally:
                self._node_queue.done(key)

    def pass_over_nodes(self) -> list[str]:
        """Queue every Service whose load balancer knows other targets than there are."""
        for book in self.books.values():
            book.expire()
        behind = [key for key in self.sync.memories if self.sync.is_behind(key)]
        if behind:
            log.v(2).info("service.nodes_changed", services=len(behind))
            self._passes.append(_Pass(self._time.monotonic(), set(behind)))
        for key in behind:
            self._dispatcher.queue.add(key)
        self._await_next_due()
        return behind

    def _await_next_due(self) -> None:
        due = [left for book in self.books.values() if (left := book.next_due_s()) is not None]
        if due:
            self._node_queue.add_after(_ALL_NODES, min(due))

    def _finish(self, key: str) -> None:
        for pass_ in self._passes:
            pass_.left.discard(key)
        for pass_ in [pass_ for pass_ in self._passes if not pass_.left]:
            self._metrics.node_syncs.observe(self._time.monotonic() - pass_.started)
            self._passes.remove(pass_)
