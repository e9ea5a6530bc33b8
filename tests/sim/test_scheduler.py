"""The minimal scheduler's choice."""

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from bedplate.api import core
from bedplate.core.clock import ManualClock
from bedplate.sim import machines
from bedplate.sim.scheduler import Fit, choose


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
