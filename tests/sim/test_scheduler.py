"""The minimal scheduler: its choice, its count of loads, and what it says about pods that wait."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from bedplate.api import core
from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.runtime.cache import Cache
from bedplate.sim import machines
from bedplate.sim.scheduler import Fit, Scheduler, choose


def node(name: str, **changes: Any) -> core.Node:
    machine = machines.Machine(name, 0, machines.Shape(cpu=4, memory_gib=8, gpus=2, pods=3))
    body = machines.node(machine, ManualClock().now())
    body["spec"] |= changes
    return msgspec.convert(body, core.Node)


def pod(**spec: Any) -> core.Pod:
    return msgspec.convert({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]} | spec}, core.Pod)


def asking(**requests: str) -> core.Pod:
    return pod(containers=[{"name": "c", "resources": {"requests": requests}}])


def test_the_node_with_the_fewest_pods_is_chosen() -> None:
    assert choose(pod(), [node("a"), node("b")], {"a": Fit(2), "b": Fit(1)})[0] == "b"


@pytest.mark.parametrize(
    ("given", "target", "reason"),
    [
        (pod(), node("a", unschedulable=True), "unschedulable"),
        (pod(), node("a", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]), "untolerated taint {k: v}"),
        (pod(nodeSelector={"gpu": "h100"}), node("a"), "node affinity/selector"),
        (asking(cpu="5"), node("a"), "Insufficient cpu"),
        (asking(memory="9Gi"), node("a"), "Insufficient memory"),
        (asking(**{"nvidia.com/gpu": "3"}), node("a"), "Insufficient nvidia.com/gpu"),
    ],
)
def test_a_node_that_cannot_take_the_pod_is_refused_with_a_reason(
    given: core.Pod, target: core.Node, reason: str
) -> None:
    name, refusals = choose(given, [target], {})
    assert name == ""
    assert reason in next(iter(refusals))


def test_what_runs_there_already_counts() -> None:
    load = {"a": Fit(1, {"cpu": Decimal(3)})}
    assert choose(asking(cpu="1"), [node("a")], load)[0] == "a"
    assert choose(asking(cpu="1100m"), [node("a")], load)[0] == ""
    assert choose(pod(), [node("a")], {"a": Fit(3)})[1] == {"Too many pods": 1}


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"},
        {"key": "k", "operator": "Exists"},
        {"operator": "Exists"},
        {"key": "k", "value": "v"},
    ],
)
def test_a_tolerated_taint_is_no_obstacle(toleration: dict[str, str]) -> None:
    tainted = node("a", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    assert choose(pod(tolerations=[toleration]), [tainted], {})[0] == "a"
    assert choose(pod(tolerations=[{"key": "k", "value": "other"}]), [tainted], {})[0] == ""


class Binder:
    """A server that binds as told: `refusal` is raised, after `meanwhile` was called."""

    def __init__(self) -> None:
        self.bound: list[tuple[str, str]] = []
        self.explained: list[str] = []
        self.refusal: errors.BedplateError | None = None
        self.meanwhile: Callable[[], None] = lambda: None

    async def subresource(self, method: str, ref: Any, name: str, *_: Any, body: dict[str, Any], **__: Any) -> None:
        self.meanwhile()
        if self.refusal is not None:
            raise self.refusal
        self.bound.append((name, body["target"]["name"]))

    async def patch(self, ref: Any, name: str, body: dict[str, Any], *_: Any, **__: Any) -> None:
        self.explained.append(body["status"]["conditions"][0]["message"])


def waiting(name: str, node_name: str = "", **status: Any) -> core.Pod:
    spec = {"nodeName": node_name, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    metadata = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": node_name or "1"}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, core.Pod)


@contextlib.asynccontextmanager
async def scheduling(
    server: Binder, nodes: list[core.Node]
) -> AsyncIterator[tuple[Scheduler, Cache[core.Pod], Cache[core.Node], ManualClock]]:
    clock, pod_cache, node_cache = ManualClock(), Cache[core.Pod](), Cache[core.Node]()
    scheduler = Scheduler(server, pod_cache, node_cache, time=clock)  # type: ignore[arg-type]
    pod_cache.replace([], "1")
    node_cache.replace(nodes, "1")
    task = asyncio.create_task(scheduler.controller.run())
    await clock.advance(0.1)
    yield scheduler, pod_cache, node_cache, clock
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_lost_race_for_a_pod_does_not_spoil_the_count_of_loads() -> None:
    server = Binder()
    async with scheduling(server, [node("a"), node("b")]) as (scheduler, pods, _, clock):
        server.refusal = errors.Conflict("pod is already assigned to node b")
        server.meanwhile = lambda: pods.put(waiting("p", "b"), "2")
        pods.put(waiting("p"), "1")
        await clock.advance(0.1)
        loads = {name: (fit.pods, fit.used.get("cpu")) for name, fit in scheduler._load.items()}
        assert loads == {"a": (0, Decimal(0)), "b": (1, Decimal(1))}


async def test_a_pod_that_no_node_takes_says_why_once_and_is_bound_when_one_comes() -> None:
    server = Binder()
    async with scheduling(server, [node("a", unschedulable=True)]) as (_, pods, nodes, clock):
        pods.put(waiting("p"), "1")
        await clock.advance(0.1)
        assert server.explained == ["0/1 nodes are available: 1 node(s) were unschedulable."]
        condition = {"type": "PodScheduled", "status": "False", "message": server.explained[0]}
        pods.put(waiting("p", conditions=[condition]), "2")
        await clock.advance(20)
        assert len(server.explained) == 1
        nodes.put(node("a"), "2")
        await clock.advance(0.1)
        assert server.bound == [("p", "a")]


async def test_waiting_pods_are_looked_at_again_only_when_a_node_can_do_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of nodes report every few minutes that nothing changed; each look costs a walk over all of them."""
    looks = 0

    def counting(*arguments: Any) -> tuple[str, dict[str, int]]:
        nonlocal looks
        looks += 1
        return choose(*arguments)

    monkeypatch.setattr("bedplate.sim.scheduler.choose", counting)
    async with scheduling(Binder(), [node("a", unschedulable=True)]) as (_, pods, nodes, clock):
        pods.put(waiting("p"), "1")
        await clock.advance(0.1)
        before = looks
        for version in range(20):
            nodes.put(node("a", unschedulable=True), str(version))
        await clock.advance(0.1)
        assert looks == before
        nodes.put(node("a", unschedulable=True, taints=[{"key": "k", "effect": "NoSchedule"}]), "30")
        await clock.advance(0.1)
        assert looks == before + 1


async def test_a_pod_that_leaves_makes_room_for_one_that_waits_at_once() -> None:
    server = Binder()
    async with scheduling(server, [node("a")]) as (_, pods, _, clock):
        for name in ("x", "y", "z"):
            pods.put(waiting(name, "a"), "1")
        pods.put(waiting("p"), "2")
        await clock.advance(0.1)
        assert server.bound == []
        pods.remove(waiting("y", "a"), "3")
        await clock.advance(0.1)
        assert server.bound == [("p", "a")]
