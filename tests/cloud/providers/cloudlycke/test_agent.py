"""Who may carry an address, and that of several agents exactly one does: on an embedded and a real API server."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest
from tests.waiting import until

from bedplate.api import core, discovery, meta, names, resources
from bedplate.cloud.providers.cloudlycke import agent as agents
from bedplate.core import clock
from bedplate.kube import Client, config
from bedplate.kube.transport import Request, Response
from bedplate.runtime.leaderelection import Timing
from bedplate.runtime.manager import Manager

POOL = ipaddress.IPv4Network("192.168.20.200/29")
FIRST = ipaddress.IPv4Address("192.168.20.200")


def _node(name: str = "a", provider_id: str = "cloudlycke://a", **metadata: Any) -> core.Node:
    return core.Node(metadata=meta.ObjectMeta(name=name, **metadata), spec=core.NodeSpec(provider_id=provider_id))


def _service(address: str = str(FIRST), *, policy: str = "Cluster", finalizers: tuple[str, ...] | None = None) -> Any:
    kept = (names.FINALIZER_LOAD_BALANCER,) if finalizers is None else finalizers
    ingress = (core.LoadBalancerIngress(ip=address),) if address else ()
    return core.Service(
        metadata=meta.ObjectMeta(name="web", namespace="shop", finalizers=kept),
        spec=core.ServiceSpec(type="LoadBalancer", external_traffic_policy=policy),
        status=core.ServiceStatus(load_balancer=core.LoadBalancerStatus(ingress=ingress)),
    )


def _slice(node: str, *, is_ready: bool = True) -> discovery.EndpointSlice:
    return discovery.EndpointSlice(
        metadata=meta.ObjectMeta(name="web-x", namespace="shop", labels={names.LABEL_SERVICE_NAME: "web"}),
        endpoints=(discovery.Endpoint(node_name=node, conditions=discovery.EndpointConditions(ready=is_ready)),),
    )


def test_a_published_address_of_the_pool_is_carried_by_every_target() -> None:
    assert agents.wanted([_service()], [], _node(), POOL) == {FIRST: "shop/web"}


@pytest.mark.parametrize(
    "service",
    [
        _service(""),
        _service("10.0.0.1"),
        _service(finalizers=()),
        core.Service(metadata=meta.ObjectMeta(name="web"), spec=core.ServiceSpec(type="ClusterIP")),
    ],
    ids=["no address", "not of the pool", "not our manager's", "another type"],
)
def test_nothing_else_is_carried(service: core.Service) -> None:
    assert agents.wanted([service], [], _node(), POOL) == {}


@pytest.mark.parametrize(
    "node",
    [
        None,
        _node(provider_id=""),
        _node(provider_id="oxide://a"),
        _node(labels={names.LABEL_EXCLUDE_FROM_LOAD_BALANCERS: ""}),
    ],
    ids=["unknown", "not initialised", "of another cloud", "excluded"],
)
def test_a_node_that_is_no_target_carries_nothing(node: core.Node | None) -> None:
    assert agents.wanted([_service()], [], node, POOL) == {}


def test_with_policy_local_only_nodes_with_a_ready_endpoint_carry_it() -> None:
    local = _service(policy="Local")
    assert agents.wanted([local], [_slice("a")], _node(), POOL) == {FIRST: "shop/web"}
    assert agents.wanted([local], [_slice("b")], _node(), POOL) == {}
    assert agents.wanted([local], [_slice("a", is_ready=False)], _node(), POOL) == {}


class Network:
    """All machines' interfaces: an address counts as carried until its time is over, as in a kernel."""

    def __init__(self) -> None:
        self._until: dict[tuple[str, ipaddress.IPv4Address], float] = {}
        self.announced: list[str] = []

    def carriers(self, address: ipaddress.IPv4Address) -> list[str]:
        now = time.monotonic()
        return [machine for (machine, held), until in self._until.items() if held == address and until > now]

    def of(self, machine: str) -> Machine:
        return Machine(self, machine)


class Machine:
    """The wire of one machine; notes any moment in which two machines carried one address."""

    def __init__(self, network: Network, name: str) -> None:
        self._network = network
        self._name = name
        self.clashes: list[list[str]] = []
        self.times_held = 0

    def reaches(self, address: ipaddress.IPv4Address) -> bool:
        return True

    def hold(self, address: ipaddress.IPv4Address, seconds: int) -> None:
        self.times_held += 1
        self._network._until[self._name, address] = time.monotonic() + seconds
        if len(carriers := self._network.carriers(address)) > 1:
            self.clashes.append(carriers)

    def announce(self, address: ipaddress.IPv4Address) -> None:
        self._network.announced.append(self._name)

    def release(self, address: ipaddress.IPv4Address) -> None:
        self._network._until.pop((self._name, address), None)

    def held(self) -> set[ipaddress.IPv4Address]:
        return {held for machine, held in self._network._until if machine == self._name}


class Severable(Client):
    """A client whose machine can be cut off: from then on no request is ever answered, and nobody says so."""

    is_cut = False

    async def _perform(self, request: Request) -> Response:
        if self.is_cut:
            await asyncio.Event().wait()
        return await super()._perform(request)


class Leaping(clock.SystemClock):
    """The clock of a process that was frozen: time has passed, and none of its timers has told it so yet."""

    offset_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.offset_s


class Ground:
    """Two nodes and a Service with an address, on a shared server, under names of this test alone."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.mark = uuid.uuid4().hex[:8]
        self.namespace = f"lb-{self.mark}"
        self.nodes = [f"lb-{self.mark}-{letter}" for letter in "ab"]
        # A network of this test alone, so that Services of other tests are none of its business.
        self.pool = ipaddress.IPv4Network(f"10.{int(self.mark[:2], 16)}.{int(self.mark[2:4], 16)}.0/29")
        self.address = self.pool[3]

    async def make(self) -> None:
        await self.client.create(resources.NAMESPACES, {"metadata": {"name": self.namespace}})
        for name in self.nodes:
            spec = {"providerID": f"cloudlycke://{name}"}
            await self.client.create(resources.NODES, {"metadata": {"name": name}, "spec": spec})
        body = {
            "metadata": {"name": "web", "finalizers": [names.FINALIZER_LOAD_BALANCER]},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "loadBalancerClass": "example.org/test"},
        }
        await self.client.create(resources.SERVICES, body, self.namespace)
        status = {"status": {"loadBalancer": {"ingress": [{"ip": str(self.address)}]}}}
        await self.client.patch(resources.SERVICES, "web", status, self.namespace, subresource="status")

    async def remove(self) -> None:
        change = {"metadata": {"finalizers": None}}
        await self.client.patch(resources.SERVICES, "web", change, self.namespace)
        for name in self.nodes:
            await self.client.delete(resources.NODES, name)
        await self.client.delete(resources.NAMESPACES, self.namespace)

    def agent(self, client: Client, node: str, wire: Machine, own_time: clock.Clock | None = None) -> Manager:
        manager = Manager(client)
        manager.add(
            agents.Agent(
                client,
                node,
                self.pool,
                wire,
                services=manager.cache(resources.SERVICES, namespace=self.namespace),
                nodes=manager.cache(resources.NODES, field_selector=f"metadata.name={node}"),
                slices=manager.cache(resources.ENDPOINT_SLICES, namespace=self.namespace),
                namespace=self.namespace,
                timing=Timing(lease_s=7.0, renew_s=3.0, retry_s=0.3),
                time=own_time,
            )
        )
        return manager

    async def holder(self) -> str:
        lease = await self.client.get(resources.LEASES.raw(), agents.lease_name(self.address), self.namespace)
        return str(lease["spec"]["holderIdentity"])


@pytest.fixture
async def ground(client: Client) -> AsyncIterator[Ground]:
    made = Ground(client)
    await made.make()
    yield made
    await made.remove()


async def _until(what: str, question: Callable[[], bool], running: Iterable[asyncio.Task[None]]) -> None:
    def holds() -> bool:
        for task in running:
            if task.done():
                task.result()
        return question()

    await until(holds, what, step_s=0.05)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_one_of_two_agents_carries_it_and_the_other_takes_over_at_once_when_it_stops(ground: Ground) -> None:
    network = Network()
    wires = {name: network.of(name) for name in ground.nodes}
    running = {name: asyncio.create_task(ground.agent(ground.client, name, wire).run()) for name, wire in wires.items()}
    try:
        await _until("the address is carried", lambda: bool(network.carriers(ground.address)), running.values())
        (first,) = network.carriers(ground.address)
        assert await ground.holder() == first
        assert first in network.announced
        await _end(running.pop(first))
        assert first not in network.carriers(ground.address)
        (other,) = running
        await _until("the other carries it", lambda: network.carriers(ground.address) == [other], running.values())
        assert await ground.holder() == other
        # It is a target no more: the label is the user's way to empty a node.
        label = {"metadata": {"labels": {names.LABEL_EXCLUDE_FROM_LOAD_BALANCERS: "true"}}}
        await ground.client.patch(resources.NODES, other, label)
        await _until("nobody carries it", lambda: not network.carriers(ground.address), running.values())
    finally:
        for task in running.values():
            await _end(task)
    assert [wire.clashes for wire in wires.values()] == [[], []]


@pytest.fixture
async def severable(settings: config.ClientConfig) -> AsyncIterator[Severable]:
    async with Severable(settings) as opened:
        yield opened


async def test_an_agent_that_is_cut_off_loses_the_address_before_another_has_it(
    ground: Ground, severable: Severable
) -> None:
    network = Network()
    wires = {name: network.of(name) for name in ground.nodes}
    first, second = ground.nodes
    running = [asyncio.create_task(ground.agent(severable, first, wires[first]).run())]
    try:
        await _until("the first carries it", lambda: network.carriers(ground.address) == [first], running)
        running.append(asyncio.create_task(ground.agent(ground.client, second, wires[second]).run()))
        severable.is_cut = True
        await _until("the second carries it", lambda: network.carriers(ground.address) == [second], running)
        assert await ground.holder() == second
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    assert [wire.clashes for wire in wires.values()] == [[], []]


async def test_an_agent_that_was_frozen_does_not_tell_the_kernel_again_when_it_wakes(
    ground: Ground, severable: Severable
) -> None:
    network, own_time = Network(), Leaping()
    wire = network.of(ground.nodes[0])
    running = asyncio.create_task(ground.agent(severable, ground.nodes[0], wire, own_time).run())
    try:
        await _until("it is carried", lambda: bool(network.carriers(ground.address)), [running])
        severable.is_cut = True
        own_time.offset_s = 60.0
        held = wire.times_held
        await _until("it is carried no more", lambda: not network.carriers(ground.address), [running])
        assert wire.times_held == held
    finally:
        await _end(running)


async def test_what_an_earlier_agent_left_is_dropped_at_the_start(ground: Ground) -> None:
    network = Network()
    wire = network.of(ground.nodes[0])
    stale = ground.pool[6]
    wire.hold(stale, 600)
    running = asyncio.create_task(ground.agent(ground.client, ground.nodes[0], wire).run())
    try:
        await _until("its own is carried", lambda: bool(network.carriers(ground.address)), [running])
        assert network.carriers(stale) == []
    finally:
        await _end(running)
    assert wire.held() == set()
