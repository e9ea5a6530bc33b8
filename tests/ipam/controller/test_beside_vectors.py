"""What the original settled on beside our controller, played again without it (`tests/ipam/peers` recorded it)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bedplate.ipam.controller import kinds
from bedplate.ipam.planning import NOTHING, Mode, PlanNode
from bedplate.ipam.pools import CIDRPool, IPPool

FILE = Path(__file__).parents[2] / "vectors" / "ipam" / "beside.json"
HISTORIES: list[dict[str, Any]] = json.loads(FILE.read_text())["histories"]
MODELS: dict[str, Any] = {"IPPool": (kinds.IPPOOL, IPPool), "CIDRPool": (kinds.CIDRPOOL, CIDRPool)}


def states(history: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any], Any, Any]]:
    """Spec, nodes, allocations before and after, of every step."""
    nodes = {one["name"]: one["labels"] for one in history["nodes"]}
    spec, before = history["spec"], []
    for step in ({"changes": [], **history["initial"]}, *history["steps"]):
        for change in step["changes"]:
            match change["op"]:
                case "node_add" | "node_relabel":
                    nodes[change["name"]] = change["labels"]
                case "node_remove":
                    del nodes[change["name"]]
                case "spec":
                    spec = change["spec"]
                case "status":
                    before = change["allocations"]
        yield spec, dict(nodes), before, step["allocations"]
        before = step["allocations"]


def settled(kind: str, spec: Any, nodes: dict[str, Any], before: Any, mode: Mode) -> tuple[Any, bool]:
    """Where our plan comes to rest, and whether the spec is valid."""
    model, pool = MODELS[kind]
    known = [PlanNode(name, labels) for name, labels in nodes.items()]
    while True:
        document = {"metadata": {"name": "p"}, "spec": spec, "status": {"allocations": before}}
        plan = model.plan(msgspec.convert(document, pool), known, NOTHING, mode)
        wanted = msgspec.to_builtins(plan.allocations)
        if list(wanted) == list(before):
            return list(wanted), not plan.problems
        before = list(wanted)


@pytest.mark.parametrize("history", HISTORIES, ids=lambda one: f"{one['seed']}-{one['kind']}-{one['name']}")
def test_our_plans_come_to_rest_where_the_original_did(history: dict[str, Any]) -> None:
    for spec, nodes, before, after in states(history):
        found, _ = settled(history["kind"], spec, nodes, before, Mode.UPSTREAM)
        assert found == after, (spec, nodes, before)


@pytest.mark.parametrize("history", HISTORIES, ids=lambda one: f"{one['seed']}-{one['kind']}-{one['name']}")
def test_stable_plans_lose_no_block_that_the_original_keeps(history: dict[str, Any]) -> None:
    for spec, nodes, before, after in states(history):
        found, is_valid = settled(history["kind"], spec, nodes, before, Mode.STABLE)
        if not is_valid:
            assert found == before
            continue
        had = {one["nodeName"]: one for one in before}
        now = {one["nodeName"]: one for one in found}
        kept = [one for one in after if had.get(one["nodeName"]) == one]
        assert all(now.get(one["nodeName"]) == one for one in kept), (spec, before, after, found)
        assert len(found) == len(after)
