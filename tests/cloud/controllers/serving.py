"""A service controller at work on one namespace and the nodes of one label, with a scripted cloud beside it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

from prometheus_client import CollectorRegistry
from tests.cloud.controllers.balancers import ScriptedBalancers, ScriptedCloud, Told, clouds
from tests.waiting import until

from bedplate.api import core, discovery, resources
from bedplate.api.names import FINALIZER_LOAD_BALANCER
from bedplate.cloud.controllers.service import ServiceController, ServiceOptions
from bedplate.core import clock, errors
from bedplate.kube import Client
from bedplate.kube.options import PatchType
from bedplate.runtime.cache import Cache
from bedplate.runtime.reflector import Reflector

SERVICES, NODES, SLICES = resources.SERVICES, resources.NODES, resources.ENDPOINT_SLICES
LABEL = "tests.bedplate.dev/rig"


class Rig:
    """One namespace of a server, its nodes, a cloud, and a controller that may be stopped and started again."""

    def __init__(self, client: Client, namespace: str, *providers: ScriptedCloud, **options: Any) -> None:
        self.client = client
        self.namespace = namespace
        if not providers:
            providers = (ScriptedCloud(load_balancers=ScriptedBalancers()),)
        self.providers = providers
        self.options = ServiceOptions(**options)
        self.told = Told()
        self.time: clock.Clock = clock.SystemClock()
        self.services: Cache[core.Service] = Cache()
        self.nodes: Cache[core.Node] = Cache()
        self.slices: Cache[discovery.EndpointSlice] = Cache()
        self.registry = CollectorRegistry()
        self.controller: ServiceController | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def balancers(self) -> ScriptedBalancers:
        found = self.providers[0].load_balancers
        assert found is not None
        return found

    async def start(self) -> None:
        """A new process: caches of its own, nothing remembered."""
        self.services, self.nodes, self.slices, self.registry = Cache(), Cache(), Cache(), CollectorRegistry()
        self.controller = ServiceController(
            self.client,
            clouds(*self.providers),
            self.services,
            self.nodes,
            self.slices,
            self.told,
            self.options,
            self.time,
            self.registry,
        )
        loops: Iterable[Any] = (
            Reflector(self.client, SERVICES, self.services, namespace=self.namespace),
            Reflector(self.client, NODES, self.nodes, label_selector=f"{LABEL}={self.namespace}"),
            Reflector(self.client, SLICES, self.slices, namespace=self.namespace),
            *self.controller.parts(),
        )
        self._running = asyncio.ensure_future(_together(loops))
        await asyncio.sleep(0)

    async def stop(self) -> None:
        """As kill -9 would: whatever is in hand is dropped."""
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
            self._running = None

    def key(self, name: str) -> str:
        return f"{self.namespace}/{name}"

    async def create(self, name: str, *, metadata: dict[str, Any] | None = None, **spec: Any) -> None:
        spec = {"type": "LoadBalancer", "ports": [{"port": 80}], **spec}
        await self.client.create(
            SERVICES.raw(), {"metadata": {"name": name, **(metadata or {})}, "spec": spec}, self.namespace
        )

    async def edit(self, name: str, patch: dict[str, Any]) -> None:
        await self.client.patch(SERVICES, name, patch, self.namespace)

    async def delete(self, name: str) -> None:
        await self.client.delete(SERVICES, name, self.namespace)

    async def service(self, name: str) -> core.Service:
        return await self.client.get(SERVICES, name, self.namespace)

    async def is_gone(self, name: str) -> bool:
        try:
            await self.service(name)
        except errors.NotFound:
            return True
        return False

    async def address(self, name: str) -> str:
        """The address the Service publishes, once it does."""

        async def ingress() -> tuple[core.LoadBalancerIngress, ...]:
            return (await self.service(name)).status.load_balancer.ingress

        first = (await until(ingress, f"{name} has an address"))[0]
        return first.ip or first.hostname

    async def vanishes(self, name: str) -> None:
        await until(lambda: self.is_gone(name), f"{name} is gone")

    async def node(self, name: str, *, ready: bool = True, labels: dict[str, str] | None = None, **spec: Any) -> str:
        full = f"{self.namespace}-{name}"
        body = {
            "metadata": {"name": full, "labels": {LABEL: self.namespace, **(labels or {})}},
            "spec": {"providerID": f"scripted://{full}", **spec},
        }
        await self.client.create(NODES.raw(), body)
        await self.ready(name, ready)
        return full

    async def ready(self, name: str, ready: bool) -> None:
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": clock.rfc3339(self.time.now())}
        await self.client.patch(
            NODES,
            f"{self.namespace}-{name}",
            {"status": {"conditions": [condition]}},
            type=PatchType.STRATEGIC,
            subresource="status",
        )

    async def edit_node(self, name: str, patch: dict[str, Any]) -> None:
        await self.client.patch(NODES, f"{self.namespace}-{name}", patch)

    async def delete_node(self, name: str) -> None:
        await self.client.delete(NODES, f"{self.namespace}-{name}")

    def hosts(self, name: str) -> list[str] | None:
        """The nodes behind its load balancer; None before it has one."""
        try:
            hosts = self.balancers.of(self.key(name)).hosts
        except KeyError:
            return None
        return [one.removeprefix(f"{self.namespace}-") for one in hosts]

    async def clean(self) -> None:
        """Nothing of ours may hold the namespace, whatever state the test ended in."""
        await self.stop()
        for service in (await self.client.list(SERVICES, self.namespace)).items:
            if FINALIZER_LOAD_BALANCER in service.metadata.finalizers:
                await self.edit(service.name, {"metadata": {"finalizers": None}})
        for one in (await self.client.list(NODES, label_selector=f"{LABEL}={self.namespace}")).items:
            await self.client.delete(NODES, one.name)


async def _together(loops: Iterable[Any]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for loop in loops:
            tasks.create_task(loop.run())


@contextlib.asynccontextmanager
async def rig(client: Client, namespace: str, *providers: ScriptedCloud, **options: Any) -> AsyncIterator[Rig]:
    made = Rig(client, namespace, *providers, **options)
    try:
        yield made
    finally:
        await made.clean()
