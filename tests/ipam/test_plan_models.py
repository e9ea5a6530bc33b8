"""Both planners against models that scan, over random pools, nodes and damaged statuses."""

from __future__ import annotations

import random
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.ipam import generators, models

from bedplate.ipam.plan_cidrpool import plan_cidrpool
from bedplate.ipam.plan_ippool import plan_ippool
from bedplate.ipam.planning import NOTHING, FreedWhy, Mode, Plan, PlanNode, matching_names
from bedplate.ipam.pools import CIDRPool, IPPool

seeds = st.integers(min_value=0, max_value=2**32)


class World:
    """A pool and nodes that change; the plan of each moment is compared with the model's."""

    def __init__(self, seed: int, kind: str) -> None:
        self.rng = random.Random(seed)
        self.kind = kind
        self.spec = self.make_spec()
        self.nodes = generators.nodes(self.rng, self.rng.choice([0, 1, 3, 6, 12]))
        self.status: list[dict[str, str]] = []

    def make_spec(self) -> dict[str, Any]:
        return generators.ippool_spec(self.rng) if self.kind == "IPPool" else generators.cidrpool_spec(self.rng)

    def change(self) -> None:
        match self.rng.randrange(4):
            case 0:
                self.status = generators.damaged(self.rng, self.status)
            case 1:
                self.nodes = generators.nodes(self.rng, self.rng.choice([1, 3, 6, 12]))
            case 2:
                self.spec = self.make_spec()
            case _:
                self.nodes = self.nodes[1:]

    def document(self) -> dict[str, Any]:
        return {"metadata": {"name": "p"}, "spec": self.spec, "status": {"allocations": self.status}}

    def plan(self, mode: Mode) -> Plan[Any]:
        nodes = [PlanNode(node["name"], node["labels"]) for node in self.nodes]
        if self.kind == "IPPool":
            return plan_ippool(msgspec.convert(self.document(), IPPool), nodes, NOTHING, mode)
        return plan_cidrpool(msgspec.convert(self.document(), CIDRPool), nodes, NOTHING, mode)

    def names(self) -> list[str]:
        pool = msgspec.convert(self.document(), IPPool if self.kind == "IPPool" else CIDRPool)
        nodes = [PlanNode(node["name"], node["labels"]) for node in self.nodes]
        return matching_names(pool.spec.node_selector, nodes)

    def check(self) -> None:
        model = models.ippool if self.kind == "IPPool" else models.cidrpool
        names = self.names()
        expected, _ = model(self.spec, names, self.status)
        expected, without = model(self.spec, names, expected)
        plan = self.plan(Mode.UPSTREAM)
        assert not plan.problems
        assert list(msgspec.to_builtins(plan.allocations)) == expected
        assert [one.node for one in plan.unplaced] == without
        for freed in plan.freed:
            assert (freed.why is FreedWhy.NODE_GONE) == (freed.node not in names)
        self.check_settled(plan, Mode.UPSTREAM)
        self.check_stable(names, without)
        self.status = expected

    def check_stable(self, names: list[str], without: list[str]) -> None:
        plan = self.plan(Mode.STABLE)
        assert len(plan.unplaced) == len(without)
        assert {one.node_name for one in plan.allocations} | {one.node for one in plan.unplaced} == set(names)
        keys = [getattr(one, "prefix", "") or getattr(one, "start_ip", "") for one in plan.allocations]
        assert len(set(keys)) == len(keys)
        self.check_settled(plan, Mode.STABLE)

    def check_settled(self, plan: Plan[Any], mode: Mode) -> None:
        before, self.status = self.status, list(msgspec.to_builtins(plan.allocations))
        again = self.plan(mode)
        assert (again.allocations, again.unplaced, again.freed) == (plan.allocations, plan.unplaced, ())
        self.status = before


def play(seed: int, kind: str) -> None:
    world = World(seed, kind)
    for _ in range(4):
        world.check()
        world.change()


@given(seeds)
def test_ippools_are_planned_as_the_model_plans_them(seed: int) -> None:
    play(seed, "IPPool")


@given(seeds)
def test_cidrpools_are_planned_as_the_model_plans_them(seed: int) -> None:
    play(seed, "CIDRPool")
