"""The node controller with a clock that stands still: backoff, a cache that lags, others that write."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.cloud.controllers.fakenodes import FakeNodes, condition, conflict
from tests.cloud.scripted import FAULTS, Events, ScriptedProvider

from bedplate.api import core
from bedplate.api.names import ANNOTATION_PROVIDED_NODE_IP, TAINT_UNINITIALIZED
from bedplate.cloud.controllers.node import NodeController, NodeOptions
from bedplate.cloud.errors import NoAddresses
from bedplate.cloud.interface import Address
from bedplate.cloud.routing import Clouds
from bedplate.cloud.taints import is_uninitialized
from bedplate.core import errors
from bedplate.core.clock import ManualClock

TAINT = {"key": TAINT_UNINITIALIZED, "value": "true", "effect": "NoSchedule"}


class Site:
    """One cloud with one machine, and the controller."""

    def __init__(self) -> None:
        self.time, self.nodes, self.events = ManualClock(), FakeNodes(), Events()
        self.cloud = ScriptedProvider("fake")
        self.machine = self.cloud.add("n1")

    @contextlib.asynccontextmanager
    async def managed(self, options: NodeOptions | None = None) -> AsyncIterator[None]:
        controller = NodeController(
            self.nodes,  # type: ignore[arg-type]
            Clouds([self.cloud], time=self.time),
            self.nodes.cache,
            self.events,
            options,
            self.time,
            CollectorRegistry(),
        )
        tasks = [asyncio.create_task(part.run()) for part in controller.parts()]
        try:
            await self.time.advance(0)
            yield
            assert not any(task.done() for task in tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def failing(site: Site, kind: str) -> list[float]:
    """Let every question fail; the moments at which they are asked."""
    moments: list[float] = []

    def fail(operation: str, node: core.Node) -> Exception:
        moments.append(site.time.monotonic())
        return FAULTS[kind]()

    site.cloud.fault = fail
    return moments


async def test_the_backoff_of_a_failing_cloud_grows_and_heartbeats_do_not_shorten_it() -> None:
    site = Site()
    moments = failing(site, "500")
    async with site.managed():
        site.nodes.put("n1", spec={"taints": [TAINT]}, status=condition("True"))
        for _ in range(28):
            await site.time.advance(10)
            site.nodes.put("n1", status=condition("True"))
    gaps = [later - sooner for sooner, later in itertools.pairwise(moments)]
    assert len(gaps) == 15
    assert all(later == pytest.approx(2 * sooner) for sooner, later in itertools.pairwise(gaps))


async def test_a_missing_machine_is_looked_for_after_a_second_and_then_less_often() -> None:
    site = Site()
    moments: list[float] = []
    site.cloud.fault = lambda operation, node: moments.append(site.time.monotonic())
    del site.cloud.machines["n1"]
    async with site.managed():
        site.nodes.put("n1", spec={"taints": [TAINT]}, status=condition("True"))
        for _ in range(25):
            await site.time.advance(10)
    gaps = [later - sooner for sooner, later in itertools.pairwise(moments)]
    assert gaps == pytest.approx([1, 2, 4, 8, 16, 32, 64], abs=0.001)


async def test_a_missing_machine_is_told_on_the_node_with_the_remedy() -> None:
    site = Site()
    del site.cloud.machines["n1"]
    async with site.managed():
        site.nodes.put("n1", spec={"taints": [TAINT]}, status=condition("True"))
        await site.time.advance(30)
        (told,) = site.events.of("InstanceNotFound", "n1")
        assert "fake has no such instance" in told
        assert "--provider-id, or give the node the name" in told
        await site.time.advance(400)
        assert len(site.events.of("InstanceNotFound", "n1")) == 3
        site.cloud.add("n1")
        await site.time.advance(300)
        assert site.events.of("Synced", "n1")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (errors.Invalid("provider ID 'fake://?' is not of the form fake://<id>"), "InvalidProviderID"),
        (NoAddresses("instance n1 has no addresses yet", after_s=30.0), "NoAddressesYet"),
    ],
)
async def test_other_reasons_are_told_by_their_names(error: Exception, reason: str) -> None:
    site = Site()
    site.cloud.fault = lambda operation, node: error
    async with site.managed():
        site.nodes.put("n1", spec={"taints": [TAINT], "providerID": "fake://?"}, status=condition("True"))
        await site.time.advance(20)
        (told,) = site.events.of(reason, "n1")
        assert str(error) in told


@pytest.mark.parametrize("taints", [[TAINT], []])
async def test_a_provider_id_of_another_organisation_is_told_while_the_node_waits(taints: list[Any]) -> None:
    site = Site()
    site.cloud.foreign["fake://n1"] = "its provider ID is of organisation x"
    async with site.managed():
        site.nodes.put("n1", spec={"taints": taints, "providerID": "fake://n1"}, status=condition("True"))
        site.nodes.put("n2", spec={"taints": [TAINT], "providerID": "aws://n2"}, status=condition("True"))
        await site.time.advance(30)
        told = site.events.of("ForeignProviderID")
        assert len(told) == len(taints)
        assert all("organisation x" in one and "--provider-id" in one for one in told)


async def test_a_wait_that_the_cloud_asks_for_is_kept() -> None:
    site = Site()
    moments = failing(site, "429")
    async with site.managed():
        site.nodes.put("n1", spec={"taints": [TAINT]}, status=condition("True"))
        await site.time.advance(29)
        assert len(moments) == 1
        await site.time.advance(2)
        assert len(moments) == 2


async def test_a_change_that_matters_is_not_held_up_by_a_backoff() -> None:
    site = Site()
    moments = failing(site, "500")
    async with site.managed():
        site.nodes.put("n1", spec={"taints": [TAINT]}, status=condition("True"))
        await site.time.advance(200)
        before = len(moments)
        site.nodes.put("n1", metadata={"annotations": {ANNOTATION_PROVIDED_NODE_IP: "10.0.0.1"}})
        await site.time.advance(0.001)
        assert len(moments) == before + 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (NodeOptions(concurrent_node_syncs=3), 3),
        (NodeOptions(concurrent_node_syncs=3, concurrent_node_status_updates=5), 5),
    ],
)
async def test_only_so_many_nodes_are_refreshed_at_once(options: NodeOptions, expected: int) -> None:
    site = Site()
    for number in range(9):
        site.cloud.add(f"m{number}")
        site.nodes.put(f"m{number}", spec={"providerID": f"fake://m{number}"}, status=condition("True"))
    site.cloud.hold.clear()
    async with site.managed(options):
        await site.time.advance(60)
        assert site.cloud.asked("metadata") == expected
        site.cloud.hold.set()
        await site.time.advance(1)
        assert site.cloud.asked("metadata") == 9
        await site.time.advance(options.node_status_update_frequency_s)
        assert site.cloud.asked("metadata") == 18


async def test_a_lagging_cache_leads_to_no_second_write() -> None:
    site = Site()
    async with site.managed():
        site.nodes.put("n1", spec={"taints": [TAINT]}, status=condition("True"))
        site.nodes.is_stale = True
        await site.time.advance(1)
        assert len(site.nodes.writes) == 2
        await site.time.advance(1000)
        assert len(site.nodes.writes) == 2
        site.nodes.is_stale = False
        site.nodes.catch_up()
        await site.time.advance(1000)
        assert len(site.nodes.writes) == 2


async def test_addresses_follow_as_soon_as_the_watch_shows_the_first_write() -> None:
    site = Site()
    async with site.managed():
        site.nodes.put("n1", spec={"taints": [TAINT]}, status=condition("True"))
        site.nodes.is_stale = True
        await site.time.advance(0.2)
        assert [kind for kind, _, _ in site.nodes.writes] == [""], "the server would have to compute the second twice"
        site.nodes.is_stale = False
        site.nodes.catch_up()
        await site.time.advance(0)
        assert [kind for kind, _, _ in site.nodes.writes] == ["", "status"]


async def test_addresses_do_not_wait_long_for_a_watch_that_is_behind() -> None:
    site = Site()
    async with site.managed():
        site.nodes.put("n1", spec={"taints": [TAINT]}, status=condition("True"))
        site.nodes.is_stale = True
        await site.time.advance(0.25)
        assert [kind for kind, _, _ in site.nodes.writes] == ["", "status"]


async def test_no_worker_waits_until_the_watch_shows_a_write() -> None:
    site = Site()
    site.cloud.add("n2")
    async with site.managed(NodeOptions(concurrent_node_syncs=1)):
        for name in ("n1", "n2"):
            site.nodes.put(name, spec={"taints": [TAINT]}, status=condition("True"))
        site.nodes.is_stale = True
        await site.time.advance(0.1)
        assert [(name, kind) for kind, name, _ in site.nodes.writes] == [("n1", ""), ("n2", "")]


async def test_addresses_go_before_nodes_that_wait_for_a_worker() -> None:
    site = Site()
    async with site.managed(NodeOptions(concurrent_node_syncs=1)):
        site.nodes.put("n1", spec={"taints": [TAINT]}, status=condition("True"))
        site.nodes.is_stale = True
        await site.time.advance(0.1)
        site.nodes.is_stale = False
        site.cloud.hold.clear()
        for name in ("n2", "n3"):
            site.cloud.add(name)
            site.nodes.put(name, spec={"taints": [TAINT]}, status=condition("True"))
        await site.time.advance(0)
        site.nodes.catch_up()
        site.cloud.hold.set()
        await site.time.advance(0)
    writes = [(name, kind) for kind, name, _ in site.nodes.writes]
    assert writes.index(("n1", "status")) < writes.index(("n3", ""))
    assert sorted(writes) == [(name, kind) for name in ("n1", "n2", "n3") for kind in ("", "status")]


@pytest.mark.parametrize("is_replaced", [False, True], ids=["deleted", "replaced"])
async def test_addresses_do_not_wait_for_a_node_that_is_gone(is_replaced: bool) -> None:
    site = Site()
    async with site.managed():
        site.nodes.put("n1", spec={"taints": [TAINT]}, status=condition("True"))
        site.nodes.is_stale = True
        await site.time.advance(0.1)
        site.nodes.is_stale = False
        site.nodes.drop("n1")
        if is_replaced:
            site.nodes.put("n1", spec={"taints": [TAINT]}, status=condition("True"))
        await site.time.advance(0)
        # The write for the old one is refused by its uid, or there is no such node; the new one gets its own two.
        assert [kind for kind, _, _ in site.nodes.writes][:1] == [""]
        await site.time.advance(10)
        assert [kind for kind, _, _ in site.nodes.writes] == ([""] + ["", "status"] * is_replaced)


async def test_a_cache_that_lacks_only_the_second_write_leads_to_no_third(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    patch = site.nodes.patch

    async def lag(*args: Any, **options: Any) -> Any:
        site.nodes.is_stale = options.get("subresource") == "status"
        return await patch(*args, **options)

    monkeypatch.setattr(site.nodes, "patch", lag)
    async with site.managed():
        site.nodes.put("n1", spec={"taints": [TAINT]}, status=condition("True"))
        await site.time.advance(1000)
        cached = site.nodes.cache.get("n1")
        assert cached is not None
        assert not cached.status.addresses
        assert [kind for kind, _, _ in site.nodes.writes] == ["", "status"]


async def test_a_refresh_does_not_race_with_an_initialisation() -> None:
    site = Site()
    site.nodes.put("n1", spec={"taints": [TAINT]}, status=condition("True"))
    async with site.managed():
        await site.time.advance(1000)
        assert [kind for kind, _, _ in site.nodes.writes] == ["", "status"]


@pytest.fixture
def slow_status(monkeypatch: pytest.MonkeyPatch) -> tuple[Site, asyncio.Event]:
    """A site where writes of a node's status wait for the event."""
    site, may_write = Site(), asyncio.Event()
    patch = site.nodes.patch

    async def slow(*args: Any, **options: Any) -> Any:
        if options.get("subresource") == "status":
            await may_write.wait()
        return await patch(*args, **options)

    monkeypatch.setattr(site.nodes, "patch", slow)
    return site, may_write


async def test_a_refresh_asks_nothing_about_a_node_that_the_queue_is_working_on(
    slow_status: tuple[Site, asyncio.Event],
) -> None:
    site, may_write = slow_status
    async with site.managed(NodeOptions(node_status_update_frequency_s=10)):
        site.nodes.put("n1", spec={"taints": [TAINT]}, status=condition("True"))
        await site.time.advance(1)
        assert not is_uninitialized(site.nodes.node("n1"))
        await site.time.advance(100)
        assert site.cloud.asked("metadata") == 1, "a refresh has asked about a node that is being initialised"
        may_write.set()
        await site.time.advance(10)
        assert site.cloud.asked("metadata") == 2, "the next refresh includes the node"
        assert [kind for kind, _, _ in site.nodes.writes] == ["", "status"]


async def test_a_refresh_writes_nothing_when_the_queue_began_to_work_on_the_node_meanwhile(
    slow_status: tuple[Site, asyncio.Event],
) -> None:
    site, may_write = slow_status
    site.nodes.put("n1", spec={"providerID": "fake://n1"}, status=condition("True"))
    first_answer = site.cloud.hold
    first_answer.clear()
    async with site.managed():
        await site.time.advance(1)
        assert site.cloud.asked("metadata") == 1, "the refresh waits for the cloud"
        site.cloud.hold = asyncio.Event()
        site.cloud.hold.set()
        site.nodes.put("n1", spec={"taints": [TAINT]})
        await site.time.advance(1)
        assert not is_uninitialized(site.nodes.node("n1")), "the queue has made its first write"
        first_answer.set()
        await site.time.advance(1)
        may_write.set()
        await site.time.advance(1)
        assert [kind for kind, _, _ in site.nodes.writes] == ["", "status"]


async def test_twenty_conflicts_are_borne_and_then_the_queue_tries_again() -> None:
    site = Site()
    async with site.managed():
        site.nodes.refusals = [conflict("n1") for _ in range(25)]
        site.nodes.put("n1", spec={"taints": [TAINT]}, status=condition("True"))
        await site.time.advance(0.9)
        assert len(site.nodes.refusals) > 5, "conflicts are not retried in a hurry"
        await site.time.advance(30)
        assert not is_uninitialized(site.nodes.node("n1"))
        assert len(site.events.of("Synced")) == 1
        assert site.cloud.asked("metadata") == 2


async def test_a_node_that_is_replaced_meanwhile_gets_nothing_of_the_old_ones() -> None:
    site = Site()
    site.machine.addresses = (Address("InternalIP", "10.0.0.1"),)
    async with site.managed():
        site.cloud.hold.clear()
        site.nodes.put("n1", spec={"taints": [TAINT]}, status=condition("True"))
        await site.time.advance(1)
        site.nodes.is_stale = True
        site.nodes.drop("n1")
        site.nodes.put("n1", spec={"providerID": "aws://i-1"})
        site.cloud.hold.set()
        await site.time.advance(1)
        assert site.nodes.writes == []
        site.nodes.is_stale = False
        site.nodes.catch_up()
        await site.time.advance(1000)
        assert site.nodes.writes == []


@pytest.mark.parametrize("theirs", ["aws://i-1", "fake://other"])
async def test_a_node_that_gets_another_provider_id_meanwhile_gets_nothing_of_this_machine(theirs: str) -> None:
    site = Site()
    site.cloud.add("other", zone="zone-b")
    async with site.managed():
        site.cloud.hold.clear()
        site.nodes.put("n1", spec={"taints": [TAINT]}, status=condition("True"))
        await site.time.advance(1)
        site.nodes.is_stale = True
        site.nodes.put("n1", spec={"providerID": theirs})
        site.cloud.hold.set()
        await site.time.advance(2)
        assert site.nodes.writes == []
        site.nodes.is_stale = False
        site.nodes.catch_up()
        await site.time.advance(1000)
        found = site.nodes.node("n1")
        assert found.spec.provider_id == theirs
        assert is_uninitialized(found) is theirs.startswith("aws")
        assert found.metadata.labels.get("topology.kubernetes.io/zone") == (
            None if is_uninitialized(found) else "zone-b"
        )


async def test_a_node_deleted_meanwhile_is_forgotten() -> None:
    site = Site()
    async with site.managed():
        site.cloud.hold.clear()
        site.nodes.put("n1", spec={"taints": [TAINT]}, status=condition("True"))
        await site.time.advance(1)
        site.nodes.drop("n1")
        site.cloud.hold.set()
        await site.time.advance(1000)
        assert site.nodes.writes == []
        assert site.events.told == []
