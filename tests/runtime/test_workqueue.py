"""The work queue: client-go's promises, with a clock that moves only when told."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from bedplate.core.clock import ManualClock
from bedplate.runtime.workqueue import RateLimit, ShutDown, WorkQueue


async def test_a_key_added_twice_is_handed_out_once() -> None:
    queue: WorkQueue[str] = WorkQueue("q")
    queue.add("a")
    queue.add("a")
    assert await queue.get() == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_a_key_added_while_in_work_comes_again_after_done_and_not_before() -> None:
    queue: WorkQueue[str] = WorkQueue("q")
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await queue.get() == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_what_is_added_first_goes_before_all_that_wait() -> None:
    queue: WorkQueue[str] = WorkQueue("q")
    for key in ("a", "b"):
        queue.add(key)
    queue.add("c", is_first=True)
    queue.add("b", is_first=True)
    assert [await queue.get() for _ in range(3)] == ["c", "a", "b"], "what waits already keeps its place"


async def test_no_two_workers_ever_hold_one_key() -> None:
    queue: WorkQueue[int] = WorkQueue("q")
    held: set[int] = set()
    worked = 0

    async def worker() -> None:
        nonlocal worked
        while True:
            try:
                key = await queue.get()
            except ShutDown:
                return
            assert key not in held
            held.add(key)
            await asyncio.sleep(0)
            if worked < 500:
                queue.add(key)
            await asyncio.sleep(0)
            held.remove(key)
            worked += 1
            queue.done(key)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(5):
            tasks.create_task(worker())
        for key in range(3):
            queue.add(key)
        while worked < 500:
            await asyncio.sleep(0)
        await queue.shut_down()


async def test_of_two_delays_the_earlier_counts() -> None:
    clock = ManualClock()
    queue: WorkQueue[str] = WorkQueue("q", time=clock)
    queue.add_after("a", 10)
    queue.add_after("a", 3)
    queue.add_after("a", 20)
    await clock.advance(2.9)
    assert len(queue) == 0
    await clock.advance(0.2)
    assert len(queue) == 1
    await queue.get()
    queue.done("a")
    await clock.advance(60)
    assert len(queue) == 0
    await queue.shut_down()


async def test_retries_of_a_key_double_and_forget_starts_over() -> None:
    clock = ManualClock()
    queue: WorkQueue[str] = WorkQueue("q", time=clock, limit=RateLimit(first_s=1, cap_s=5))
    assert [queue.add_rate_limited("a") for _ in range(5)] == [1, 2, 4, 5, 5]
    assert queue.failures("a") == 5
    queue.forget("a")
    assert queue.add_rate_limited("a") == 1
    await queue.shut_down()


async def test_all_retries_together_keep_to_the_overall_rate() -> None:
    clock = ManualClock()
    queue: WorkQueue[int] = WorkQueue("q", time=clock, limit=RateLimit(first_s=0.001, per_second=10, burst=100))
    delays = [queue.add_rate_limited(key) for key in range(300)]
    assert max(delays[:100]) <= 0.001
    assert delays[-1] == pytest.approx(20, abs=0.5)
    await queue.shut_down()


async def test_a_wait_the_server_asked_for_is_respected() -> None:
    clock = ManualClock()
    queue: WorkQueue[str] = WorkQueue("q", time=clock)
    assert queue.add_rate_limited("a", at_least_s=7) == 7
    await queue.shut_down()


async def test_closing_hands_out_what_waits_and_then_lets_workers_go() -> None:
    queue: WorkQueue[str] = WorkQueue("q")
    queue.add("a")
    queue.add_after("later", 0.01)
    await queue.shut_down()
    queue.add("ignored")
    assert await queue.get() == "a"
    with pytest.raises(ShutDown):
        await queue.get()


async def test_a_cancelled_getter_does_not_take_a_wake_up_with_it() -> None:
    queue: WorkQueue[str] = WorkQueue("q")
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    async with asyncio.timeout(30):
        await asyncio.gather(first, return_exceptions=True)
        if first.cancelled():
            assert await second == "a"
        else:
            second.cancel()


async def test_metrics_have_the_names_dashboards_know() -> None:
    registry = CollectorRegistry()
    queue: WorkQueue[str] = WorkQueue("nodes", registry=registry)
    queue.add("a")
    assert registry.get_sample_value("workqueue_depth", {"name": "nodes"}) == 1
    await queue.get()
    queue.done("a")
    queue.add_rate_limited("a")
    for name in ("adds_total", "retries_total", "queue_duration_seconds_count", "work_duration_seconds_count"):
        assert registry.get_sample_value(f"workqueue_{name}", {"name": "nodes"}) == 1, name
    for name in ("unfinished_work_seconds", "longest_running_processor_seconds"):
        assert registry.get_sample_value(f"workqueue_{name}", {"name": "nodes"}) == 0
    await queue.shut_down()


async def test_depth_and_retries_count_what_client_go_counts() -> None:
    registry, clock = CollectorRegistry(), ManualClock()
    queue: WorkQueue[str] = WorkQueue("q", registry=registry, time=clock)
    queue.add("a")
    await queue.get()
    queue.add("a")
    assert registry.get_sample_value("workqueue_depth", {"name": "q"}) == 1, "it waits for the work on it to end"
    queue.add_after("b", 5)
    queue.add_rate_limited("c")
    assert registry.get_sample_value("workqueue_retries_total", {"name": "q"}) == 2
    await queue.shut_down()


@given(st.lists(st.tuples(st.sampled_from(["add", "get", "done", "later"]), st.integers(0, 3)), max_size=60))
def test_every_added_key_is_worked_on_afterwards(steps: list[tuple[str, int]]) -> None:
    """Whatever the order: after the last add of a key, a get of that key follows."""

    async def play() -> None:
        clock = ManualClock()
        queue: WorkQueue[int] = WorkQueue("q", time=clock)
        held: list[int] = []
        pending: set[int] = set()
        for action, key in steps:
            if action == "add":
                queue.add(key)
                pending.add(key)
            elif action == "later":
                queue.add_after(key, 1)
                pending.add(key)
            elif action == "get" and len(queue):
                taken = await queue.get()
                assert taken not in held
                held.append(taken)
                pending.discard(taken)
            elif action == "done" and held:
                queue.done(held.pop(0))
        await clock.advance(2)
        for key in held:
            queue.done(key)
        while len(queue):
            taken = await queue.get()
            pending.discard(taken)
            queue.done(taken)
        # A key taken before its delay ended may have come again; what matters is that none was lost.
        assert not pending
        await queue.shut_down()

    asyncio.run(play())


async def test_a_key_is_processed_from_get_to_done() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    queue.add("a")
    assert not queue.is_processing("a")
    key = await queue.get()
    assert queue.is_processing("a")
    queue.done(key)
    assert not queue.is_processing("a")
