"""The cleaner: frees what is proven dead on several looks, and nothing else; holds nobody up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.ipam.node.test_proofs import pod

from bedplate.core import errors
from bedplate.core.clock import ManualClock, SystemClock
from bedplate.ipam.node import poolconfig
from bedplate.ipam.node.cleaner import Cleaner, CleanerOptions, PodAsker
from bedplate.ipam.node.cri import Runtime, Sandbox
from bedplate.ipam.node.ledger import Ledger, LedgerOptions
from bedplate.ipam.node.metrics import CleanerMetrics
from bedplate.ipam.node.poolview import PoolView
from bedplate.ipam.node.proofs import LeanPod
from bedplate.ipam.node.reservations import Owner, Reservation, Wanted
from bedplate.runtime.cache import Cache

POOL = poolconfig.make("p", subnet="10.0.0.0/16", start="10.0.0.1", end="10.0.20.1")


class FakeRuntime(Runtime):
    """A runtime whose sandboxes a test sets; None: it does not answer."""

    listed: list[Sandbox] | None = None

    async def sandboxes(self) -> list[Sandbox]:
        if FakeRuntime.listed is None:
            raise errors.Unavailable("no answer")
        return FakeRuntime.listed


class Ground:
    """A ledger, pods in a cache and at an API server, and a cleaner that looks at them."""

    def __init__(self, ledger: Ledger, time: ManualClock) -> None:
        self.ledger, self.time = ledger, time
        self.view = PoolView("n1")
        self.view.configs["p"] = POOL
        self.pods: Cache[LeanPod] = Cache()
        self.pods.replace([], "1")
        self.server: dict[str, LeanPod] = {}
        self.is_away = False
        self.broken: set[str] = set()
        self.gets: list[str] = []
        self.lists = 0
        self.cleaner = self.make()

    def make(self, *, runtime: Runtime | None = None, **more: Any) -> Cleaner:
        return Cleaner(
            self.ledger,
            self.view,
            "n1",
            self.pods,
            PodAsker(self._get, self._list),
            runtime=runtime,
            options=CleanerOptions(**more),
            metrics=CleanerMetrics(CollectorRegistry()),
            time=self.time,
        )

    async def _get(self, namespace: str, name: str) -> LeanPod | None:
        self.gets.append(name)
        if self.is_away or name in self.broken:
            raise errors.Unavailable("no answer")
        return self.server.get(f"{namespace}/{name}")

    async def _list(self) -> Sequence[LeanPod]:
        self.lists += 1
        if self.is_away:
            raise errors.Unavailable("no answer")
        return list(self.server.values())

    def run(self, *pods: LeanPod, cached: bool = True) -> None:
        """These are the pods there are, and those that the cache has heard of."""
        self.server = {f"default/{one.name}": one for one in pods}
        if cached:
            self.pods.replace(list(pods), "2")

    async def hold(self, container: str, *, name: str = "web", uid: str = "u1") -> Reservation:
        owner = Owner(container, "eth0", uid, name, "default" if name else "")
        return (await self.ledger.allocate(owner, [Wanted(POOL)]))[0]

    def held(self) -> set[str]:
        return {one.container_id for one in self.ledger.reservations()}

    async def passes(self, count: int, cleaner: Cleaner | None = None) -> list[int]:
        """So many passes, a minute apart; what each freed."""
        found = []
        for _ in range(count):
            found.append(await (cleaner or self.cleaner).sweep())
            await self.time.advance(60)
        return found


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    FakeRuntime.listed = None
    time = ManualClock()
    options = LedgerOptions(wall_ns=lambda: int(time.now().timestamp() * 1e9))
    ledger = await Ledger.open(tmp_path / "store", clock=SystemClock(), options=options)
    yield Ground(ledger, time)
    await ledger.close()


# By pods


async def test_a_pod_that_is_gone_is_freed_on_the_fourth_look(ground: Ground) -> None:
    await ground.hold("c1")
    assert await ground.passes(4) == [0, 0, 0, 1]
    assert not ground.held()


async def test_how_often_is_configurable(ground: Ground) -> None:
    await ground.hold("c1")
    assert await ground.passes(3, ground.make(misses=2)) == [0, 1, 0]


async def test_a_pod_that_is_there_keeps_its_address_and_nobody_is_asked(ground: Ground) -> None:
    await ground.hold("c1")
    ground.run(pod())
    assert await ground.passes(6) == [0] * 6
    assert not ground.gets


async def test_a_pod_that_only_the_api_server_knows_keeps_its_address(ground: Ground) -> None:
    await ground.hold("c1")
    ground.run(pod(), cached=False)
    assert await ground.passes(6) == [0] * 6
    assert len(ground.gets) == 6


async def test_a_pod_that_comes_back_starts_the_count_anew(ground: Ground) -> None:
    await ground.hold("c1")
    await ground.passes(3)
    ground.run(pod())
    await ground.passes(1)
    ground.run()
    assert await ground.passes(4) == [0, 0, 0, 1]


@pytest.mark.parametrize("replacement", [pod(uid="u2"), pod(node="n2"), pod(phase="Succeeded")])
async def test_another_pod_of_that_name_keeps_nothing(ground: Ground, replacement: LeanPod) -> None:
    await ground.hold("c1")
    ground.run(replacement)
    assert await ground.passes(4) == [0, 0, 0, 1]


async def test_one_error_hinders_only_its_own_reservation(ground: Ground) -> None:
    await ground.hold("c1", name="broken")
    await ground.hold("c2", name="gone")
    ground.broken.add("broken")
    assert await ground.passes(6) == [0, 0, 0, 1, 0, 0]
    assert ground.held() == {"c1"}
    # What could not be asked was not counted, neither for nor against it.
    ground.broken.clear()
    assert await ground.passes(4) == [0, 0, 0, 1]


async def test_while_the_api_server_is_away_nothing_is_freed(ground: Ground) -> None:
    for number in range(30):
        await ground.hold(f"c{number}", name=f"w{number}")
    ground.is_away = True
    assert await ground.passes(6) == [0] * 6
    assert len(ground.held()) == 30


async def test_a_reservation_without_a_pod_is_kept_for_ever(ground: Ground) -> None:
    await ground.hold("c1", name="", uid="")
    assert await ground.passes(8) == [0] * 8


async def test_many_suspects_cost_one_list_a_pass(ground: Ground) -> None:
    for number in range(300):
        await ground.hold(f"c{number}", name=f"w{number}", uid="old")
    ground.run(*(pod(f"w{number}", uid="old") for number in range(5)), cached=False)
    assert await ground.passes(4) == [0, 0, 0, 295]
    assert (ground.lists, ground.gets) == (4, [])


async def test_two_interfaces_of_a_pod_cost_one_question(ground: Ground) -> None:
    await ground.hold("c1")
    await ground.hold("c2")
    await ground.passes(1)
    assert ground.gets == ["web"]


async def test_an_address_given_anew_meanwhile_is_not_freed(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    await ground.hold("c1")
    await ground.passes(3)
    real = ground.cleaner._free

    async def late(dead: Any) -> int:
        await ground.ledger.release("c1", "eth0")
        await ground.time.advance(1)
        await ground.hold("c1", uid="u2")
        return await real(dead)

    monkeypatch.setattr(ground.cleaner, "_free", late)
    assert await ground.passes(1) == [0]
    assert ground.held() == {"c1"}


async def test_calls_are_served_while_the_api_server_thinks(ground: Ground) -> None:
    await ground.hold("c1")
    gate = asyncio.Event()

    async def slow(namespace: str, name: str) -> LeanPod | None:
        await gate.wait()
        return None

    ground.cleaner._ask = PodAsker(slow, ground._list)
    sweep = asyncio.ensure_future(ground.cleaner.sweep())
    await asyncio.sleep(0.01)
    await ground.hold("c2")
    assert not sweep.done()
    gate.set()
    assert await sweep == 0


# By sandboxes

A, B, C = ("a" * 64, "b" * 64, "c" * 64)


def sandbox(number: str, uid: str) -> Sandbox:
    return Sandbox(number, uid, "default", "web")


async def test_after_a_reboot_old_sandboxes_are_freed_although_their_pods_stay(ground: Ground) -> None:
    await ground.hold(A)
    await ground.time.advance(600)
    await ground.hold(B)
    ground.run(pod())
    FakeRuntime.listed = [sandbox(B, "u1")]
    cleaner = ground.make(runtime=FakeRuntime("/none"))
    assert await ground.passes(4, cleaner) == [0, 1, 0, 0]
    assert ground.held() == {B}


async def test_a_sandbox_that_lives_keeps_its_address_without_a_pod(ground: Ground) -> None:
    await ground.hold(A)
    await ground.time.advance(600)
    FakeRuntime.listed = [sandbox(A, "u1")]
    assert await ground.passes(8, ground.make(runtime=FakeRuntime("/none"))) == [0] * 8


async def test_a_sandbox_that_is_still_being_made_is_left_alone(ground: Ground) -> None:
    await ground.hold(A)
    ground.run(pod(), pod("other", "u2"))
    FakeRuntime.listed = [sandbox(B, "u2")]
    cleaner = ground.make(runtime=FakeRuntime("/none"))
    assert await ground.passes(4, cleaner) == [0, 0, 0, 0]
    FakeRuntime.listed = [sandbox(B, "u2"), sandbox(A, "u1")]
    assert await ground.passes(4, cleaner) == [0, 0, 0, 0]


async def test_a_runtime_that_does_not_answer_proves_nothing(ground: Ground) -> None:
    await ground.hold(A)
    await ground.time.advance(600)
    assert await ground.passes(8, ground.make(runtime=FakeRuntime("/none"))) == [0] * 8


async def test_a_runtime_that_is_not_this_nodes_leaves_the_proof_to_pods(ground: Ground) -> None:
    await ground.hold(A)
    await ground.hold(B, name="gone", uid="u9")
    await ground.time.advance(600)
    ground.run(pod())
    FakeRuntime.listed = []
    assert await ground.passes(5, ground.make(runtime=FakeRuntime("/none"))) == [0, 0, 0, 1, 0]
    assert ground.held() == {A}


async def test_one_look_is_not_enough_after_an_unanswered_one_either(ground: Ground) -> None:
    await ground.hold(A)
    await ground.time.advance(600)
    ground.run(pod())
    cleaner = ground.make(runtime=FakeRuntime("/none"))
    FakeRuntime.listed = [sandbox(B, "u1")]
    assert await ground.passes(1, cleaner) == [0]
    FakeRuntime.listed = None
    assert await ground.passes(2, cleaner) == [0, 0]
    FakeRuntime.listed = [sandbox(B, "u1")]
    assert await ground.passes(1, cleaner) == [1]


# GC


async def test_gc_frees_at_once_what_the_runtime_does_not_have(ground: Ground) -> None:
    for container in (A, B, C):
        await ground.hold(container)
    await ground.time.advance(600)
    ground.run(pod())
    FakeRuntime.listed = [sandbox(B, "u1")]
    candidates = [one for one in ground.ledger.reservations() if one.container_id != C]
    assert await ground.make(runtime=FakeRuntime("/none")).collect(candidates) == 1
    assert ground.held() == {B, C}


async def test_gc_frees_nothing_young(ground: Ground) -> None:
    await ground.hold(A)
    ground.run(pod())
    FakeRuntime.listed = [sandbox(B, "u1")]
    assert await ground.make(runtime=FakeRuntime("/none")).collect(list(ground.ledger.reservations())) == 0


async def test_gc_without_a_runtime_frees_only_what_was_missing_before(ground: Ground) -> None:
    await ground.hold("c1")
    everything = list(ground.ledger.reservations())
    # A pod that was force-deleted a moment ago may still run.
    assert await ground.cleaner.collect(everything) == 0
    assert await ground.cleaner.collect(everything) == 0
    await ground.time.advance(60)
    assert await ground.cleaner.collect(everything) == 1


async def test_gc_frees_no_live_pod(ground: Ground) -> None:
    await ground.hold("c1")
    ground.run(pod())
    for _ in range(4):
        assert await ground.cleaner.collect(list(ground.ledger.reservations())) == 0
        await ground.time.advance(60)


# Records


async def test_an_empty_record_of_a_pool_that_is_gone_is_dropped_and_others_stay(ground: Ground) -> None:
    await ground.hold("c1")
    await ground.ledger.release("c1", "eth0")
    await ground.passes(3)
    assert set(ground.ledger.pools()) == {"p"}
    ground.view.configs.clear()
    await ground.passes(1)
    assert set(ground.ledger.pools()) == {"p"}
    await ground.passes(1)
    assert not ground.ledger.pools()


async def test_a_record_that_holds_something_stays(ground: Ground) -> None:
    await ground.hold("c1", name="", uid="")
    ground.view.configs.clear()
    await ground.passes(4)
    assert ground.held() == {"c1"}


async def test_it_runs_pass_after_pass_and_survives_a_failed_one(ground: Ground) -> None:
    await ground.hold("c1")
    real = ground.ledger.release_proven
    calls = []

    async def flaky(dead: Sequence[Reservation]) -> int:
        calls.append(len(dead))
        if len(calls) == 1:
            raise errors.Unavailable("disk full")
        return await real(dead)

    ground.ledger.release_proven = flaky  # type: ignore[method-assign]
    task = asyncio.ensure_future(ground.cleaner.run())
    for _ in range(500):
        await ground.time.advance(60)
        await asyncio.sleep(0.01)
        if not ground.held():
            break
    assert (calls[0], ground.held()) == (1, set())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
