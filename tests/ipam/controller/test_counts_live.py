"""What the controller does not do: no work for heartbeats, no write that changes nothing, few writes for many nodes."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry
from tests.ipam.controller.worlds import World
from tests.waiting import until

from bedplate.api.resources import NODES
from bedplate.ipam.controller.assembly import Assembly

POOL = {"subnet": "10.50.0.0/16", "perNodeBlockSize": 16}
QUEUE = ("workqueue_depth", "workqueue_unfinished_work_seconds")
CIDR = {"cidr": "10.60.0.0/16", "perNodeNetworkPrefix": 28}


def passes(controller: Assembly) -> int:
    return sum(one.passes for one in controller.controllers)


def sample(registry: CollectorRegistry, name: str, **labels: str) -> float:
    return registry.get_sample_value(name, labels) or 0.0


def writes(controller: Assembly, kind: str) -> float:
    return sample(controller.registry, "bedplate_ipam_status_writes_total", kind=kind, result="success")


async def served(world: World, count: int) -> None:
    async def is_so() -> bool:
        return len(await world.blocks("IPPool", "p")) == len(await world.blocks("CIDRPool", "p")) == count

    await until(is_so, f"{count} nodes are served")


async def settled(world: World, controller: Assembly) -> None:
    """Wait until the watches have brought back every write and no pass is left to make, or under way."""

    async def is_so() -> bool:
        for pools in controller.controllers:
            present, known = await world.get(pools.kind.ref.kind, "p"), pools.pools.get(f"{world.namespace}/p")
            if known is None or known.metadata.resource_version != present["metadata"]["resourceVersion"]:
                return False
            label = {"name": pools.kind.name}
            if any(controller.registry.get_sample_value(metric, label) for metric in QUEUE):
                return False
        return True

    await until(is_so, "the controller has heard of its own writes")


async def test_heartbeats_and_other_nodes_cost_no_pass(world: World) -> None:
    await world.add("a", "b")
    async with world.controller() as controller:
        await world.pool("IPPool", "p", POOL)
        await world.pool("CIDRPool", "p", CIDR)
        await served(world, 2)
        await settled(world, controller)
        before, heard = passes(controller), _heard(controller)
        for number in range(50):
            await world.beat("a" if number % 2 else "b", number)
        await until(lambda: _heard(controller) >= heard + 50, "the heartbeats were heard of")
        # Labels that no pool asks for, and a node that no pool selects.
        await world.relabel("a", {"rack": "7"})
        await world.add("stranger")
        await world.relabel("stranger", {}, stays=False)
        await world.add("c")
        await served(world, 3)
        after = passes(controller)
    # One pass for each of the two pools when `stranger` came, one when it left, one when `c` came; not fifty.
    assert after - before <= 8
    await world.client.delete(NODES, world.node("stranger"))


def _heard(controller: Assembly) -> float:
    return sample(controller.registry, "bedplate_ipam_node_changes_total", kind="ippool", concerned="no")


async def test_own_writes_and_restarts_cause_no_further_write(world: World) -> None:
    await world.add("a", "b")
    async with world.controller() as controller:
        await world.pool("IPPool", "p", POOL)
        await world.pool("CIDRPool", "p", CIDR)
        await served(world, 2)
        await settled(world, controller)
        assert passes(controller) <= 3 and writes(controller, "ippool") == writes(controller, "cidrpool") == 1
    before = [(await world.get(kind, "p"))["metadata"]["resourceVersion"] for kind in ("IPPool", "CIDRPool")]
    async with world.controller() as controller:
        await until(lambda: passes(controller) >= 2, "both were looked at")
        await settled(world, controller)
        assert writes(controller, "ippool") == writes(controller, "cidrpool") == 0
    after = [(await world.get(kind, "p"))["metadata"]["resourceVersion"] for kind in ("IPPool", "CIDRPool")]
    assert after == before


async def test_many_joins_at_once_are_few_writes(world: World) -> None:
    async with world.controller() as controller:
        await world.pool("IPPool", "p", POOL)
        await world.pool("CIDRPool", "p", CIDR)
        await until(lambda: passes(controller) >= 2, "both were looked at")
        names = [f"n{number:03}" for number in range(200)]
        await asyncio.gather(*(world.add(*names[at::8]) for at in range(8)))
        await served(world, 200)
        assert writes(controller, "ippool") <= 20 and writes(controller, "cidrpool") <= 20
        blocks = await world.blocks("IPPool", "p")
        assert len(set(blocks.values())) == 200
