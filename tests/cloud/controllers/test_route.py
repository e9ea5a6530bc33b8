"""The route controller: routes and conditions on real and embedded servers; its timing, failures and limits with a
clock of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.cloud.controllers.balancers import ScriptedCloud, ScriptedRoutes, Told, clouds, internal
from tests.cloud.controllers.serving import LABEL, NODES
from tests.waiting import until

from bedplate.api import core, meta
from bedplate.cloud.controllers.route import MOST_OPERATIONS, RouteController, RouteOptions
from bedplate.cloud.errors import CloudError
from bedplate.cloud.interface import Route
from bedplate.core import clock, errors
from bedplate.kube import Client
from bedplate.kube.options import PatchType
from bedplate.runtime.cache import Cache
from bedplate.runtime.reflector import Reflector


class Network:
    """Nodes of one label on a server, a cloud with routes, and a route controller at work."""

    def __init__(self, client: Client, label: str) -> None:
        self.client = client
        self.label = label
        self.routes = ScriptedRoutes()
        self.told = Told()
        self.nodes: Cache[core.Node] = Cache()

    def full(self, name: str) -> str:
        return f"{self.label}-{name}"

    async def add(self, name: str, *cidrs: str) -> None:
        spec: dict[str, Any] = {"providerID": f"scripted://{name}"}
        if cidrs:
            spec |= {"podCIDR": cidrs[0], "podCIDRs": list(cidrs)}
        body = {"metadata": {"name": self.full(name), "labels": {LABEL: self.label}}, "spec": spec}
        await self.client.create(NODES.raw(), body)
        await self.move(name, "10.0.0.1")

    async def move(self, name: str, address: str) -> None:
        body = {"status": {"addresses": [{"type": "InternalIP", "address": address}]}}
        await self.client.patch(NODES, self.full(name), body, type=PatchType.MERGE, subresource="status")

    async def condition(self, name: str) -> tuple[str, str, str]:
        found = (await self.client.get(NODES, self.full(name))).condition("NetworkUnavailable")
        return (found.status, found.reason, found.message) if found is not None else ("", "", "")

    async def says(self, name: str, status: str) -> tuple[str, str, str]:
        async with asyncio.timeout(120):
            while (found := await self.condition(name))[0] != status:
                await asyncio.sleep(0.02)
        return found

    def held(self) -> set[tuple[str, str]]:
        return {
            (route.target_node.removeprefix(f"{self.label}-"), route.destination_cidr) for route in self.routes.held
        }


@contextlib.asynccontextmanager
async def network(client: Client, label: str) -> AsyncIterator[Network]:
    world = Network(client, label)
    controller = RouteController(
        client,
        clouds(ScriptedCloud(routes=world.routes)),
        world.nodes,
        world.told,
        RouteOptions(cluster_cidr="10.244.0.0/16,fd00::/48", route_reconciliation_period_s=0.05),
        clock.SystemClock(),
        CollectorRegistry(),
    )
    loops = (Reflector(client, NODES, world.nodes, label_selector=f"{LABEL}={label}"), *controller.parts())
    tasks = [asyncio.ensure_future(loop.run()) for loop in loops]
    try:
        yield world
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for one in (await client.list(NODES, label_selector=f"{LABEL}={label}")).items:
            await client.delete(NODES, one.name)


async def test_routes_are_added_updated_and_deleted_and_conditions_follow(client: Client, namespace: str) -> None:
    async with network(client, namespace) as world:
        world.routes.enables_addresses = True
        world.routes.failing["10.244.1.0/24"] = [CloudError("quota"), CloudError("quota")]
        await world.add("a", "10.244.0.0/24", "fd00:0:0:1::/64")
        assert await world.says("a", "False") == ("False", "RouteCreated", "RouteController created a route")
        assert world.held() == {("a", "10.244.0.0/24"), ("a", "fd00:0:0:1::/64")}
        uid = (await client.get(NODES, world.full("a"))).metadata.uid
        assert {route.name for route in world.routes.held} == {uid}, "the name's hint is the node's UID"

        await world.add("b", "10.244.1.0/24")
        await until(lambda: "FailedToCreateRoute" in world.told.reasons(world.full("b")))
        message = world.told.messages("FailedToCreateRoute")[0]
        assert message.startswith("Could not create route ")
        assert message.endswith(": quota")
        assert f" 10.244.1.0/24 for node {world.full('b')} after " in message
        await world.says("b", "False")

        await world.move("a", "10.0.0.77")
        await until(
            lambda: [r for r in world.routes.held if internal("10.0.0.77") in r.target_node_addresses].__len__() == 2
        )
        assert len(world.routes.held) == 3

        await client.delete(NODES, world.full("a"))
        await until(lambda: world.held() == {("b", "10.244.1.0/24")})


async def test_a_failure_is_said_on_the_node_and_taken_back(client: Client, namespace: str) -> None:
    async with network(client, namespace) as world:
        world.routes.failing["10.244.1.0/24"] = [CloudError("no")] * 10_000
        await world.add("b", "10.244.1.0/24")
        assert await world.says("b", "True") == ("True", "NoRouteCreated", "RouteController failed to create a route")
        world.routes.failing.clear()
        assert await world.says("b", "False") == ("False", "RouteCreated", "RouteController created a route")


# With a clock of its own


class Writes:
    """A client that only counts patches."""

    def __init__(self) -> None:
        self.patches: list[tuple[str, Any]] = []
        self.failing: list[Exception] = []

    async def patch(self, ref: Any, name: str, body: Any, **options: Any) -> None:
        self.patches.append((name, body["status"]["conditions"][0]["status"]))
        if self.failing:
            raise self.failing.pop(0)


def node(name: str, cidr: str = "", **more: Any) -> core.Node:
    spec = core.NodeSpec(pod_cidrs=(cidr,) if cidr else (), provider_id=more.get("provider_id", f"scripted://{name}"))
    version = more.get("version", "1")
    return core.Node(metadata=meta.ObjectMeta(name=name, uid=f"uid-{name}", resource_version=version), spec=spec)


class Bench:
    """A controller without a server."""

    def __init__(self, *nodes: core.Node, routes: ScriptedRoutes | None = None, **options: Any) -> None:
        self.time = clock.ManualClock()
        self.cache: Cache[core.Node] = Cache()
        self.cache.replace(nodes, "1")
        self.routes = routes if routes is not None else ScriptedRoutes()
        self.writes, self.told, self.registry = Writes(), Told(), CollectorRegistry()
        self.controller = RouteController(
            self.writes,  # type: ignore[arg-type]
            clouds(ScriptedCloud(routes=self.routes), *options.pop("others", ())),
            self.cache,
            self.told,
            RouteOptions(**{"cluster_cidr": "10.244.0.0/16", **options}),
            self.time,
            self.registry,
        )

    def passes(self) -> int:
        return sum(1 for verb, _ in self.routes.calls if verb == "list")


@contextlib.asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[None]:
    task = asyncio.ensure_future(bench.controller.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_runs_at_most_once_per_period_and_only_for_changes_that_matter() -> None:
    bench = Bench(node("a", "10.244.0.0/24"))
    async with running(bench):
        await bench.time.advance(0.1)
        assert bench.passes() == 1
        for number in range(5):
            bench.cache.put(node(f"n{number}", f"10.244.{number + 1}.0/24"), "2")
            await bench.time.advance(0.1)
        assert bench.passes() == 1
        await bench.time.advance(10)
        assert bench.passes() == 2
        assert len(bench.routes.held) == 6
        await bench.time.advance(60)
        assert bench.passes() == 2, "nothing changed, nobody is asked"
        bench.cache.put(node("a", "10.244.0.0/24", version="9"), "9")
        await bench.time.advance(60)
        assert bench.passes() == 2, "a heartbeat is not a change"
        await bench.time.advance(300)
        assert bench.passes() == 3, "the slow full pass"
        assert bench.registry.get_sample_value("route_controller_route_sync_total") == 3


async def test_a_list_that_fails_aborts_the_run_and_is_tried_again_after_the_period() -> None:
    bench = Bench(node("a", "10.244.0.0/24"), routes=ScriptedRoutes(Route("r", "gone", "10.244.9.0/24")))
    bench.routes.listing = [CloudError("down")]
    async with running(bench):
        await bench.time.advance(1)
        assert bench.routes.calls == [("list", "kubernetes")]
        assert bench.writes.patches == []
        await bench.time.advance(10)
        assert {route.destination_cidr for route in bench.routes.held} == {"10.244.0.0/24"}


async def test_creation_is_repeated_on_conflict_alone_and_five_times_at_most() -> None:
    bench = Bench(node("a", "10.244.0.0/24"), node("b", "10.244.1.0/24"))
    bench.routes.failing["10.244.0.0/24"] = [errors.Conflict("busy")] * 4
    bench.routes.failing["10.244.1.0/24"] = [errors.Conflict("busy")] * 5
    run = asyncio.ensure_future(bench.controller.reconcile())
    await bench.time.advance(2)
    assert await run is False
    assert bench.routes.calls.count(("create", "10.244.0.0/24")) == 5
    assert bench.routes.calls.count(("create", "10.244.1.0/24")) == 5
    assert sorted(bench.writes.patches) == [("a", "False"), ("b", "True")]
    assert bench.told.reasons() == ["FailedToCreateRoute"]


async def test_the_condition_is_written_again_on_conflict() -> None:
    bench = Bench(node("a", "10.244.0.0/24"))
    bench.writes.failing = [errors.Conflict("read again")] * 2
    run = asyncio.ensure_future(bench.controller.reconcile())
    await bench.time.advance(2)
    assert await run is True
    assert bench.writes.patches == [("a", "False")] * 3


async def test_a_route_is_not_made_again_while_the_one_it_replaces_is_there() -> None:
    old = Route("r", "a", "10.244.0.0/24", True, (internal("10.0.0.9"),))
    bench = Bench(node("a", "10.244.0.0/24"), routes=ScriptedRoutes(old))
    bench.routes.failing["10.244.0.0/24"] = [CloudError("no")]
    assert await bench.controller.reconcile() is False
    assert bench.routes.held == [old]
    assert bench.writes.patches == [("a", "True")]
    assert await bench.controller.reconcile() is True
    assert [route.target_node_addresses for route in bench.routes.held] == [()]


async def test_at_most_200_operations_run_at_once() -> None:
    bench = Bench(*(node(f"n{number}", f"10.244.{number // 4}.{number % 4 * 64}/26") for number in range(900)))
    assert await bench.controller.reconcile() is True
    assert len(bench.routes.held) == 900
    assert bench.routes.most_running == MOST_OPERATIONS


async def test_nodes_of_another_cloud_keep_their_routes_and_get_none() -> None:
    routes = ScriptedRoutes(Route("theirs", "aws", "10.244.7.0/24"))
    nodes = (node("aws", "10.244.7.0/24", provider_id="aws://1"), node("none", "10.244.8.0/24", provider_id=""))
    bench = Bench(*nodes, routes=routes)
    await bench.controller.reconcile()
    assert {route.target_node for route in routes.held} == {"aws", "none"}
    assert bench.writes.patches == [("none", "False")]
    two = Bench(*nodes, routes=ScriptedRoutes(), others=(ScriptedCloud("second", ("second",)),))
    await two.controller.reconcile()
    assert two.routes.held == [], "with two clouds a node without provider ID has no owner yet"


async def test_below_a_selector_routes_of_nodes_never_seen_are_left() -> None:
    routes = ScriptedRoutes(Route("r1", "outside", "10.244.7.0/24"))
    bench = Bench(node("a", "10.244.0.0/24"), routes=routes, node_selector="pool=ours")
    await bench.controller.reconcile()
    bench.cache.remove(node("a"), "2")
    await bench.controller.reconcile()
    assert [route.target_node for route in routes.held] == ["outside"]


@pytest.mark.parametrize("options", [{"configure_cloud_routes": False, "cluster_cidr": ""}])
def test_routes_that_are_not_wanted_need_no_cidr_and_run_nothing(options: dict[str, Any]) -> None:
    assert Bench(**options).controller.parts() == []


def test_wanted_routes_need_a_cidr_and_a_provider() -> None:
    with pytest.raises(errors.Invalid, match="cluster-cidr"):
        Bench(cluster_cidr="")
    bench = Bench()
    assert bench.controller.parts() == [bench.controller]
    without = RouteController(
        Writes(),  # type: ignore[arg-type]
        clouds(ScriptedCloud()),
        Cache(),
        Told(),
        RouteOptions(),
        clock.ManualClock(),
        CollectorRegistry(),
    )
    assert without.parts() == []
