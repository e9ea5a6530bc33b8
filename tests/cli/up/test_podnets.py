"""Networks of simulated pods: addresses through a real ledger, the same ones when asked again, freed when pods go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.waiting import until

from bedplate.api import core
from bedplate.api.resources import PODS
from bedplate.cli.ipam.holders import NETWORK_STATUS
from bedplate.cli.up import demopools
from bedplate.cli.up.podnets import NETWORKS, PodNetworks, networks_of
from bedplate.core import clock, errors
from bedplate.ipam.pools import CIDRPOOLS, IPPOOLS, CIDRPool, IPPool
from bedplate.runtime.cache import Cache

META = {"namespace": "kube-system", "resourceVersion": "1"}
RAIL = msgspec.convert(
    {
        "metadata": {"name": "rail", **META},
        "spec": {"subnet": "172.16.0.0/24", "perNodeBlockSize": 4, "gateway": "172.16.0.1"},
        "status": {"allocations": [{"nodeName": "n1", "startIP": "172.16.0.1", "endIP": "172.16.0.4"}]},
    },
    IPPool,
)
STORAGE = msgspec.convert(
    {
        "metadata": {"name": "storage", **META},
        "spec": {"cidr": "172.20.0.0/24", "perNodeNetworkPrefix": 29, "gatewayIndex": 1},
        "status": {"allocations": [{"nodeName": "n1", "prefix": "172.20.0.0/29", "gateway": "172.20.0.1"}]},
    },
    CIDRPool,
)


class Parts:
    """What a manager gives: caches, and a task that runs what is added."""

    def __init__(self) -> None:
        self.caches: dict[str, Cache[Any]] = {ref.plural: Cache() for ref in (PODS, IPPOOLS, CIDRPOOLS)}
        self.tasks: list[Callable[[], Awaitable[None]]] = []

    def cache(self, ref: Any, **_: Any) -> Cache[Any]:
        return self.caches[ref.plural]

    def add(self, controller: Any) -> None:
        self.tasks.append(controller.run)

    def serve(self, task: Callable[[], Awaitable[None]]) -> None:
        self.tasks.append(task)


def pod(name: str, networks: str = "rail, storage", node: str = "n1", phase: str = "Pending") -> core.Pod:
    body = {
        "metadata": {"name": name, "namespace": "demo", "uid": f"uid-{name}", "annotations": {NETWORKS: networks}},
        "spec": {"nodeName": node},
        "status": {"phase": phase},
    }
    return msgspec.convert(body, core.Pod)


@asynccontextmanager
async def running(folder: Path, *pods: core.Pod) -> AsyncIterator[tuple[PodNetworks, Parts]]:
    parts = Parts()
    parts.caches["pods"].replace(pods, "1")
    parts.caches["ippools"].replace([RAIL], "1")
    parts.caches["cidrpools"].replace([STORAGE], "1")
    networks = PodNetworks(parts, folder)  # type: ignore[arg-type]
    tasks = [asyncio.ensure_future(task()) for task in parts.tasks]
    try:
        yield networks, parts
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def addresses(annotations: Any) -> list[str]:
    return [ip for one in json.loads(annotations[NETWORK_STATUS]) for ip in one["ips"]]


async def test_a_pod_gets_an_address_of_each_pool_and_the_same_ones_when_it_asks_again(tmp_path: Path) -> None:
    async with running(tmp_path, pod("a"), pod("b")) as (networks, _):
        first = await networks.attach(pod("a"))
        assert addresses(first) == ["172.16.0.2", "172.20.0.2"]
        assert [one["interface"] for one in json.loads(first[NETWORK_STATUS])] == ["net1", "net2"]
        assert await networks.attach(pod("a")) == first
        assert addresses(await networks.attach(pod("b"))) == ["172.16.0.3", "172.20.0.3"]
        assert networks.used == {"rail": 2, "cidrpool/storage": 2}
        assert [(one.name, one.used, one.usable) for one in networks.pools()] == [("rail", 2, 3), ("storage", 2, 5)]


async def test_addresses_come_back_when_a_pod_is_deleted_or_has_ended(tmp_path: Path) -> None:
    async with running(tmp_path, pod("a"), pod("b")) as (networks, parts):
        await networks.attach(pod("a"))
        await networks.attach(pod("b"))
        parts.caches["pods"].remove(pod("a"), "2")
        parts.caches["pods"].put(pod("b", phase="Succeeded"), "3")
        await until(lambda: networks.used.total() == 0)


async def test_a_later_run_finds_what_was_given_and_frees_what_belongs_to_nobody(tmp_path: Path) -> None:
    async with running(tmp_path, pod("a"), pod("b")) as (networks, _):
        kept = await networks.attach(pod("a"))
        await networks.attach(pod("b"))
    async with running(tmp_path, pod("a")) as (networks, _):
        await until(lambda: networks.used == {"rail": 1, "cidrpool/storage": 1})
        assert await networks.attach(pod("a")) == kept


async def test_a_full_block_and_a_missing_one_let_a_pod_wait(tmp_path: Path) -> None:
    async with running(tmp_path, *(pod(name, "rail") for name in "abc")) as (networks, _):
        for name in "abc":
            await networks.attach(pod(name, "rail"))
        with pytest.raises(errors.Retryable):
            await networks.attach(pod("d", "rail"))
        with pytest.raises(errors.Unavailable, match="no block of pool rail"):
            await networks.attach(pod("e", "rail", node="n2"))
        with pytest.raises(errors.Unavailable, match="no pool nothing"):
            await networks.attach(pod("f", "nothing"))


async def test_a_pod_that_asks_for_nothing_gets_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as (networks, _):
        assert await networks.attach(pod("a", "")) == {}
    assert not list(tmp_path.iterdir())


def test_networks_may_be_written_with_namespace_and_interface() -> None:
    found = networks_of(pod("a", "rail, kube-system/storage@data0 ,"))
    assert [(one.network, one.interface) for one in found] == [("rail", "net1"), ("storage", "data0")]


def test_the_tide_rises_and_falls_and_does_not_grow_with_the_cluster() -> None:
    tide = demopools.Tide(None, 10, time=clock.ManualClock())  # type: ignore[arg-type]
    low, high = tide.height(0), tide.height(demopools.PERIOD_S / 2)
    assert (low, high, tide.height(demopools.PERIOD_S)) == (10, 40, 10)
    large = demopools.Tide(None, 10_000, time=clock.ManualClock())  # type: ignore[arg-type]
    assert large.height(demopools.PERIOD_S / 2) == demopools.MOST_NODES * demopools.MOST


class Writes:
    """Takes every write; the second scaling fails, as a server that restarts lets it."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.sizes: list[int] = []

    async def create(self, ref: Any, body: dict[str, Any], namespace: str | None = None) -> None:
        self.created.append(ref.kind)

    async def patch(self, ref: Any, name: str, body: dict[str, Any], namespace: str) -> None:
        self.sizes.append(body["spec"]["replicas"])
        if len(self.sizes) == 2:
            raise errors.Unavailable("not now")


async def test_the_tide_makes_a_workload_and_scales_it_also_after_a_failure() -> None:
    writes, time = Writes(), clock.ManualClock()
    task = asyncio.ensure_future(demopools.Tide(writes, 10, time=time).run())  # type: ignore[arg-type]
    for _ in range(int(demopools.PERIOD_S / 2 / demopools.STEP_S) + 1):
        await time.advance(demopools.STEP_S)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert writes.created == ["Namespace", "Deployment"]
    assert writes.sizes == sorted(writes.sizes) and writes.sizes[-1] == 40
