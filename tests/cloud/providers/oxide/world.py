"""An Oxide project for tests: the simulated cloud, the validating proxy before it, and providers that use both.

`QuickClock` makes waiting free: a task that sleeps moves the time on. The cloud's transitions take place in that time.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry
from tests.contract.proxy import ValidatingProxy

from bedplate.api import core, meta
from bedplate.cloud.interface import Target
from bedplate.cloud.providers.oxide import ownership, provider
from bedplate.cloud.registry import Setting
from bedplate.runtime.cache import Cache
from bedplate.sim.clouds import OxideCloud

CLUSTER = "prod"
CLUSTER_ID = "c1a5e4d0-0000-4000-8000-000000000001"


class QuickClock:
    """Time that passes only, and at once, when a task sleeps."""

    def __init__(self) -> None:
        self._now = 1_000.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self._now)

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        self._now += max(0.0, seconds)
        await asyncio.sleep(0)

    def pass_by(self, seconds: float) -> None:
        self._now += seconds


class Recorder:
    """Events, as (reason, message) by Service or Node name."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def event(self, regarding: meta.ObjectReference, type: str, reason: str, message: str) -> None:
        self.events.append((regarding.name, reason, message))

    def reasons(self, name: str = "") -> list[str]:
        return [reason for about, reason, _ in self.events if not name or about == name]


class World:
    """One project, one cluster. `nodes` and `services` are what the manager's caches hold."""

    def __init__(self, cloud: OxideCloud, proxy: ValidatingProxy, time: QuickClock) -> None:
        self.cloud, self.proxy, self.time = cloud, proxy, time
        self.nodes: Cache[core.Node] = Cache()
        self.services: Cache[core.Service] = Cache()
        self.services.synced.set()
        self.recorder = Recorder()
        self.registry = CollectorRegistry()
        self._open: list[provider.Oxide] = []
        self._made = 0

    def provider(self, environ: Mapping[str, str] | None = None, **changes: Any) -> provider.Oxide:
        """A new process, so to speak: it knows nothing of what an earlier one did."""
        env = {"OXIDE_HOST": self.proxy.url, "OXIDE_TOKEN": self.cloud.token, "OXIDE_PROJECT": self.cloud.project}
        settings: dict[str, Any] = {
            "config": None,
            "environ": env | dict(environ or {}),
            "qps": 100_000.0,
            "burst": 100_000,
            "cluster_name": CLUSTER,
            "nodes": self.nodes,
            "services": self.services,
            "recorder": self.recorder,
            "cluster_id": lambda: CLUSTER_ID,
            "time": self.time,
            "registry": CollectorRegistry(),
        }
        made = provider.create(Setting(**{**settings, **changes}))
        self._open.append(made)
        return made

    async def close(self) -> None:
        for one in self._open:
            await one.close()

    # Kubernetes

    def node(self, name: str, *, is_ready: bool = True, has_endpoints: bool = True, **machine: Any) -> Target:
        """A node with its instance, ready to be a target; the instance is made if there is none of that name."""
        row = self.cloud.instance_named(self.cloud.project_id, name)
        found = self.cloud.get(name) if row is not None else self.cloud.add(name, **machine)
        node = core.Node(
            metadata=meta.ObjectMeta(name=name, uid=f"node-{name}"),
            spec=core.NodeSpec(provider_id=found.provider_id),
            status=core.NodeStatus(addresses=tuple(core.NodeAddress("InternalIP", ip) for ip in found.addresses)),
        )
        self.nodes.put(node, "1")
        return Target(node, is_ready, has_endpoints)

    def service(
        self,
        name: str,
        *,
        ports: Sequence[tuple[int, str]] = ((80, "TCP"),),
        namespace: str = "shop",
        annotations: Mapping[str, str] | None = None,
        uid: str = "",
        **spec: Any,
    ) -> core.Service:
        """A Service of type LoadBalancer, in the cache; one of the same name keeps its UID, age and status."""
        old = self.services.get(f"{namespace}/{name}")
        self._made += 1
        made = core.Service(
            metadata=meta.ObjectMeta(
                name=name,
                namespace=namespace,
                uid=uid or (old.metadata.uid if old is not None else str(uuid.uuid4())),
                creation_timestamp=old.metadata.creation_timestamp
                if old is not None
                else datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=self._made),
                annotations=dict(annotations or {}),
            ),
            spec=core.ServiceSpec(
                type="LoadBalancer",
                ports=tuple(core.ServicePort(port=port, protocol=protocol) for port, protocol in ports),
                external_traffic_policy=spec.pop("external_traffic_policy", "Cluster"),
                **spec,
            ),
            status=old.status if old is not None else core.ServiceStatus(),
        )
        self.services.put(made, "1")
        return made

    def publish(self, service: core.Service, status: core.LoadBalancerStatus | None) -> core.Service:
        """What the controller does with a status: the Service has it, with the API server's default mode."""
        entries = status.ingress if status is not None else ()
        ingress = tuple(
            core.LoadBalancerIngress(ip=one.ip, ip_mode=one.ip_mode or "VIP", ports=one.ports) for one in entries
        )
        made = core.Service(
            metadata=service.metadata,
            spec=service.spec,
            status=core.ServiceStatus(load_balancer=core.LoadBalancerStatus(ingress)),
        )
        self.services.put(made, "1")
        return made

    # The cloud

    def ips(self) -> list[Mapping[str, Any]]:
        self.cloud.agenda.run()
        return [row.data for row in self.cloud.floating_ips]

    def ips_of(self, service: core.Service) -> list[Mapping[str, Any]]:
        """Those whose record names this Service."""
        found = []
        for one in self.ips():
            record = ownership.parse(one["description"])
            if record is not None and record.owner.service == service.metadata.uid and record.role != "retained":
                found.append(one)
        return found

    def holder(self, service: core.Service) -> str:
        """The name of the node that has the Service's (only) floating IP; empty when none has it."""
        [one] = self.ips_of(service)
        return self.cloud.get(one["instance_id"]).name if one["instance_id"] else ""

    def calls(self, operation: str = "") -> int:
        return self.cloud.journal.count(operation)


@contextlib.asynccontextmanager
async def world(*, is_checked: bool = True, **cloud: Any) -> AsyncIterator[World]:
    """A world whose every request and answer is held against the vendor's document."""
    time = QuickClock()
    async with OxideCloud(time=time, **cloud) as simulated, ValidatingProxy(simulated.url, "oxide") as proxy:
        made = World(simulated, proxy, time)
        try:
            yield made
        finally:
            await made.close()
        if is_checked:
            proxy.assert_clean()


def record(service: core.Service, *, cluster: str = CLUSTER_ID, role: ownership.Role = "managed", uid: str = "") -> str:
    """The description of a floating IP that belongs to a Service."""
    owner = ownership.Owner(cluster, uid or service.metadata.uid, service.namespace, service.name)
    return ownership.write(ownership.Record(owner, role))


def addresses(status: core.LoadBalancerStatus | None) -> list[str]:
    return [one.ip for one in status.ingress] if status is not None else []
