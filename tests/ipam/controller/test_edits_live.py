"""What edits of a spec do, in both modes, on an API server."""

from __future__ import annotations

from typing import Any

import pytest
from tests.ipam.controller.worlds import World

POOL = {"subnet": "10.7.0.0/24", "perNodeBlockSize": 16, "gateway": "10.7.0.1"}
CIDR = {"cidr": "10.8.0.0/22", "perNodeNetworkPrefix": 24, "gatewayIndex": 1}
MODES = ["stable", "upstream"]


def block(first: int, size: int = 16) -> str:
    return f"10.7.0.{first}-10.7.0.{first + size - 1}"


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def with_hole(world: World, kind: str, spec: dict[str, Any]) -> None:
    """A pool whose blocks are not in the order of its nodes: `a` came last and has the third block."""
    await world.add("b", "c")
    await world.pool(kind, "pool", spec)
    blocks = {"b": block(1), "c": block(17)} if kind == "IPPool" else {"b": "10.8.0.0/24", "c": "10.8.1.0/24"}
    await world.settles(kind, "pool", blocks)
    await world.add("a")
    last = {"a": block(33)} if kind == "IPPool" else {"a": "10.8.2.0/24"}
    await world.settles(kind, "pool", {**last, **blocks})


async def test_a_grown_subnet_and_another_gateway_keep_every_block(world: World, mode: str) -> None:
    async with world.controller(allocation_mode=mode):
        await with_hole(world, "IPPool", POOL)
        await world.edit("IPPool", "pool", {**POOL, "subnet": "10.7.0.0/16"})
        await world.add("d")
        kept = {"a": block(33), "b": block(1), "c": block(17)}
        await world.settles("IPPool", "pool", {**kept, "d": block(49)})
        await world.edit("IPPool", "pool", {**POOL, "subnet": "10.7.0.0/16", "gateway": "10.7.0.100"})
        await world.add("e")
        await world.settles("IPPool", "pool", {**kept, "d": block(49), "e": block(65)})


async def test_another_block_size_deals_anew_and_stable_stays_near(world: World, mode: str) -> None:
    async with world.controller(allocation_mode=mode):
        await with_hole(world, "IPPool", POOL)
        await world.edit("IPPool", "pool", {**POOL, "perNodeBlockSize": 8})
        near = {"a": block(33, 8), "b": block(1, 8), "c": block(17, 8)}
        reallocated = {"a": block(1, 8), "b": block(9, 8), "c": block(17, 8)}
        await world.settles("IPPool", "pool", near if mode == "stable" else reallocated)


async def test_another_base_deals_anew(world: World, mode: str) -> None:
    async with world.controller(allocation_mode=mode):
        await with_hole(world, "IPPool", POOL)
        await world.edit("IPPool", "pool", {**POOL, "subnet": "10.6.0.0/24", "gateway": "10.6.0.1"})
        wanted = {name: f"10.6.0.{first}-10.6.0.{first + 15}" for name, first in zip("abc", (1, 17, 33), strict=True)}
        await world.settles("IPPool", "pool", wanted)


async def test_another_gateway_index_moves_prefixes_only_in_upstream_mode(world: World, mode: str) -> None:
    async with world.controller(allocation_mode=mode):
        await with_hole(world, "CIDRPool", CIDR)
        await world.edit("CIDRPool", "pool", {**CIDR, "gatewayIndex": 5})
        order = (2, 0, 1) if mode == "stable" else (0, 1, 2)
        wanted = [
            {"nodeName": name, "gateway": f"10.8.{at}.5", "prefix": f"10.8.{at}.0/24"}
            for name, at in zip("abc", order, strict=True)
        ]
        await world.settles("CIDRPool", "pool", wanted)


async def test_only_wholly_excluded_blocks_move(world: World, mode: str) -> None:
    async with world.controller(allocation_mode=mode):
        await with_hole(world, "IPPool", POOL)
        partly = [{"startIP": "10.7.0.1", "endIP": "10.7.0.15"}]
        wholly = [{"startIP": "10.7.0.17", "endIP": "10.7.0.32"}]
        await world.edit("IPPool", "pool", {**POOL, "exclusions": partly + wholly})
        await world.settles("IPPool", "pool", {"a": block(33), "b": block(1), "c": block(49)})


async def test_a_static_allocation_takes_a_prefix_in_use(world: World, mode: str) -> None:
    async with world.controller(allocation_mode=mode):
        await with_hole(world, "CIDRPool", CIDR)
        statics = [{"nodeName": "a", "prefix": "10.8.0.0/24"}]
        await world.edit("CIDRPool", "pool", {**CIDR, "staticAllocations": statics})
        await world.settles("CIDRPool", "pool", {"a": "10.8.0.0/24", "b": "10.8.2.0/24", "c": "10.8.1.0/24"})


async def test_an_invalid_spec_empties_the_status_only_in_upstream_mode(world: World, mode: str) -> None:
    async with world.controller(allocation_mode=mode):
        await with_hole(world, "IPPool", POOL)
        await world.edit("IPPool", "pool", {**POOL, "subnet": "10.7.0.0/33"})
        event = await world.told("pool", "InvalidSpec", "spec.subnet")
        assert event["source"]["component"] == "IPPoolController" and event["type"] == "Warning"
        kept = {"a": block(33), "b": block(1), "c": block(17)}
        await world.settles("IPPool", "pool", kept if mode == "stable" else {})
        await world.edit("IPPool", "pool", POOL)
        reallocated = {"a": block(1), "b": block(17), "c": block(33)}
        await world.settles("IPPool", "pool", kept if mode == "stable" else reallocated)


async def test_a_pool_that_was_never_valid_gets_no_block_and_an_event(world: World, mode: str) -> None:
    await world.add("a")
    async with world.controller(allocation_mode=mode):
        await world.pool("CIDRPool", "bad", {**CIDR, "gatewayIndex": 255, "routes": [{"dst": "nonsense"}]})
        event = await world.told("bad", "InvalidSpec", "spec.routes[0].dst")
        assert "spec.gatewayIndex" in event["message"]
        await world.edit("CIDRPool", "bad", CIDR)
        await world.settles("CIDRPool", "bad", {"a": "10.8.0.0/24"})
