"""Two heads on one store: at most one is active, another takes over, and commits are safe without any of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from tests.head.committing import commit

from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.head.election import ACTIVE, Candidate, Election, Record, Timing, may_take
from bedplate.head.entities import SCHEMA
from bedplate.head.objects import Obj
from bedplate.head.service import Alone, Head, NotActive
from bedplate.head.session import Edit
from bedplate.head.vault import Vault
from bedplate.store.interface import OutcomeUnknown, Put, Store

TIMING = Timing(lease_s=4.0, renew_s=2.5, retry_s=1.0)


class Flaky:
    """A store that can be cut off, or lose the answer of what it has written."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_away = False
        self.loses_answers = 0

    def __getattr__(self, name: str) -> object:
        if self.is_away:
            raise errors.Unavailable("the store is away")
        return getattr(self._store, name)

    async def commit(self, ops: list[Put]) -> int:
        if self.is_away:
            raise errors.Unavailable("the store is away")
        at = await self._store.commit(ops)
        if self.loses_answers:
            self.loses_answers -= 1
            raise OutcomeUnknown("the answer was lost")
        return at


class Stage:
    """Candidates that run beside a test, on one clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self._running: dict[str, asyncio.Task[None]] = {}

    def candidate(self, name: str, store: object) -> Election:
        own = Candidate(f"{name}-process", name, f"https://{name}:1")
        made = Election(store, own, timing=TIMING, clock=self.clock)  # type: ignore[arg-type]
        self._running[name] = asyncio.create_task(made.run())
        return made

    async def end(self, name: str) -> None:
        task = self._running.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        for name in list(self._running):
            await self.end(name)

    async def until(self, condition: Callable[[], bool], step_s: float = 0.2) -> float:
        """How long it took by the clock of the stage, which stands still while a candidate waits for the store."""
        started = self.clock.monotonic()
        async with asyncio.timeout(60):
            while not condition():
                if self.clock.sleepers >= len(self._running):
                    await self.clock.advance(step_s)
                await asyncio.sleep(0.001)
        return self.clock.monotonic() - started


@pytest.fixture
async def stage(store: Store) -> AsyncIterator[Stage]:
    made = Stage()
    yield made
    await made.close()


def test_a_place_is_free_when_nobody_holds_it_or_its_holder_was_silent_for_the_whole_lease() -> None:
    held = Record("other", lease_s=4.0)
    assert may_take(None, 0.0, 0.0, "own") and may_take(Record(""), 0.0, 0.0, "own")
    assert may_take(Record("own", lease_s=4.0), 0.0, 0.0, "own")
    assert not may_take(held, 10.0, 13.9, "own")
    assert may_take(held, 10.0, 14.0, "own")


async def test_the_first_is_active_and_the_second_says_where_that_one_is(stage: Stage, store: Store) -> None:
    one = stage.candidate("a", store)
    await stage.until(lambda: one.is_active)
    other = stage.candidate("b", store)
    await stage.until(other.decided.is_set)
    assert not other.is_active and other.active_url == "https://a:1" and other.active_name == "a"
    one.refuse_writes()
    with pytest.raises(NotActive, match="passive; a is active") as refused:
        other.refuse_writes()
    assert refused.value.url == "https://a:1"


async def test_what_is_wrong_with_the_store_is_known_until_it_answers_again(stage: Stage, store: Store) -> None:
    flaky = Flaky(store)
    one = stage.candidate("a", flaky)
    await stage.until(lambda: one.is_active)
    assert one.trouble == ""
    flaky.is_away = True
    await stage.until(lambda: one.trouble != "")
    assert one.trouble == "the store is away"
    flaky.is_away = False
    await stage.until(lambda: one.trouble == "")


async def test_a_clean_stop_hands_over_without_waiting_for_the_lease(stage: Stage, store: Store) -> None:
    one = stage.candidate("a", store)
    await stage.until(lambda: one.is_active)
    other = stage.candidate("b", store)
    await stage.until(other.decided.is_set)
    await stage.end("a")
    assert not one.is_active
    assert await stage.until(lambda: other.is_active) < TIMING.lease_s
    assert other.term == one.term + 1


async def test_a_dead_head_is_replaced_after_its_lease_and_not_before(stage: Stage, store: Store) -> None:
    await store.commit([Put(ACTIVE, b'{"identity":"dead","name":"d","url":"https://d:1","lease_s":4.0,"term":7}')])
    other = stage.candidate("b", store)
    await stage.until(other.decided.is_set)
    assert other.active_url == "https://d:1"
    waited = await stage.until(lambda: other.is_active)
    assert waited >= TIMING.lease_s - 0.5
    assert other.term == 8


async def test_a_head_cut_off_from_the_store_has_stopped_before_another_begins(stage: Stage, store: Store) -> None:
    flaky = Flaky(store)
    one = stage.candidate("a", flaky)
    await stage.until(lambda: one.is_active)
    other = stage.candidate("b", store)
    await stage.until(other.decided.is_set)
    flaky.is_away = True
    both = []

    def has_changed() -> bool:
        both.append(one.is_active and other.is_active)
        return other.is_active

    await stage.until(has_changed, 0.1)
    assert not any(both), "never two at once"
    with pytest.raises(NotActive) as refused:
        one.refuse_writes()
    assert refused.value.url == "", "it does not send writers to itself"
    flaky.is_away = False
    await stage.until(lambda: one.active_url == "https://b:1")
    assert not one.is_active


async def test_a_lost_answer_does_not_cost_the_place(stage: Stage, store: Store) -> None:
    flaky = Flaky(store)
    flaky.loses_answers = 3
    one = stage.candidate("a", flaky)
    await stage.until(lambda: one.is_active)
    await stage.until(lambda: flaky.loses_answers == 0)
    assert one.is_active and one.term == 1


async def test_of_many_that_begin_at_once_one_is_active(stage: Stage, store: Store) -> None:
    many = [stage.candidate(f"h{number}", store) for number in range(8)]
    await stage.until(lambda: all(one.decided.is_set() for one in many))
    assert sum(one.is_active for one in many) == 1
    assert len({one.active_url for one in many}) == 1


def test_times_that_cannot_work_are_refused() -> None:
    with pytest.raises(errors.Invalid, match="retry < renew < lease"):
        Timing(lease_s=1.0, renew_s=2.0)


def test_a_head_alone_always_writes() -> None:
    alone = Alone("a", "https://a:1")
    alone.refuse_writes()
    assert alone.is_active and alone.active_url == "https://a:1"


async def test_commits_of_a_head_that_believes_itself_active_lose_nothing(store: Store, vault: Vault) -> None:
    """The fence is the number of the revision, not the election: two writers at once are slower, never wrong."""
    async with Head(store, SCHEMA, vault) as one, Head(store, SCHEMA, vault) as deposed:

        async def add(head: Head, name: str) -> int:
            made = await commit(head, [Edit("softwareimage", name, None, Obj("SoftwareImage", name))], name)
            assert made is not None
            return made.number

        pairs = [(head, f"{side}{number}") for number in range(15) for side, head in (("a", one), ("b", deposed))]
        numbers = await asyncio.gather(*(add(head, name) for head, name in pairs))
        assert sorted(numbers) == list(range(1, 31)), "each acknowledged once, no number twice, no hole"
        await one.catch_up()
        assert sorted(one.tree.mode("softwareimage")) == sorted(name for _, name in pairs)
        authors = [(await one.read(number)).author for number in numbers]
        assert authors == [name for _, name in pairs]
