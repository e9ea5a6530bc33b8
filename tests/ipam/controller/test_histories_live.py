"""Recorded histories of the original, played on an API server with our controller; those without a mark."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.ipam.controller.worlds import World

FILE = Path(__file__).parents[2] / "vectors" / "ipam" / "histories.json"
HISTORIES: list[dict[str, Any]] = [
    one
    for one in json.loads(FILE.read_text())["histories"]
    if not any("ours_differs" in step for step in (one["initial"], *one["steps"]))
]
USUAL = 6
"""Of each run; `make soak` plays them all."""


def _parameters() -> list[Any]:
    chosen = [*HISTORIES[::2], *HISTORIES[1::2]]
    marks = [[] if at < USUAL else [pytest.mark.soak] for at in range(len(chosen))]
    return [pytest.param(one, id=str(one["seed"]), marks=mark) for one, mark in zip(chosen, marks, strict=True)]


@pytest.mark.parametrize("history", _parameters())
async def test_a_recorded_history_is_played_alike(world: World, history: dict[str, Any]) -> None:
    kind, name = history["kind"], history["name"]
    for node in history["nodes"]:
        await world.add(node["name"], labels=node["labels"])
    await world.pool(kind, name, history["spec"])
    stack = contextlib.AsyncExitStack()
    await stack.enter_async_context(world.controller())
    try:
        await world.settles(kind, name, history["initial"]["allocations"])
        for step in history["steps"]:
            if step.get("controller"):
                await stack.aclose()
            for change in step["changes"]:
                await carry_out(world, kind, name, change)
            if step.get("controller"):
                await stack.enter_async_context(world.controller())
            await world.settles(kind, name, step["allocations"])
    finally:
        await stack.aclose()


async def carry_out(world: World, kind: str, name: str, change: dict[str, Any]) -> None:
    match change["op"]:
        case "node_add":
            await world.add(change["name"], labels=change["labels"])
        case "node_remove":
            await world.remove(change["name"])
        case "node_relabel":
            await world.relabel(change["name"], change["labels"])
        case "spec":
            await world.edit(kind, name, change["spec"])
        case "status":
            await world.damage(kind, name, change["allocations"])
