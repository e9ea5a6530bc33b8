"""The controller behind an API server in trouble: refusals, cut watches, lost answers, others who write."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

from tests.faults import proxy
from tests.ipam.controller.worlds import KINDS, World
from tests.waiting import until

from bedplate.ipam.controller.assembly import Assembly
from bedplate.kube import errors as kube_errors

POOL = {"subnet": "10.80.0.0/16", "perNodeBlockSize": 100}
CIDR = {"cidr": "10.81.0.0/16", "perNodeNetworkPrefix": 24}


@contextlib.asynccontextmanager
async def troubled(world: World, folder: Path) -> AsyncIterator[tuple[proxy.Proxy, Assembly]]:
    """A controller whose every request passes a proxy that may misbehave."""
    async with proxy.proxied(world.server.kubeconfig, folder) as (between, settings):
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": settings.server}}],
            "users": [{"name": "it", "user": {}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }
        kubeconfig = folder / "troubled"
        kubeconfig.write_text(json.dumps(document))
        async with world.controller(kubeconfig=str(kubeconfig)) as controller:
            yield between, controller


async def joins(world: World, count: int, first: int = 0) -> None:
    """Nodes, one after the other, each of them served before the next."""
    for number in range(first, first + count):
        await world.add(f"n{number:02}")
        await served(world, number + 1)


async def served(world: World, count: int) -> None:
    async def is_so() -> bool:
        return len(await world.blocks("IPPool", "p")) == len(await world.blocks("CIDRPool", "p")) == count

    await until(is_so, f"{count} nodes are served")


async def pools(world: World) -> None:
    await world.pool("IPPool", "p", POOL)
    await world.pool("CIDRPool", "p", CIDR)


def expected(count: int) -> dict[str, str]:
    return {f"n{number:02}": f"10.81.{number}.0/24" for number in range(count)}


async def test_storms_of_refusals_delay_and_lose_nothing(world: World, tmp_path: Path) -> None:
    async with troubled(world, tmp_path) as (between, _):
        await pools(world)
        await joins(world, 2)
        for at, code in enumerate((429, 500, 503)):
            between.refuse = (code, 0.4)
            await joins(world, 1, first=2 + at)
        between.refuse = (500, 1.0)
        await world.add("n05")
        before = between.seen.total()

        async def is_refused() -> bool:
            return between.seen.total() >= before + 3

        await until(is_refused, "requests were refused")
        between.refuse = (0, 0.0)
        await served(world, 6)
        await world.settles("CIDRPool", "p", expected(6))


async def test_cut_watches_are_taken_up_again(world: World, tmp_path: Path) -> None:
    async with troubled(world, tmp_path) as (between, _):
        between.cut_streams_after_s = 0.3
        await pools(world)
        await joins(world, 6)
        await world.settles("CIDRPool", "p", expected(6))
        await world.remove("n03")
        await world.settles("CIDRPool", "p", {name: one for name, one in expected(6).items() if name != "n03"})


async def test_somebody_who_keeps_writing_the_pool_does_not_win(world: World) -> None:
    """Others change the pool between our reading and writing: conflicts, then the right status."""
    async with world.controller():
        await pools(world)
        busy = True

        async def disturb() -> None:
            number = 0
            while busy:
                number += 1
                change = {"metadata": {"labels": {"count": str(number)}}}
                for ref in KINDS.values():
                    await world.client.patch(ref, "p", change, world.namespace)

        task = asyncio.create_task(disturb())
        try:
            await joins(world, 5)
        finally:
            busy = False
            await task
        await world.settles("CIDRPool", "p", expected(5))


async def test_a_pool_deleted_and_made_anew_begins_anew(world: World) -> None:
    async with world.controller():
        await pools(world)
        await joins(world, 2)
        for spec in ({**POOL, "perNodeBlockSize": 10}, {**POOL, "perNodeBlockSize": 20}):
            await world.client.delete(KINDS["IPPool"], "p", world.namespace)
            await _made_anew(world, spec)
            size = spec["perNodeBlockSize"]
            blocks = {"n00": f"10.80.0.1-10.80.0.{size}", "n01": f"10.80.0.{size + 1}-10.80.0.{2 * size}"}  # type: ignore[operator]
            await world.settles("IPPool", "p", blocks)


async def _made_anew(world: World, spec: dict[str, object]) -> None:
    with contextlib.suppress(kube_errors.AlreadyExists):
        await world.pool("IPPool", "p", spec)
