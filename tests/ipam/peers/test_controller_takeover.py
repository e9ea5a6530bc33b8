"""One after the other on the same pools: the program that takes over keeps every block, and both respect the same
Lease."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests import programs
from tests.ipam.controller.worlds import World, world_on
from tests.ipam.peers.controllers import running_original, stop, versions
from tests.waiting import until

from bedplate.api.resources import LEASES
from bedplate.ipam.controller.assembly import LEASE, Assembly

pytestmark = pytest.mark.real

IPPOOL = {"subnet": "10.30.0.0/24", "perNodeBlockSize": 16, "gateway": "10.30.0.1"}
CIDRPOOL = {
    "cidr": "fd30::/48",
    "perNodeNetworkPrefix": 64,
    "gatewayIndex": 1,
    "staticAllocations": [{"prefix": "fd30:0:0:1::/64"}, {"nodeName": "c", "prefix": "fd30:0:0:8::/64"}],
}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    programs.original("ipam-controller")
    async with world_on(programs.server("real")) as made:
        yield made


async def make_pools(world: World) -> None:
    """Pools whose blocks are not in the order of their nodes."""
    await world.add("b", "c", "d")
    await world.pool("IPPool", "flat", IPPOOL)
    await world.pool("CIDRPool", "routed", CIDRPOOL)
    blocks = {"b": "10.30.0.1-10.30.0.16", "c": "10.30.0.17-10.30.0.32", "d": "10.30.0.33-10.30.0.48"}
    await world.settles("IPPool", "flat", blocks)
    await world.settles("CIDRPool", "routed", {"b": "fd30::/64", "c": "fd30:0:0:8::/64", "d": "fd30:0:0:2::/64"})
    await world.remove("b")
    await world.add("a", "e")
    blocks = {
        "a": "10.30.0.1-10.30.0.16",
        "c": "10.30.0.17-10.30.0.32",
        "d": "10.30.0.33-10.30.0.48",
        "e": "10.30.0.49-10.30.0.64",
    }
    await world.settles("IPPool", "flat", blocks)


async def joined(world: World, name: str, block: str) -> None:
    """A new node is served; by then the leader has looked at everything."""
    await world.add(name)

    async def is_served() -> bool:
        return (await world.blocks("IPPool", "flat")).get(name) == block

    await until(is_served, f"{name} is served")


@pytest.mark.parametrize("mode", ["stable", "upstream"])
async def test_blocks_survive_the_change_to_ours_and_back(world: World, tmp_path: Path, mode: str) -> None:
    async with running_original(world, tmp_path):
        await make_pools(world)
    held = await world.blocks("IPPool", "flat"), await world.blocks("CIDRPool", "routed")
    before = await versions(world)
    async with world.controller(allocation_mode=mode) as ours:

        async def has_looked() -> bool:
            return sum(one.passes for one in ours.controllers) >= 2

        await until(has_looked, "both pools were looked at")
        assert await versions(world) == before, "a status that is right must not be written"
        await joined(world, "f", "10.30.0.65-10.30.0.80")
    between = await versions(world)
    async with running_original(world, tmp_path):
        await joined(world, "g", "10.30.0.81-10.30.0.96")
    after = await world.blocks("IPPool", "flat"), await world.blocks("CIDRPool", "routed")
    assert between != before
    for earlier, later in zip(held, after, strict=True):
        assert {name: later[name] for name in earlier} == earlier


async def holder(world: World) -> str:
    found = await world.client.list(LEASES.raw(), world.namespace)
    holders = [one["spec"].get("holderIdentity") or "" for one in found.items if one["metadata"]["name"] == LEASE]
    return str(holders[0]) if holders else ""


async def leads(assembly: Assembly) -> bool:
    return assembly.elector is not None and assembly.elector.is_leading


async def test_the_same_lease_is_respected_by_both(world: World, tmp_path: Path) -> None:
    flags = ("--leader-elect=true", f"--leader-elect-namespace={world.namespace}")
    async with contextlib.AsyncExitStack() as stack, running_original(world, tmp_path, *flags) as first:
        await make_pools(world)
        theirs = await holder(world)
        ours = await stack.enter_async_context(world.controller(leader_elect="true"))
        await until(lambda: _sees(ours, theirs), "ours sees that there is a leader")
        await joined(world, "f", "10.30.0.65-10.30.0.80")
        assert await holder(world) == theirs and not await leads(ours)
        await stop(first)
        await until(lambda: leads(ours), "ours leads")
        identity = await holder(world)
        async with running_original(world, tmp_path, *flags) as second:
            await joined(world, "g", "10.30.0.81-10.30.0.96")
            # The original tries every two seconds.
            await asyncio.sleep(5)
            assert await holder(world) == identity and second.returncode is None
            # Ours ends, as in a rollout, and gives the Lease back.
            await stack.aclose()

            async def is_theirs() -> bool:
                return await holder(world) not in ("", identity)

            await until(is_theirs, "the original leads again")
            await joined(world, "h", "10.30.0.97-10.30.0.112")


async def _sees(ours: Assembly, holder: str) -> bool:
    return ours.elector is not None and ours.elector.leader == holder != ""
