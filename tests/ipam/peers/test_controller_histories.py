"""Equal statuses from equal inputs: the original's controller and ours, over random histories of nodes and pools.

Every step is awaited on all sides before the next, so that no controller sees two steps at once. What the original
settles on is what our plan says in upstream mode; ours in stable mode agrees except where an edit would move a node's
block. With `BEDPLATE_RECORD` naming a file, what the original did is written there, in the form of the recorded
histories."""

from __future__ import annotations

import json
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests import programs
from tests.ipam import generators
from tests.ipam.controller.worlds import World, world_on
from tests.ipam.peers.controllers import running_original, side

from bedplate.api.names import label_value_problems
from bedplate.ipam.controller import kinds
from bedplate.ipam.planning import NOTHING, Mode, PlanNode
from bedplate.ipam.pools import CIDRPool, IPPool

pytestmark = pytest.mark.real
Allocations = list[dict[str, Any]]
MODELS = {"IPPool": (kinds.IPPOOL, IPPool), "CIDRPool": (kinds.CIDRPOOL, CIDRPool)}
MOST_BLOCKS = 4096
"""The original walks over blocks one by one; larger pools only cost time."""


class History:
    """Nodes and pools as they should be, and what each side's statuses should be."""

    def __init__(self, seed: int, *, is_calm: bool) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.is_calm = is_calm
        """No edit after which ours differs on purpose."""
        self.nodes: dict[str, dict[str, str]] = {one["name"]: one["labels"] for one in self.some_nodes(5)}
        self.specs: dict[tuple[str, str], dict[str, Any]] = {}
        for number in range(6):
            kind = "IPPool" if number % 2 else "CIDRPool"
            self.specs[kind, f"p{number}"] = self.good_spec(kind)
        self.statuses: dict[Mode, dict[tuple[str, str], Allocations]] = {
            mode: {place: [] for place in self.specs} for mode in Mode
        }
        self.steps: list[dict[str, Any]] = []
        self.first_nodes, self.first_specs = dict(self.nodes), dict(self.specs)
        self.states: list[dict[tuple[str, str], Allocations]] = []
        """What the original's statuses were at the start and after each step."""

    def some_nodes(self, count: int) -> list[dict[str, Any]]:
        """Nodes that an API server takes."""
        found = generators.nodes(self.rng, count)
        for one in found:
            one["labels"] = {key: value for key, value in one["labels"].items() if not label_value_problems(value)}
        return found

    def good_spec(self, kind: str) -> dict[str, Any]:
        """A valid spec with some blocks, but not more than the original can walk over."""
        while True:
            spec = generators.ippool_spec(self.rng) if kind == "IPPool" else generators.cidrpool_spec(self.rng)
            model, pool = MODELS[kind][0], _pool(kind, spec, [])
            if not model.plan(pool, (), NOTHING, Mode.STABLE).problems and 0 < model.capacity(pool) <= MOST_BLOCKS:
                return spec

    def settle(self) -> None:
        """Let every pool's status follow, in both modes, until it changes no more."""
        nodes = [PlanNode(name, labels) for name, labels in self.nodes.items()]
        for mode, statuses in self.statuses.items():
            for place, spec in self.specs.items():
                for _ in range(5):
                    plan = MODELS[place[0]][0].plan(_pool(place[0], spec, statuses[place]), nodes, NOTHING, mode)
                    wanted = msgspec.to_builtins(plan.allocations)
                    if wanted == statuses[place]:
                        break
                    statuses[place] = list(wanted)

    def step(self) -> dict[str, Any]:
        """One change."""
        choice = self.rng.choice(["node_add", "node_add", "node_remove", "node_relabel", "spec", "status"])
        change: dict[str, Any]
        match choice:
            case "node_add":
                one = self.some_nodes(12)[0]
                while one["name"] in self.nodes:
                    one = {**one, "name": f"n{self.rng.randrange(99):02d}"}
                change = {"op": "node_add", **one}
                self.nodes[one["name"]] = one["labels"]
            case "node_remove" if len(self.nodes) > 1:
                name = self.rng.choice(sorted(self.nodes))
                change = {"op": "node_remove", "name": name}
                del self.nodes[name]
            case "node_relabel" if self.nodes:
                name = self.rng.choice(sorted(self.nodes))
                labels = self.some_nodes(1)[0]["labels"]
                change = {"op": "node_relabel", "name": name, "labels": labels}
                self.nodes[name] = labels
            case "status":
                change = self._damage()
            case _:
                change = self._edit()
        self.settle()
        self.steps.append(change)
        return change

    def recorded(self, place: tuple[str, str]) -> dict[str, Any]:
        """This pool's part of it."""
        steps = []
        for change, state in zip(self.steps, self.states[1:], strict=True):
            if (change.get("kind", place[0]), change.get("pool", place[1])) == place:
                bare = {key: value for key, value in change.items() if key not in ("kind", "pool")}
                steps.append({"changes": [bare], "allocations": state[place]})
        nodes = [{"name": name, "labels": labels} for name, labels in self.first_nodes.items()]
        start = {"seed": self.seed, "kind": place[0], "name": place[1], "nodes": nodes, "spec": self.first_specs[place]}
        return {**start, "initial": {"allocations": self.states[0][place]}, "steps": steps}

    def _damage(self) -> dict[str, Any]:
        place = self.rng.choice([one for one in self.specs if not self.is_calm or one[0] == "IPPool"])
        damaged = generators.damaged(self.rng, self.statuses[Mode.UPSTREAM][place])
        for statuses in self.statuses.values():
            statuses[place] = damaged
        return {"op": "status", "kind": place[0], "pool": place[1], "allocations": damaged}

    def _edit(self) -> dict[str, Any]:
        place = self.rng.choice(list(self.specs))
        spec = dict(self.specs[place])
        if self.is_calm:
            spec.pop("nodeSelector", None)
            if self.rng.random() < 0.7:
                spec["nodeSelector"] = generators.selector(self.rng)
        else:
            key = "perNodeBlockSize" if place[0] == "IPPool" else "gatewayIndex"
            wild = generators.wild(self.rng, place[0])[1] if self.rng.random() < 0.3 else self.good_spec(place[0])
            spec = self.rng.choice([wild, {**spec, key: self.rng.randint(1, 3)}])
        if not _is_storable(spec) or not self._is_walkable(place[0], spec):
            spec = dict(self.specs[place])
        self.specs[place] = spec
        return {"op": "spec", "kind": place[0], "pool": place[1], "spec": spec}

    def _is_walkable(self, kind: str, spec: dict[str, Any]) -> bool:
        model, pool = MODELS[kind][0], _pool(kind, spec, [])
        if model.plan(pool, (), NOTHING, Mode.UPSTREAM).problems:
            return True
        return 0 < model.capacity(pool) <= MOST_BLOCKS


def _pool(kind: str, spec: dict[str, Any], allocations: Allocations) -> Any:
    document = {"metadata": {"name": "p"}, "spec": spec, "status": {"allocations": allocations}}
    return msgspec.convert(document, MODELS[kind][1])


def _is_storable(spec: dict[str, Any]) -> bool:
    """The custom resource's own schema lets it pass."""
    indexes = spec.get("perNodeExclusions", ())
    within = all(0 <= one["startIndex"] <= one["endIndex"] < 1 << 31 for one in indexes)
    statics = all(one.get("prefix") is not None for one in spec.get("staticAllocations", ()))
    return within and statics


async def play(sides: dict[str, tuple[World, Mode]], history: History, count: int) -> None:
    """Play a history on all sides at once."""
    world = next(iter(sides.values()))[0]
    for name, labels in history.nodes.items():
        await world.add(name, labels=labels)
    for (kind, name), spec in history.specs.items():
        for one, _ in sides.values():
            await one.pool(kind, name, spec)
    history.settle()
    await settled(sides, history)
    for _ in range(count):
        change = history.step()
        match change["op"]:
            case "node_add":
                await world.add(change["name"], labels=change["labels"])
            case "node_remove":
                await world.remove(change["name"])
            case "node_relabel":
                await world.relabel(change["name"], change["labels"])
            case "spec":
                for one, _ in sides.values():
                    await one.edit(change["kind"], change["pool"], change["spec"])
            case "status":
                for one, _ in sides.values():
                    await one.damage(change["kind"], change["pool"], change["allocations"])
        await settled(sides, history)


async def settled(sides: dict[str, tuple[World, Mode]], history: History) -> None:
    history.states.append(dict(history.statuses[Mode.UPSTREAM]))
    for name, (world, mode) in sides.items():
        for (kind, pool), wanted in history.statuses[mode].items():
            try:
                await world.settles(kind, pool, wanted)
            except AssertionError as err:
                last = history.steps[-1:]
                spec = history.specs[kind, pool]
                raise AssertionError(
                    f"{name}, {kind} {pool} after {last} of seed {history.seed}, {spec}: {err}"
                ) from err


SOAK = pytest.mark.soak


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=SOAK) for seed in range(3, 9))])
async def test_calm_histories_are_equal_in_all_three(world: World, tmp_path: Path, seed: int) -> None:
    programs.original("ipam-controller")
    history = History(seed, is_calm=True)
    async with (
        side(world, "original") as theirs,
        side(world, "upstream") as ours,
        side(world, "stable") as stable,
        running_original(theirs, tmp_path),
        ours.controller(allocation_mode="upstream"),
        stable.controller(),
    ):
        sides = {
            "the original": (theirs, Mode.UPSTREAM),
            "ours, upstream": (ours, Mode.UPSTREAM),
            "ours, stable": (stable, Mode.STABLE),
        }
        await play(sides, history, 25)
    assert history.statuses[Mode.STABLE] == history.statuses[Mode.UPSTREAM], "a calm history must not differ"
    record(history)


@pytest.mark.parametrize("seed", [11, 12, *(pytest.param(seed, marks=SOAK) for seed in range(13, 31))])
async def test_wild_histories_are_equal_in_upstream_mode(world: World, tmp_path: Path, seed: int) -> None:
    programs.original("ipam-controller")
    history = History(seed, is_calm=False)
    async with (
        side(world, "original") as theirs,
        side(world, "upstream") as ours,
        running_original(theirs, tmp_path),
        ours.controller(allocation_mode="upstream"),
    ):
        sides = {"the original": (theirs, Mode.UPSTREAM), "ours": (ours, Mode.UPSTREAM)}
        await play(sides, history, 25)
    record(history)


def record(history: History) -> None:
    """Keep what the original did, for those who do not have it: one history a pool, in the form of `histories.json`."""
    target = os.environ.get("BEDPLATE_RECORD")
    if target:
        path = Path(target)
        known = json.loads(path.read_text())["histories"] if path.exists() else []
        made = [history.recorded(place) for place in history.first_specs]
        path.write_text(json.dumps({"histories": [*known, *made]}, indent=None, separators=(",", ":")) + "\n")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with world_on(programs.server("real")) as made:
        yield made
