"""A cloud for tests of the service and the route controller: what it holds, what it was asked, how it shall fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bedplate.api import core
from bedplate.api.meta import ObjectReference
from bedplate.cloud.interface import Address, Instances, LegacyInstances, Route, Target
from bedplate.cloud.routing import Clouds


@dataclass(slots=True)
class Balancer:
    """One load balancer of the scripted cloud."""

    uid: str
    address: str
    targets: tuple[Target, ...] = ()

    @property
    def hosts(self) -> list[str]:
        return [target.node.name for target in self.targets]


Step = Exception | Callable[[], None]


class ScriptedBalancers:
    """Load balancers in memory. `script[verb]` holds failures to raise, one per call; `hanging` names Services whose
    calls never end; `calls` is what was asked, as `(verb, namespace/name)`."""

    def __init__(self, *, needs_ready_nodes: bool = False) -> None:
        self.needs_ready_nodes = needs_ready_nodes
        self.held: dict[str, Balancer] = {}
        self.calls: list[tuple[str, str]] = []
        self.script: dict[str, list[Step]] = {}
        self.hanging: set[str] = set()
        self.on_call: Callable[[str, core.Service], None] = lambda verb, service: None
        self.updates_status = False
        self._next = 0

    def name(self, cluster: str, service: core.Service) -> str:
        return f"{cluster}-{service.namespace}-{service.name}"

    def count(self, verb: str, key: str = "") -> int:
        return sum(1 for asked, of in self.calls if asked == verb and (not key or of == key))

    def of(self, key: str) -> Balancer:
        return self.held[key]

    def holders(self) -> Counter[str]:
        return Counter(one.uid for one in self.held.values())

    async def get(self, cluster: str, service: core.Service) -> core.LoadBalancerStatus | None:
        key = await self._asked("get", service)
        found = self.held.get(key)
        return _status(found) if found is not None and found.uid == service.metadata.uid else None

    async def ensure(
        self, cluster: str, service: core.Service, targets: Sequence[Target]
    ) -> core.LoadBalancerStatus | None:
        key = await self._asked("ensure", service)
        found = self.held.get(key)
        if found is None or found.uid != service.metadata.uid:
            assert found is None, f"{key} was created again while the load balancer of {found.uid} was there"
            self._next += 1
            found = self.held[key] = Balancer(service.metadata.uid, f"192.0.2.{self._next % 250 + 1}")
        found.targets = tuple(targets)
        # As a cloud that did it and then lost the connection.
        self._fail("ensured")
        return _status(found)

    async def update(
        self, cluster: str, service: core.Service, targets: Sequence[Target]
    ) -> core.LoadBalancerStatus | None:
        key = await self._asked("update", service)
        found = self.held[key]
        found.targets = tuple(targets)
        if not self.updates_status:
            return None
        ready = [one.node.name for one in found.targets if one.is_ready and one.has_endpoints]
        return core.LoadBalancerStatus((core.LoadBalancerIngress(hostname=f"{(ready or ['none'])[0]}.example"),))

    async def delete(self, cluster: str, service: core.Service) -> None:
        key = await self._asked("delete", service)
        found = self.held.get(key)
        if found is not None and found.uid == service.metadata.uid:
            del self.held[key]

    async def _asked(self, verb: str, service: core.Service) -> str:
        key = f"{service.namespace}/{service.name}"
        self.calls.append((verb, key))
        self.on_call(verb, service)
        if key in self.hanging:
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        self._fail(verb)
        return key

    def _fail(self, verb: str) -> None:
        steps = self.script.get(verb)
        step = steps.pop(0) if steps else None
        if isinstance(step, Exception):
            raise step
        if step is not None:
            step()


class StickyBalancers(ScriptedBalancers):
    """Each load balancer sits on the first node that can serve, and stays there as long as that can."""

    def __init__(self) -> None:
        super().__init__(needs_ready_nodes=True)

    def carriers(self, service: core.Service) -> frozenset[str]:
        found = self.held.get(f"{service.namespace}/{service.name}")
        able = [one.node.name for one in found.targets if one.is_ready and one.has_endpoints] if found else []
        return frozenset(able[:1])


def _status(balancer: Balancer) -> core.LoadBalancerStatus:
    return core.LoadBalancerStatus((core.LoadBalancerIngress(ip=balancer.address),))


class ScriptedRoutes:
    """Routes in memory; `failing` holds what to raise per destination, `listing` what listing raises."""

    def __init__(self, *routes: Route) -> None:
        self.held = list(routes)
        self.calls: list[tuple[str, str]] = []
        self.failing: dict[str, list[Exception]] = {}
        self.listing: list[Exception] = []
        self.running = 0
        self.most_running = 0
        self.enables_addresses = False

    async def list(self, cluster: str) -> Sequence[Route]:
        self.calls.append(("list", cluster))
        if self.listing:
            raise self.listing.pop(0)
        return tuple(self.held)

    async def create(self, cluster: str, name_hint: str, route: Route) -> None:
        await self._work("create", route)
        addresses = self.enables_addresses
        self.held.append(
            Route(name_hint, route.target_node, route.destination_cidr, addresses, route.target_node_addresses, False)
        )

    async def delete(self, cluster: str, route: Route) -> None:
        await self._work("delete", route)
        self.held.remove(route)

    async def _work(self, verb: str, route: Route) -> None:
        self.calls.append((verb, route.destination_cidr))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(0)
            if self.failing.get(route.destination_cidr):
                raise self.failing[route.destination_cidr].pop(0)
        finally:
            self.running -= 1


@dataclass
class ScriptedCloud:
    """A provider with what a test gives it."""

    name: str = "scripted"
    schemes: tuple[str, ...] = ("scripted",)
    has_cluster_id: bool = True
    instances: Instances | None = None
    legacy: LegacyInstances | None = None
    load_balancers: ScriptedBalancers | None = None
    routes: ScriptedRoutes | None = None

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def is_foreign(self, provider_id: str) -> str:
        return "it is of another organisation" if "/other-org/" in provider_id else ""

    async def check_ready(self) -> None: ...


def clouds(*providers: ScriptedCloud) -> Clouds:
    return Clouds(providers)


@dataclass
class Told:
    """Collects events instead of writing them."""

    events: list[tuple[str, str, str, str]] = field(default_factory=list)
    """(object name, type, reason, message)"""

    def event(self, regarding: ObjectReference, type: str, reason: str, message: str) -> None:
        self.events.append((regarding.name, type, reason, message))

    def reasons(self, name: str = "") -> list[str]:
        return [reason for of, _, reason, _ in self.events if not name or of == name]

    def messages(self, reason: str) -> list[str]:
        return [message for _, _, told, message in self.events if told == reason]


def internal(address: str) -> Address:
    return Address("InternalIP", address)
