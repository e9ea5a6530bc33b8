"""What the four checks of a cluster say of what was seen."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.api import core
from bedplate.api.states import State
from bedplate.head.clusters import judging
from bedplate.head.clusters.judging import Agent, Beat


def node(name: str, ready: str | None = "True", reason: str = "") -> core.Node:
    conditions = [] if ready is None else [{"type": "Ready", "status": ready, "reason": reason}]
    body: dict[str, Any] = {"metadata": {"name": name}, "status": {"conditions": conditions}}
    return msgspec.convert(body, core.Node)


def pod(name: str, phase: str, reason: str = "", *, ready: str = "") -> core.Pod:
    conditions = [{"type": "Ready", "status": ready}] if ready else []
    body: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "x"},
        "status": {"phase": phase, "reason": reason, "conditions": conditions},
    }
    return msgspec.convert(body, core.Pod)


def test_item_158_nodes_that_are_not_ready_are_named() -> None:
    assert judging.nodes([node("a"), node("b")]).status == "PASS"
    result = judging.nodes([node("a"), node("b", "Unknown", "NodeStatusUnknown"), node("c", None)])
    assert (result.status, result.value) == ("FAIL", 2.0)
    assert result.info == "not ready: b (NodeStatusUnknown), c (it has not reported yet)" and result.remedy


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Pending"])
def test_item_159_pods_in_these_phases_pass(phase: str) -> None:
    assert judging.pods([pod("a", phase)]).status == "PASS"


@pytest.mark.parametrize("phase", ["Failed", "Unknown"])
def test_item_159_pods_in_these_phases_fail(phase: str) -> None:
    result = judging.pods([pod("a", phase, "Evicted"), pod("b", "Running")])
    assert (result.status, result.info, result.value) == ("FAIL", f"x/a ({phase}: Evicted)", 1.0)


@given(st.lists(st.sampled_from(["Running", "Failed", "Unknown", "Pending", "Succeeded"])))
def test_the_first_three_are_named_and_all_are_counted(phases: list[str]) -> None:
    found = [pod(f"p{number}", phase) for number, phase in enumerate(phases)]
    bad = [one for one in found if one.status.phase in ("Failed", "Unknown")]
    result = judging.pods(found)
    assert (result.status, result.value) == ("FAIL" if bad else "PASS", float(len(bad)))
    for number, one in enumerate(bad):
        assert (f"x/{one.metadata.name} (" in result.info) is (number < 3)
    assert ("more" in result.info) is (len(bad) > 3)


def test_item_160_what_the_api_server_fails_what_is_not_ready_and_who_has_stopped_is_named() -> None:
    ready, broken = pod("kube-scheduler-a", "Running", ready="True"), pod("etcd-a", "Running", ready="False")
    assert judging.components([], [ready], []).status == "PASS"
    result = judging.components(["etcd: failed"], [ready, broken], ["kube-scheduler"])
    assert result.info == "etcd: failed, kube-scheduler has stopped, etcd-a is not ready" and result.value == 3.0


def test_item_160_a_component_has_stopped_when_its_lease_is_not_renewed() -> None:
    beats = {"kube-scheduler": Beat("1", 100.0), "kube-controller-manager": Beat("1", 155.0)}
    assert judging.stopped(beats, 160.0) == []
    assert judging.stopped(beats, 161.0) == ["kube-scheduler"]


@pytest.mark.parametrize(("state", "status"), [("UP", "FAIL"), ("DOWN", "PASS"), ("UNKNOWN", "PASS")])
def test_item_161_only_members_that_report_are_expected_to_run_their_services(state: State, status: str) -> None:
    agent = Agent("a", state, "containerd is not running")
    assert judging.children([agent], [node("a")]).status == status


def test_item_161_a_kubelet_that_stopped_reporting_and_a_node_that_is_missing_are_named() -> None:
    agents = [Agent("a", "UP"), Agent("b", "UP"), Agent("c", "UP")]
    result = judging.children(agents, [node("a"), node("b", "Unknown")])
    assert result.info == "b: the kubelet has stopped reporting, c: it is not a node of the cluster"
    assert judging.children(agents, None).status == "PASS", "of a cluster that does not answer nothing is said"
    assert judging.children([Agent("a", "UP")], [node("a", "False")]).status == "PASS"
