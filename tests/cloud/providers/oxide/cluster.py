"""A cluster on the simulated Oxide cloud: a namespace and nodes on an API server, the service controller, the provider.

Everything is the manager's own: caches, queue, events, patches. Only the fail-over delay may be shortened.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from prometheus_client import CollectorRegistry
from tests.contract.proxy import ValidatingProxy
from tests.waiting import until

from bedplate.api import core, discovery, resources
from bedplate.api.names import FINALIZER_LOAD_BALANCER
from bedplate.cloud.controllers.service import ServiceController, ServiceOptions
from bedplate.cloud.providers.oxide import ownership, provider
from bedplate.cloud.registry import Setting
from bedplate.cloud.routing import Clouds
from bedplate.core import clock, errors
from bedplate.kube import Client
from bedplate.kube.options import PatchType
from bedplate.runtime.cache import Cache
from bedplate.runtime.events import EventRecorder
from bedplate.runtime.reflector import Reflector
from bedplate.sim.clouds import OxideCloud

SERVICES, NODES, SLICES, EVENTS = resources.SERVICES, resources.NODES, resources.ENDPOINT_SLICES, resources.EVENTS
LABEL = "tests.bedplate.dev/oxide"


class Cluster:
    """One namespace, its nodes, and a manager that may be stopped and started again."""

    def __init__(self, client: Client, namespace: str, cloud: OxideCloud, proxy: ValidatingProxy) -> None:
        self.client, self.namespace, self.cloud, self.proxy = client, namespace, cloud, proxy
        self.timeout_s = 30.0
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """A new process: caches and provider of its own, nothing remembered."""
        services: Cache[core.Service] = Cache()
        nodes: Cache[core.Node] = Cache()
        slices: Cache[discovery.EndpointSlice] = Cache()
        recorder = EventRecorder(self.client, "service-controller")
        registry = CollectorRegistry()
        one = provider.create(
            Setting(
                config=None,
                environ={
                    "OXIDE_HOST": self.proxy.url,
                    "OXIDE_TOKEN": self.cloud.token,
                    "OXIDE_PROJECT": self.cloud.project,
                },
                timeout_s=self.timeout_s,
                cluster_name="prod",
                nodes=nodes,
                services=services,
                recorder=recorder,
                cluster_id=lambda: f"cluster-{self.namespace}",
                registry=registry,
            )
        )
        options = ServiceOptions(cluster_name="prod", lb_failover_delay_s=0.1, cloud_api_timeout_s=self.timeout_s)
        controller = ServiceController(
            self.client, Clouds([one]), services, nodes, slices, recorder, options, clock.SystemClock(), registry
        )
        loops: list[Any] = [
            Reflector(self.client, SERVICES, services, namespace=self.namespace),
            Reflector(self.client, NODES, nodes, label_selector=f"{LABEL}={self.namespace}"),
            Reflector(self.client, SLICES, slices, namespace=self.namespace),
            recorder,
            *controller.parts(),
        ]
        self._running = asyncio.create_task(_together(loops, one))
        await asyncio.sleep(0)

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
            self._running = None

    async def node(self, name: str, *, provider_id: str | None = None, **machine: Any) -> None:
        """A Node and, unless its provider ID is given, its instance."""
        full = f"{self.namespace}-{name}"
        if provider_id is None:
            found = self.cloud.add(full, **machine)
            provider_id, addresses = found.provider_id, found.addresses
        else:
            addresses = ("10.9.9.9",)
        spec = {"providerID": provider_id} if provider_id else {}
        await self.client.create(
            NODES.raw(), {"metadata": {"name": full, "labels": {LABEL: self.namespace}}, "spec": spec}
        )
        shown = [{"type": "InternalIP", "address": address} for address in addresses]
        await self._node_status(full, {"addresses": shown})
        await self.ready(name, True)

    async def ready(self, name: str, ready: bool) -> None:
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": clock.rfc3339(_now())}
        await self._node_status(f"{self.namespace}-{name}", {"conditions": [condition]})

    async def _node_status(self, full: str, status: dict[str, Any]) -> None:
        await self.client.patch(NODES, full, {"status": status}, type=PatchType.STRATEGIC, subresource="status")

    async def create(self, name: str, *, annotations: dict[str, str] | None = None, **spec: Any) -> None:
        body = {
            "metadata": {"name": name, "annotations": annotations or {}},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], **spec},
        }
        await self.client.create(SERVICES.raw(), body, self.namespace)

    async def annotate(self, name: str, annotations: dict[str, str | None]) -> None:
        await self.client.patch(SERVICES, name, {"metadata": {"annotations": annotations}}, self.namespace)

    async def service(self, name: str) -> core.Service:
        return await self.client.get(SERVICES, name, self.namespace)

    async def ingress(self, name: str) -> list[tuple[str, str | None]]:
        return [(one.ip, one.ip_mode) for one in (await self.service(name)).status.load_balancer.ingress]

    async def reasons(self, name: str) -> list[str]:
        found = (await self.client.list(EVENTS, self.namespace)).items
        return [one.reason for one in found if one.involved_object.name == name]

    def ips(self, name: str) -> list[dict[str, Any]]:
        """The floating IPs whose record names that Service of this namespace."""
        self.cloud.agenda.run()
        found = []
        for row in self.cloud.floating_ips:
            record = ownership.parse(row.data["description"])
            if record is not None and (record.owner.namespace, record.owner.name) == (self.namespace, name):
                found.append(dict(row.data))
        return found

    def holder(self, name: str) -> str:
        made = self.ips(name)
        if len(made) != 1 or not made[0]["instance_id"]:
            return ""
        return self.cloud.get(made[0]["instance_id"]).name.removeprefix(f"{self.namespace}-")

    async def served(self, name: str, *, by: str = "") -> list[tuple[str, str | None]]:
        """Wait until the Service publishes the address it has, and the node that has it; what it publishes."""

        async def is_so() -> bool:
            holder, shown = self.holder(name), await self.ingress(name)
            if not holder or not shown or (by and holder != by):
                return False
            private = self.cloud.get(f"{self.namespace}-{holder}").addresses
            return [ip for ip, _ in shown] == [self.ips(name)[0]["ip"], *private]

        await until(is_so, f"{name} is served by {by or 'a node'}")
        return await self.ingress(name)

    async def gone(self, name: str) -> None:
        async def is_so() -> bool:
            try:
                await self.service(name)
            except errors.NotFound:
                return True
            return False

        await until(is_so, f"{name} is gone")

    async def clean(self) -> None:
        """Nothing of ours may hold the namespace, whatever state the test ended in."""
        await self.stop()
        for service in (await self.client.list(SERVICES, self.namespace)).items:
            if FINALIZER_LOAD_BALANCER in service.metadata.finalizers:
                await self.client.patch(SERVICES, service.name, {"metadata": {"finalizers": None}}, self.namespace)
        for node in (await self.client.list(NODES, label_selector=f"{LABEL}={self.namespace}")).items:
            await self.client.delete(NODES, node.name)


async def _together(loops: list[Any], one: provider.Oxide) -> None:
    try:
        async with asyncio.TaskGroup() as tasks:
            for loop in loops:
                tasks.create_task(loop.run())
    finally:
        await one.close()


def _now() -> Any:
    return clock.SystemClock().now()


@contextlib.asynccontextmanager
async def cluster(client: Client, namespace: str, **cloud: Any) -> AsyncIterator[Cluster]:
    async with OxideCloud(**cloud) as simulated, ValidatingProxy(simulated.url, "oxide") as proxy:
        made = Cluster(client, namespace, simulated, proxy)
        try:
            yield made
        finally:
            await made.clean()
        proxy.assert_clean()
