"""Simulated kubelets with a scripted server: what they do for pods, silence, and machines that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from bedplate.api import core
from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.kube import errors as kube_errors
from bedplate.runtime.cache import Cache
from bedplate.sim import machines
from bedplate.sim.kubelets import Fleet


class Server:
    """Takes every write and remembers it; refuses writes about `broken` machines."""

    def __init__(self) -> None:
        self.created: list[tuple[str, str]] = []
        self.patched: list[tuple[str, str, dict[str, Any]]] = []
        self.deleted: list[tuple[str, str]] = []
        self.broken: set[str] = set()

    async def create(self, ref: Any, body: dict[str, Any], namespace: str = "") -> None:
        self._check(body["metadata"]["name"])
        self.created.append((ref.kind, body["metadata"]["name"]))

    async def patch(self, ref: Any, name: str, body: dict[str, Any], *_: Any, **__: Any) -> None:
        self._check(name)
        self.patched.append((ref.kind, name, body))

    async def delete(self, ref: Any, name: str, *_: Any, **__: Any) -> None:
        self._check(name)
        self.deleted.append((ref.kind, name))

    def _check(self, name: str) -> None:
        if name in self.broken:
            raise kube_errors.ConnectionFailed("down")


def pod(name: str, node: str, phase: str = "Pending", address: str = "", **metadata: Any) -> core.Pod:
    body = {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"} | metadata,
        "spec": {"nodeName": node, "containers": [{"name": "c"}]},
        "status": {"phase": phase, "podIP": address},
    }
    return msgspec.convert(body, core.Pod)


class World:
    def __init__(self, count: int) -> None:
        self.server, self.clock = Server(), ManualClock()
        self.pods: Cache[core.Pod] = Cache()
        self.nodes: Cache[core.Node] = Cache()
        self.nodes.replace([], "1")
        self.fleet = Fleet(self.server, count, self.pods, self.nodes, time=self.clock)  # type: ignore[arg-type]

    def statuses(self) -> dict[str, dict[str, Any]]:
        return {name: body["status"] for kind, name, body in self.server.patched if kind == "Pod"}

    def beats(self, name: str) -> int:
        return sum((kind, node) == ("Lease", name) for kind, node, _ in self.server.patched)


@contextlib.asynccontextmanager
async def running(world: World, *pods: core.Pod) -> AsyncIterator[World]:
    world.pods.replace(pods, "1")
    tasks = [asyncio.create_task(one) for one in (world.fleet.run(), world.fleet.controller.run())]
    await world.clock.advance(0.1)
    try:
        yield world
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_new_pod_does_not_get_the_address_of_one_from_an_earlier_run() -> None:
    old = pod("old", "node001", "Running", "10.128.0.2")
    async with running(World(1), old, pod("new", "node001")) as world:
        assert world.statuses()["new"]["podIP"] == "10.128.0.3"


async def test_the_address_of_a_finished_pod_is_free() -> None:
    old = pod("old", "node001", "Succeeded", "10.128.0.2")
    async with running(World(1), old, pod("new", "node001")) as world:
        assert world.statuses()["new"]["podIP"] == "10.128.0.2"


async def test_pods_get_addresses_of_the_range_that_their_node_was_given() -> None:
    world = World(1)
    given = {"metadata": {"name": "node001"}, "spec": {"podCIDR": "10.77.3.0/24"}}
    world.nodes.replace([msgspec.convert(given, core.Node)], "1")
    async with running(world, pod("p", "node001")):
        assert world.statuses()["p"]["podIP"] == "10.77.3.2"


async def test_a_silent_machine_does_nothing_and_a_healed_one_makes_up_for_it() -> None:
    world = World(1)
    world.fleet.silence("node001")
    gone = pod("gone", "node001", "Running", deletionTimestamp="2026-01-01T00:00:00Z")
    async with running(world, pod("new", "node001"), gone):
        await world.clock.advance(60)
        assert world.statuses() == {} and world.server.deleted == []
        await world.fleet.heal("node001")
        await world.clock.advance(0.1)
        assert world.statuses()["new"]["phase"] == "Running"
        assert world.server.deleted == [("Pod", "gone")]


async def test_a_healed_machine_registers_when_its_node_was_deleted() -> None:
    async with running(World(1)) as world:
        world.server.created.clear()
        await world.fleet.heal("node001")
        assert ("Node", "node001") in world.server.created


async def test_one_machine_in_trouble_does_not_stop_the_heartbeat_of_the_others() -> None:
    async with running(World(3)) as world:
        world.server.broken.add("node001")
        before = world.beats("node002")
        await world.clock.advance(100)
        assert world.beats("node002") - before >= 9


async def test_a_server_that_does_not_know_us_yet_is_waited_for() -> None:
    world = World(1)
    create, refusals = world.server.create, 3

    async def refuse_at_first(ref: Any, body: dict[str, Any], namespace: str = "") -> None:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise errors.Denied("RBAC is not loaded yet")
        await create(ref, body, namespace)

    world.server.create = refuse_at_first  # type: ignore[method-assign]
    async with running(world):
        await world.clock.advance(30)
        assert ("Node", "node001") in world.server.created


async def test_nodes_that_the_server_will_never_take_end_the_fleet_instead_of_counting_as_registered() -> None:
    world = World(3)

    async def refuse(ref: Any, body: dict[str, Any], namespace: str = "") -> None:
        raise errors.Invalid("a lowercase name is required")

    world.server.create = refuse  # type: ignore[method-assign]
    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.timeout(30):
            await world.fleet.run()
    assert caught.group_contains(errors.Invalid, match="lowercase")
    assert not world.fleet.registered.is_set()


async def test_a_first_heartbeat_that_fails_does_not_keep_a_node_from_being_registered() -> None:
    """On a fresh cluster the namespace of the leases comes a little later than the API."""
    world = World(1)

    async def no_namespace(*_: Any, **__: Any) -> None:
        raise errors.NotFound("namespaces kube-node-lease not found")

    world.server.patch = no_namespace  # type: ignore[method-assign]
    async with running(world):
        assert world.fleet.registered.is_set()


async def test_all_nodes_can_be_deleted() -> None:
    async with running(World(30)) as world:
        world.server.broken.add("node002")
        await world.fleet.delete_nodes()
        assert len(world.server.deleted) == 29


def test_more_machines_than_addresses_are_refused() -> None:
    cache: Cache[Any] = Cache()
    with pytest.raises(errors.Invalid, match="do not fit"):
        Fleet(Server(), 16_385, cache, cache)  # type: ignore[arg-type]
    last = machines.Machine("last", 16_383, machines.Shape())
    assert not last.pod_range.overlaps(machines.MACHINES)


async def test_a_fleet_without_machines_leaves_the_event_loop_to_others() -> None:
    async with running(World(0)) as world:
        await world.clock.advance(60)
        assert world.server.patched == []


class Networks:
    """Gives an annotation, or an error as long as `failures` lasts."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures

    async def attach(self, pod: core.Pod) -> dict[str, str]:
        self.failures -= 1
        if self.failures >= 0:
            raise errors.Unavailable("not yet")
        return {"network": "there"}


async def test_a_pod_gets_its_networks_before_it_runs() -> None:
    world = World(1)
    world.fleet.networks = Networks()
    async with running(world, pod("a", "node001")):
        await world.clock.advance(1)
    patches = [body for kind, _, body in world.server.patched if kind == "Pod"]
    assert patches[0]["metadata"]["annotations"] == {"network": "there"}
    assert patches[1]["status"]["phase"] == "Running"


async def test_a_pod_whose_networks_cannot_be_had_does_not_run() -> None:
    world = World(1)
    world.fleet.networks = Networks(failures=1000)
    async with running(world, pod("a", "node001")):
        await world.clock.advance(1)
    assert world.statuses() == {}
