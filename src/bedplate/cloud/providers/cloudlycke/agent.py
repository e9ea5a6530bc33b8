"""The load balancer's agent on a node: carries addresses that the manager has given out, one node each.

In: Services, this machine's Node, EndpointSlices. Out: addresses on this machine (`wire`), where kube-proxy sends what
arrives for them on to the endpoints; and one Lease for each address, which says who carries it. The agents of all
nodes are candidates for every address; none asks the manager. When the carrier dies, is cut off or hangs, its lease
runs out, its kernel drops the address, and another agent takes both. See docs/designs/0005-cloudlycke-balancer.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from bedplate.api import core, discovery, names, resources
from bedplate.cloud import routing
from bedplate.cloud.controllers import targets
from bedplate.cloud.providers.cloudlycke import config
from bedplate.cloud.providers.cloudlycke import pool as pools
from bedplate.cloud.providers.cloudlycke.provider import Cloudlycke
from bedplate.cloud.providers.cloudlycke.wire import Wire
from bedplate.cloud.registry import Setting
from bedplate.core import clock, errors, logging
from bedplate.core.tasks import TaskGroup
from bedplate.kube.client import Client
from bedplate.runtime.cache import Cache, Change
from bedplate.runtime.leaderelection import Elector, LeadershipLost, Timing
from bedplate.runtime.manager import Manager

__all__ = ["TIMING", "Agent", "assemble", "lease_name", "wanted"]

log = logging.get_logger("cloud.cloudlycke.agent")

TIMING = Timing(lease_s=10.0, renew_s=6.0, retry_s=1.0)
_PERIOD_S = 1.0
_ANNOUNCED_AT_FIRST = 3
_ANNOUNCED_EVERY = 15


def lease_name(address: pools.Address) -> str:
    """The Lease that says who carries an address."""
    return f"cloudlycke-lb-{str(address).replace('.', '-')}"


def wanted(
    services: Iterable[core.Service],
    slices: Iterable[discovery.EndpointSlice],
    node: core.Node | None,
    pool: pools.Network,
) -> dict[pools.Address, str]:
    """The addresses this node may carry, each with its Service: those our manager has published, if the node is one
    of its load balancers' targets; where the traffic policy is Local, only with a ready endpoint on this node."""
    ours = routing.Clouds([Cloudlycke(Setting(None, {}), config.Config())])
    if node is None or not targets.verdict(node, config.SCHEME, ours.place).is_target:
        return {}
    local = {
        key
        for slice_ in slices
        if node.name in targets.nodes_with_endpoints([slice_])
        for key in targets.service_of_slice(slice_)
    }
    addresses: dict[pools.Address, str] = {}
    for service in services:
        key = f"{service.namespace}/{service.name}"
        is_ours = names.FINALIZER_LOAD_BALANCER in service.metadata.finalizers and not service.metadata.is_deleting
        address = pools.published(service, pool) if is_ours else None
        if address is not None and (service.spec.external_traffic_policy != "Local" or key in local):
            addresses[address] = key
    return addresses


class Agent:
    """One node's agent."""

    name = "cloudlycke-lb-agent"

    def __init__(
        self,
        client: Client,
        node_name: str,
        pool: pools.Network,
        wire: Wire,
        *,
        services: Cache[core.Service],
        nodes: Cache[core.Node],
        slices: Cache[discovery.EndpointSlice],
        namespace: str,
        timing: Timing = TIMING,
        time: clock.Clock | None = None,
    ) -> None:
        self._client = client
        self._node_name = node_name
        self._pool = pool
        self._wire = wire
        self._services = services
        self._nodes = nodes
        self._slices = slices
        self._namespace = namespace
        self._timing = timing
        self._time = time if time is not None else clock.SystemClock()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Carry what this node may carry, until cancelled; then release all of it."""
        for cache in (self._services, self._nodes, self._slices):
            await cache.synced.wait()
            cache.on_change(self._note)
        running: dict[pools.Address, asyncio.Task[None]] = {}
        # What an earlier process left without a lease would answer for an address of another Service.
        self._drop(self._wire.held())
        async with TaskGroup() as tasks:
            while True:
                self._changed.clear()
                allowed = wanted(self._services, self._slices, self._nodes.get(self._node_name), self._pool)
                reachable = {address for address in allowed if self._wire.reaches(address)}
                for address in running.keys() - reachable:
                    await _stop(running.pop(address))
                for address in reachable - running.keys():
                    running[address] = tasks.create_task(self._contend(address, allowed[address]))
                await self._changed.wait()

    def _note(self, change: Change[object]) -> None:
        self._changed.set()

    async def _contend(self, address: pools.Address, service: str) -> None:
        """Stand for the address again and again; carry it while its lease is ours."""
        while True:
            elector = Elector(
                self._client,
                lease_name(address),
                self._namespace,
                own=self._node_name,
                timing=self._timing,
                time=self._time,
            )
            try:
                await elector.run(lambda elector=elector: self._carry(address, service, elector))  # type: ignore[misc]
            except LeadershipLost as err:
                log.warning("agent.lost", address=str(address), service=service, error=str(err))
            await self._time.sleep(self._timing.retry_s)

    async def _carry(self, address: pools.Address, service: str, elector: Elector) -> None:
        log.info("agent.carries", address=str(address), service=service, node=self._node_name)
        # The kernel is told while the lease is certain, that is until `renew_s` after the last renewal at the latest;
        # so it has dropped the address before anybody else may take the lease. One second is for its own rounding.
        life_s = max(1, int(self._timing.lease_s - self._timing.renew_s) - 1)
        rounds = 0
        try:
            while True:
                if elector.is_leading:
                    self._wire.hold(address, life_s)
                    if rounds < _ANNOUNCED_AT_FIRST or rounds % _ANNOUNCED_EVERY == 0:
                        self._wire.announce(address)
                    rounds += 1
                await self._time.sleep(_PERIOD_S)
        finally:
            self._drop([address])
            log.info("agent.released", address=str(address), service=service, node=self._node_name)

    def _drop(self, addresses: Iterable[pools.Address]) -> None:
        for address in addresses:
            try:
                self._wire.release(address)
            except errors.BedplateError as err:
                # The kernel drops it a moment later all the same.
                log.warning("agent.release_failed", address=str(address), error=str(err))


def assemble(client: Client, node_name: str, settings: config.Config, wire: Wire, namespace: str) -> Manager:
    """The caches an agent needs, and the agent; run it."""
    manager = Manager(client)
    agent = Agent(
        client,
        node_name,
        settings.load_balancer.network,
        wire,
        services=manager.cache(resources.SERVICES),
        nodes=manager.cache(resources.NODES, field_selector=f"metadata.name={node_name}"),
        slices=manager.cache(resources.ENDPOINT_SLICES),
        namespace=namespace,
    )
    manager.add(agent)
    return manager


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
