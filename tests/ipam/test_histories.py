"""The recorded histories and passes of the original's controller, in both modes."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bedplate.ipam.addresses import parse_network
from bedplate.ipam.plan_cidrpool import plan_cidrpool
from bedplate.ipam.plan_ippool import plan_ippool
from bedplate.ipam.planning import NOTHING, Mode, Plan, PlanNode
from bedplate.ipam.pools import CIDRPool, IPPool

VECTORS = Path(__file__).parents[1] / "vectors" / "ipam"
HISTORIES: list[dict[str, Any]] = json.loads((VECTORS / "histories.json").read_text())["histories"]
PLANS: list[dict[str, Any]] = json.loads((VECTORS / "plans.json").read_text())


@dataclass
class State:
    """What the controller had before it, and what it settled on."""

    kind: str
    name: str
    spec: dict[str, Any]
    nodes: dict[str, dict[str, str]]
    before: list[dict[str, str]]
    after: list[dict[str, str]]
    events: list[dict[str, str]]
    edits: list[str]
    mark: str

    def plan(self, mode: Mode) -> Plan[Any]:
        return planned(self.kind, self.name, self.spec, self.nodes, self.before, mode)


def planned(
    kind: str, name: str, spec: Any, nodes: dict[str, dict[str, str]], before: list[dict[str, str]], mode: Mode
) -> Plan[Any]:
    document = {"metadata": {"name": name}, "spec": spec, "status": {"allocations": before}}
    known = [PlanNode(node, labels) for node, labels in nodes.items()]
    if kind == "IPPool":
        return plan_ippool(msgspec.convert(document, IPPool), known, NOTHING, mode)
    return plan_cidrpool(msgspec.convert(document, CIDRPool), known, NOTHING, mode)


def states(history: dict[str, Any]) -> Iterator[State]:
    nodes = {node["name"]: node["labels"] for node in history["nodes"]}
    spec, before = history["spec"], []
    for step in [{"changes": [], **history["initial"]}, *history["steps"]]:
        edits = []
        for change in step["changes"]:
            match change["op"]:
                case "node_add" | "node_relabel":
                    nodes[change["name"]] = change["labels"]
                case "node_remove":
                    del nodes[change["name"]]
                case "spec":
                    spec = change["spec"]
                    edits.append(change["edit"])
                case "status":
                    before = change["allocations"]
                    edits.append(change["edit"])
        mark = step.get("ours_differs", "")
        yield State(
            history["kind"],
            history["name"],
            spec,
            dict(nodes),
            before,
            step["allocations"],
            step["events"],
            edits,
            mark,
        )
        before = step["allocations"]


def entries(plan: Plan[Any]) -> list[dict[str, str]]:
    return list(msgspec.to_builtins(plan.allocations))


def check_equal(state: State, plan: Plan[Any]) -> None:
    assert entries(plan) == state.after
    reasons = {event["reason"] for event in state.events}
    if plan.problems:
        assert reasons == {"InvalidSpec"}
    else:
        assert reasons <= {"NoFreeRanges" if state.kind == "IPPool" else "NoFreePrefixes"}
        assert len(plan.unplaced) == len(state.events)
        assert all(any(one.node in event["message"] for event in state.events) for one in plan.unplaced)


def check_better(state: State, plan: Plan[Any]) -> None:
    """What ours does where the original does worse."""
    if "invalid" in state.mark:
        assert plan.problems and entries(plan) == state.before
    elif "only the gateway" in state.mark:
        old = {entry["nodeName"]: entry["prefix"] for entry in state.before}
        statics = {one.get("nodeName") for one in state.spec.get("staticAllocations", [])}
        now = {entry["nodeName"]: entry["prefix"] for entry in entries(plan)}
        assert {node: old[node] for node in now if node in old and node not in statics} == {
            node: now[node] for node in now if node in old and node not in statics
        }
        assert {entry["nodeName"] for entry in state.after} == set(now)
    elif "W22" in state.mark:
        networks = [parse_network(entry["prefix"]) for entry in entries(plan)]
        assert len(set(networks)) == len(networks)
        assert {entry["nodeName"] for entry in entries(plan)} == {entry["nodeName"] for entry in state.after}
    else:
        assert "still fits" in state.mark
        check_resized(state, plan)


def check_resized(state: State, plan: Plan[Any]) -> None:
    """As many nodes have a block, the status is settled at once, and where blocks became half as large nobody moved."""
    assert len(entries(plan)) == len(state.after)
    again = planned(state.kind, state.name, state.spec, state.nodes, entries(plan), Mode.STABLE)
    assert again.allocations == plan.allocations
    old = {entry["nodeName"]: span(entry) for entry in state.before}
    for entry in entries(plan):
        first, last = span(entry)
        was = old.get(entry["nodeName"])
        if was is not None and was[1] - was[0] + 1 >= 2 * (last - first + 1):
            assert was[0] <= first <= last <= was[1]


def span(entry: dict[str, str]) -> tuple[int, int]:
    if "prefix" in entry:
        network = ipaddress.ip_network(entry["prefix"])
        return int(network[0]), int(network[-1])
    return int(ipaddress.ip_address(entry["startIP"])), int(ipaddress.ip_address(entry["endIP"]))


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history["name"])
def test_upstream_mode_gives_what_the_original_gave(history: dict[str, Any]) -> None:
    for state in states(history):
        if "W22" in state.mark:
            check_better(state, state.plan(Mode.UPSTREAM))
        else:
            check_equal(state, state.plan(Mode.UPSTREAM))


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history["name"])
def test_stable_mode_differs_only_where_it_is_better(history: dict[str, Any]) -> None:
    for state in states(history):
        if state.mark:
            check_better(state, state.plan(Mode.STABLE))
        else:
            check_equal(state, state.plan(Mode.STABLE))


def test_the_histories_hold_what_they_are_said_to_hold() -> None:
    everything = [state for history in HISTORIES for state in states(history)]
    assert (len(HISTORIES), len(everything)) == (60, 811)
    assert sum(1 for state in everything if state.mark) == 60


@pytest.mark.parametrize("mode", list(Mode))
def test_a_settled_status_is_planned_again_as_it_is(mode: Mode) -> None:
    for history in HISTORIES:
        for state in states(history):
            plan = state.plan(mode)
            again = planned(state.kind, state.name, state.spec, state.nodes, entries(plan), mode)
            assert (again.allocations, again.freed) == (plan.allocations, ())


def test_random_pools_settle_as_they_do_with_the_original() -> None:
    for case in PLANS:
        nodes = {node["name"]: node["labels"] for node in case["nodes"]}
        plan = planned(case["kind"], "p", case["spec"], nodes, case["before"], Mode.UPSTREAM)
        assert entries(plan) == case["after"], case
        assert (1 if plan.problems else len(plan.unplaced)) == case["events"], case
