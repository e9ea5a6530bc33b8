"""Hours of a cloud's outage in a second: nothing is deleted, nothing is tainted, and everything goes on afterwards.

Both node controllers run with a clock that the test moves, on nodes in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest
from prometheus_client import CollectorRegistry
from tests.cloud.controllers.fakenodes import FakeNodes, condition
from tests.cloud.scripted import FAULTS, Events, ScriptedProvider

from bedplate.api import core
from bedplate.api.names import TAINT_UNINITIALIZED
from bedplate.cloud.controllers.lifecycle import LifecycleController, LifecycleOptions
from bedplate.cloud.controllers.node import NodeController
from bedplate.cloud.routing import Clouds
from bedplate.cloud.taints import SHUTDOWN, is_uninitialized
from bedplate.core.clock import ManualClock

TAINT = {"key": TAINT_UNINITIALIZED, "value": "true", "effect": "NoSchedule"}
HOUR_S = 3600.0


class Site:
    """Ten nodes of one cloud: nine with machines, one without."""

    def __init__(self) -> None:
        self.time = ManualClock()
        self.nodes = FakeNodes()
        self.cloud = ScriptedProvider("fake")
        self.events = Events()
        for number in range(9):
            self.cloud.add(f"n{number}")
        for number in range(10):
            self.nodes.put(f"n{number}", spec={"providerID": f"fake://n{number}"}, status=condition("True"))

    def fail(self, kind: str) -> None:
        self.cloud.fault = lambda operation, node: FAULTS[kind]()

    def recover(self) -> None:
        self.cloud.fault = lambda operation, node: None

    @contextlib.asynccontextmanager
    async def managed(
        self, options: LifecycleOptions | None = None, clouds: Sequence[ScriptedProvider] = ()
    ) -> AsyncIterator[None]:
        """A manager's node controllers, from start to stop."""
        registry = CollectorRegistry()
        common = (self.nodes, Clouds(clouds or [self.cloud], time=self.time), self.nodes.cache, self.events)
        one = NodeController(*common, None, self.time, registry)  # type: ignore[arg-type]
        two = LifecycleController(*common, options, self.time, registry)  # type: ignore[arg-type]
        tasks = [asyncio.create_task(part.run()) for part in (*one.parts(), *two.parts())]
        try:
            await self.time.advance(0)
            yield
            assert not any(task.done() for task in tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("kind", ["timeout", "401", "404-route", "503", "bad-json"])
async def test_an_outage_of_an_hour_deletes_nothing_and_recovers_by_itself(kind: str) -> None:
    site = Site()
    async with site.managed():
        site.nodes.writes.clear()
        site.fail(kind)
        for number in range(10):
            site.nodes.put(f"n{number}", status=condition("Unknown"))
        site.cloud.add("new", "new")
        site.nodes.put("new", spec={"taints": [TAINT]}, status=condition("False"))
        await site.time.advance(HOUR_S)
        assert site.nodes.deleted == []
        assert site.nodes.writes == []
        assert len(site.nodes.raw) == 11
        assert site.cloud.asked("exists", "n0") > HOUR_S / 10
        site.recover()
        for number in range(9):
            site.nodes.put(f"n{number}", status=condition("True"))
        await site.time.advance(600)
        assert [name for name, _ in site.nodes.deleted] == ["n9"]
        assert not is_uninitialized(site.nodes.node("new"))
        assert site.events.of("Synced", "new")


async def test_an_outage_that_ends_in_an_empty_cloud_deletes_nothing() -> None:
    site = Site()
    async with site.managed():
        site.fail("503")
        for number in range(10):
            site.nodes.put(f"n{number}", status=condition("Unknown"))
        await site.time.advance(HOUR_S)
        site.recover()
        site.cloud.machines.clear()
        await site.time.advance(HOUR_S)
        assert site.nodes.deleted == []
        assert len(site.events.of("NodeDeletionBlocked")) >= 10
        assert len(site.events.of("NodeDeletionBlocked", "n0")) < 20, "told now and then, not every five seconds"


@pytest.mark.parametrize("after_s", [0.0, 5.0, 5.1, 9.9])
async def test_a_restart_in_the_middle_asks_again_from_the_start(after_s: float) -> None:
    site = Site()
    site.nodes.put("n9", status=condition("False"))
    patient = LifecycleOptions(node_deletion_confirmations=3)
    async with site.managed(patient):
        await site.time.advance(after_s)
    asked = site.cloud.asked("exists", "n9")
    assert asked
    async with site.managed(patient):
        await site.time.advance(9.9)
        assert site.nodes.deleted == []
        await site.time.advance(0.2)
        assert [name for name, _ in site.nodes.deleted] == ["n9"]
    assert site.cloud.asked("exists", "n9") == asked + 3


async def test_two_managers_in_a_row_delete_a_node_once() -> None:
    site = Site()
    uid = site.nodes.put("n9", status=condition("False")).metadata.uid
    for _ in range(2):
        async with site.managed():
            await site.time.advance(60)
    assert site.nodes.deleted == [("n9", uid)]
    assert len(site.events.of("DeletingNode")) == 1


async def test_a_lagging_cache_does_not_delete_a_node_that_came_back() -> None:
    site = Site()
    site.nodes.put("n9", status=condition("False"))
    site.nodes.is_stale = True
    async with site.managed():
        site.nodes.put("n9", status=condition("True"))
        await site.time.advance(60)
        assert site.nodes.deleted == []
        assert not site.events.of("DeletingNode")


async def test_a_lagging_cache_does_not_delete_a_node_twice() -> None:
    site = Site()
    site.nodes.put("n9", status=condition("False"))
    async with site.managed():
        site.nodes.is_stale = True
        await site.time.advance(60)
        assert len(site.nodes.deleted) == 1
        assert len(site.events.of("DeletingNode")) == 1


async def test_a_bug_in_a_pass_forgets_what_was_learned_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    site.nodes.put("n9", status=condition("False"))
    async with site.managed():
        place, calls = Clouds.place, 0

        def stumble(self: Clouds, node: core.Node) -> object:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise RuntimeError("a bug")
            return place(self, node)

        monkeypatch.setattr(Clouds, "place", stumble)
        await site.time.advance(10)
        assert site.nodes.deleted == []
        await site.time.advance(150)
        assert [name for name, _ in site.nodes.deleted] == ["n9"]


@pytest.mark.parametrize("has_instances", [True, False])
async def test_a_name_may_be_of_a_cloud_that_cannot_be_asked(has_instances: bool) -> None:
    site = Site()
    site.nodes.put("unnamed", status=condition("False"))
    other = ScriptedProvider("other")
    if not has_instances:
        other.instances = None
    async with site.managed(clouds=[site.cloud, other]):
        await site.time.advance(600)
        assert [name for name, _ in site.nodes.deleted] == (["unnamed"] if has_instances else [])


async def test_an_hour_of_a_stopped_machine_is_one_taint() -> None:
    site = Site()
    site.cloud.machines["n0"].is_off = True
    site.nodes.put("n0", status=condition("Unknown"))
    async with site.managed():
        await site.time.advance(HOUR_S)
        taints = [body for _, name, body in site.nodes.writes if name == "n0" and "taints" in body.get("spec", {})]
        assert len(taints) == 1
        assert SHUTDOWN in site.nodes.node("n0").spec.taints
        site.nodes.put("n0", status=condition("True"))
        await site.time.advance(6)
        assert SHUTDOWN not in site.nodes.node("n0").spec.taints


async def test_only_so_many_questions_are_open_at_once_and_the_next_pass_waits_for_the_last() -> None:
    site = Site()
    site.cloud.add("n9")
    for number in range(10):
        site.nodes.put(f"n{number}", status=condition("False"))
    async with site.managed(LifecycleOptions(concurrent_node_lifecycle_checks=3)):
        await site.time.advance(5)
        site.cloud.hold.clear()
        site.cloud.calls.clear()
        await site.time.advance(60)
        assert site.cloud.asked("exists") == 3
        site.cloud.hold.set()
        await site.time.advance(0)
        assert site.cloud.asked("exists") == 10
        await site.time.advance(4.9)
        assert site.cloud.asked("exists") == 10
        await site.time.advance(0.2)
        assert site.cloud.asked("exists") == 20


async def test_an_hour_of_a_quiet_cluster_writes_nothing() -> None:
    site = Site()
    async with site.managed():
        await site.time.advance(HOUR_S)
        first = len(site.nodes.writes)
        for _ in range(20):
            for number in range(10):
                site.nodes.put(f"n{number}", status=condition("True"))
            await site.time.advance(HOUR_S / 20)
        assert len(site.nodes.writes) == first
        assert site.cloud.asked("exists") == 0
        assert site.cloud.asked("metadata", "n0") < 30
