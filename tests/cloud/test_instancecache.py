"""The instance cache: how often the cloud is asked, and that nothing here turns a list into an absence."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry

from bedplate.cloud.errors import CloudError, InstanceNotFound
from bedplate.cloud.http import errors as http_errors
from bedplate.cloud.instancecache import IncompleteList, InstanceCache
from bedplate.cloud.metrics import InstanceCacheMetrics
from bedplate.core import clock

TTL_S = 30.0


@dataclass(frozen=True)
class Machine:
    id: str
    name: str
    state: str = "on"


class Cloud:
    """A source that counts what it is asked; `hidden` machines exist but are missing from lists."""

    def __init__(self, count: int, page: int = 100) -> None:
        self.machines = {f"id-{n}": Machine(f"id-{n}", f"node-{n}") for n in range(count)}
        self.hidden: set[str] = set()
        self.page = page
        self.gets: list[str] = []
        self.searches: list[str] = []
        self.pages = self.lists = 0
        self.gate: asyncio.Event | None = None
        self.list_error: Exception | None = None
        self.get_error: Exception | None = None

    @property
    def calls(self) -> int:
        return len(self.gets) + len(self.searches) + self.pages

    async def _wait(self) -> None:
        await asyncio.sleep(0)
        if self.gate is not None:
            await self.gate.wait()

    async def get(self, key: str) -> Machine:
        self.gets.append(key)
        await self._wait()
        if self.get_error is not None:
            raise self.get_error
        if key not in self.machines:
            raise InstanceNotFound(key)
        return self.machines[key]

    async def list(self) -> Sequence[Machine]:
        self.lists += 1
        self.pages += max(1, -(-len(self.machines) // self.page))
        found = [machine for key, machine in self.machines.items() if key not in self.hidden]
        await self._wait()
        if self.list_error is not None:
            raise self.list_error
        return found

    async def search(self, name: str) -> Sequence[Machine]:
        self.searches.append(name)
        await self._wait()
        return [machine for machine in self.machines.values() if machine.name == name]

    def key(self, instance: Machine) -> str:
        return instance.id

    def name(self, instance: Machine) -> str:
        return instance.name


@dataclass
class Setup:
    cloud: Cloud
    cache: InstanceCache[Machine]
    time: clock.ManualClock
    registry: CollectorRegistry

    def sample(self, name: str) -> float:
        return self.registry.get_sample_value(name, {"provider": "test"}) or 0.0


def make(count: int, ttl_s: float = TTL_S) -> Setup:
    cloud, time, registry = Cloud(count), clock.ManualClock(), CollectorRegistry()
    cache = InstanceCache(cloud, provider="test", ttl_s=ttl_s, time=time, metrics=InstanceCacheMetrics(registry))
    return Setup(cloud, cache, time, registry)


def fault(kind: type[http_errors.ApiError]) -> http_errors.ApiError:
    return kind(http_errors.Subject("test", "GET", "/x", 500), "broken")


async def test_an_answer_is_good_for_the_ttl_and_counted() -> None:
    s = make(3)
    for _ in range(4):
        await s.cache.get("id-1")
    assert s.cloud.gets == ["id-1"]
    assert s.sample("ccm_instance_cache_hits_total") == 3 and s.sample("ccm_instance_cache_misses_total") == 1
    await s.time.advance(TTL_S)
    await s.cache.get("id-1")
    assert s.cloud.gets == ["id-1", "id-1"]


async def test_fresh_asks_the_cloud_every_time_and_what_it_says_is_kept() -> None:
    s = make(3)
    await s.cache.get("id-1")
    s.cloud.machines["id-1"] = Machine("id-1", "node-1", "off")
    assert (await s.cache.get("id-1")).state == "on"
    assert (await s.cache.get("id-1", fresh=True)).state == "off"
    assert (await s.cache.get("id-1")).state == "off" and len(s.cloud.gets) == 2
    assert s.cloud.lists == 0


async def test_fresh_does_not_join_a_question_that_is_under_way() -> None:
    s = make(3)
    s.cloud.gate = asyncio.Event()
    first = asyncio.ensure_future(s.cache.get("id-1"))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(s.cache.get("id-1", fresh=True))
    await asyncio.sleep(0)
    s.cloud.gate.set()
    await asyncio.gather(first, second)
    assert s.cloud.gets == ["id-1", "id-1"]


async def test_many_who_ask_the_same_share_one_question() -> None:
    s = make(3)
    answers = await asyncio.gather(*(s.cache.get("id-1") for _ in range(20)))
    assert len(set(answers)) == 1 and s.cloud.gets == ["id-1"]


async def test_an_error_reaches_all_who_wait_and_is_not_kept() -> None:
    s = make(3)
    s.cloud.get_error = fault(http_errors.Unavailable)
    outcomes = await asyncio.gather(*(s.cache.get("id-1") for _ in range(3)), return_exceptions=True)
    assert all(isinstance(outcome, http_errors.Unavailable) for outcome in outcomes) and len(s.cloud.gets) == 1
    s.cloud.get_error = None
    assert (await s.cache.get("id-1")).id == "id-1"


async def test_when_the_one_who_asked_is_cancelled_another_asks() -> None:
    s = make(3)
    s.cloud.gate = asyncio.Event()
    first = asyncio.ensure_future(s.cache.get("id-1"))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(s.cache.get("id-1"))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    s.cloud.gate.set()
    assert (await second).id == "id-1" and first.cancelled()


async def test_a_waiter_that_is_cancelled_leaves_the_others_their_answer() -> None:
    s = make(3)
    s.cloud.gate = asyncio.Event()
    first = asyncio.ensure_future(s.cache.get("id-1"))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(s.cache.get("id-1"))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    s.cloud.gate.set()
    assert (await first).id == "id-1"


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("count", [1000, 1037])
async def test_a_refresh_of_all_costs_a_list_and_four_calls(count: int, by_name: bool) -> None:
    s = make(count)
    gate = asyncio.Semaphore(16)

    async def ask(n: int) -> None:
        async with gate:
            if by_name:
                assert [machine.id for machine in await s.cache.find(f"node-{n}")] == [f"id-{n}"]
            else:
                assert (await s.cache.get(f"id-{n}")).id == f"id-{n}"

    for _ in range(3):
        before = s.cloud.calls
        await asyncio.gather(*(ask(n) for n in range(count)))
        assert s.cloud.calls - before <= count / 100 + 10
        await s.time.advance(300)
    assert s.cloud.lists == 3


async def test_few_instances_are_asked_for_one_by_one() -> None:
    s = make(1000)
    for n in range(4):
        await s.cache.get(f"id-{n}")
    assert s.cloud.lists == 0 and len(s.cloud.gets) == 4
    await s.time.advance(TTL_S)
    for n in range(4, 8):
        await s.cache.get(f"id-{n}")
    assert s.cloud.lists == 0, "what was asked a TTL ago does not count"


async def test_absence_from_a_list_proves_nothing() -> None:
    s = make(20)
    s.cloud.hidden = {"id-19"}
    for n in range(20):
        assert (await s.cache.get(f"id-{n}")).id == f"id-{n}"
    assert s.cloud.gets[-1] == "id-19" and s.cloud.lists == 1
    assert [machine.id for machine in await s.cache.find("node-19")] == ["id-19"], "a name is searched for, too"


async def test_only_the_source_says_that_an_instance_is_absent_and_it_is_asked_each_time() -> None:
    s = make(20)
    for n in range(20):
        await s.cache.get(f"id-{n}")
    for _ in range(3):
        with pytest.raises(InstanceNotFound):
            await s.cache.get("id-99")
    assert s.cloud.gets.count("id-99") == 3
    del s.cloud.machines["id-3"]
    with pytest.raises(InstanceNotFound):
        await s.cache.get("id-3", fresh=True)
    with pytest.raises(InstanceNotFound):
        await s.cache.get("id-3")


@pytest.mark.parametrize(
    "kind", [http_errors.Protocol, http_errors.Forbidden, http_errors.Invalid, http_errors.NotFound]
)
async def test_a_list_that_cannot_be_used_does_not_keep_single_instances_from_being_read(
    kind: type[http_errors.ApiError],
) -> None:
    s = make(10)
    s.cloud.list_error = fault(kind)
    for n in range(10):
        assert (await s.cache.get(f"id-{n}")).id == f"id-{n}"
    assert s.cloud.lists == 1 and len(s.cloud.gets) == 10


@pytest.mark.parametrize(
    "kind",
    [http_errors.Transport, http_errors.Unavailable, http_errors.RateLimited, http_errors.Unauthorized],
)
async def test_a_cloud_that_is_down_is_not_asked_for_every_instance_instead(kind: type[http_errors.ApiError]) -> None:
    s = make(10)
    for n in range(4):
        await s.cache.get(f"id-{n}")
    s.cloud.list_error = fault(kind)
    for n in range(4, 10):
        with pytest.raises(CloudError):
            await s.cache.get(f"id-{n}")
    assert len(s.cloud.gets) == 4


async def test_a_single_answer_asked_after_a_list_was_begun_is_newer() -> None:
    s = make(10)
    for n in range(4):
        await s.cache.get(f"id-{n}")
    s.cloud.gate = asyncio.Event()
    listing = asyncio.ensure_future(s.cache.get("id-5"))
    await asyncio.sleep(0)
    await s.time.advance(1)
    s.cloud.machines["id-7"] = Machine("id-7", "node-7", "off")
    fresh = asyncio.ensure_future(s.cache.get("id-7", fresh=True))
    await asyncio.sleep(0)
    s.cloud.gate.set()
    await asyncio.gather(listing, fresh)
    assert (await s.cache.get("id-7")).state == "off"


async def ask_for_all(s: Setup) -> None:
    """Enough for a list."""
    for key in list(s.cloud.machines):
        await s.cache.get(key)


async def test_was_absent_needs_a_complete_list_or_search_that_is_young_enough() -> None:
    s = make(6)
    assert not s.cache.was_absent("node-9", 600)
    await ask_for_all(s)
    assert s.cache.was_absent("node-9", 600) and not s.cache.was_absent("node-1", 600)
    await s.time.advance(601)
    assert not s.cache.was_absent("node-9", 600)
    assert await s.cache.find("node-9") == ()
    assert s.cache.was_absent("node-9", 600)
    await s.time.advance(40)
    s.cloud.machines["id-9"] = Machine("id-9", "node-9")
    await s.cache.find("node-9")
    assert not s.cache.was_absent("node-9", 600), "the latest word counts"
    s.cloud.list_error = fault(http_errors.Protocol)
    await s.time.advance(1000)
    await ask_for_all(s)
    assert s.cloud.lists == 2 and not s.cache.was_absent("node-8", 600), "a list that failed says nothing"


async def test_several_of_one_name_are_all_found() -> None:
    s = make(10)
    s.cloud.machines["id-77"] = Machine("id-77", "node-7")
    assert {machine.id for machine in await s.cache.find("node-7")} == {"id-7", "id-77"}
    for n in range(10):
        await s.cache.find(f"node-{n}")
    assert s.cloud.lists == 1
    assert {machine.id for machine in await s.cache.find("node-7")} == {"id-7", "id-77"}


async def test_a_list_that_takes_longer_than_the_ttl_serves_all_who_waited() -> None:
    s = make(50)
    s.cloud.gate = asyncio.Event()
    s.cloud.gate.set()
    for n in range(4):
        await s.cache.get(f"id-{n}")
    s.cloud.gate.clear()
    waiting = []
    for n in range(4, 50):
        waiting.append(asyncio.ensure_future(s.cache.get(f"id-{n}")))
        await s.time.advance(1)
    s.cloud.gate.set()
    await asyncio.gather(*waiting)
    assert s.cloud.lists == 1 and len(s.cloud.gets) == 4


async def test_an_incomplete_list_spares_calls_but_is_no_evidence() -> None:
    s = make(50)
    s.cloud.list_error = IncompleteList("it changed", [s.cloud.machines[f"id-{n}"] for n in range(45)])
    for n in range(50):
        assert (await s.cache.get(f"id-{n}")).id == f"id-{n}"
    assert s.cloud.lists == 1 and s.cloud.gets[4:] == [f"id-{n}" for n in range(45, 50)]
    assert not s.cache.was_absent("node-99", 600)
    assert [machine.id for machine in await s.cache.find("node-49")] == ["id-49"]
    assert s.cloud.searches == ["node-49"], "a namesake may have been missed: the name is searched for"


async def test_a_ttl_of_zero_asks_the_cloud_every_time() -> None:
    s = make(10, ttl_s=0)
    for _ in range(2):
        for n in range(10):
            await s.cache.get(f"id-{n}")
            await s.cache.find(f"node-{n}")
    assert len(s.cloud.gets) == len(s.cloud.searches) == 20 and s.cloud.lists == 0


async def test_an_instance_that_a_list_holds_twice_is_one() -> None:
    s = make(10)
    machines = list(s.cloud.machines.values())

    async def doubled() -> Sequence[Machine]:
        return machines + machines

    s.cloud.list = doubled  # type: ignore[method-assign]
    await ask_for_all(s)
    assert await s.cache.find("node-7") == (machines[7],)
