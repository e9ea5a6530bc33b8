"""The controller loop: what each outcome of a reconcile leads to."""

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from bedplate.core import errors, logging
from bedplate.core.clock import ManualClock
from bedplate.runtime.cache import Cache
from bedplate.runtime.controller import Controller, Result


@pytest.fixture
def logs() -> Iterator[io.StringIO]:
    out = io.StringIO()
    logging.configure(logging.LogOptions(), out)
    yield out
    logging.configure(logging.LogOptions())


@asynccontextmanager
async def running(
    reconcile: Callable[[str], Awaitable[Result | None]], **options: Any
) -> AsyncIterator[tuple[Controller, ManualClock]]:
    clock = ManualClock()
    controller = Controller("test", reconcile, time=clock, **options)
    task = asyncio.create_task(controller.run())
    await clock.advance(0)
    yield controller, clock
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_success_is_not_repeated() -> None:
    calls: list[str] = []

    async def reconcile(key: str) -> None:
        calls.append(key)

    async with running(reconcile) as (controller, clock):
        controller.queue.add("a")
        await clock.advance(1000)
    assert calls == ["a"]


async def test_requeue_after_comes_back_at_that_time() -> None:
    times: list[float] = []

    async def reconcile(key: str) -> Result:
        times.append(clock.monotonic())
        return Result(30)

    async with running(reconcile) as (controller, clock):
        controller.queue.add("a")
        await clock.advance(65)
    assert [round(later - times[0]) for later in times] == [0, 30, 60]


async def test_a_retryable_error_comes_back_not_before_the_time_asked_for(logs: io.StringIO) -> None:
    times: list[float] = []

    async def reconcile(key: str) -> None:
        times.append(clock.monotonic())
        if len(times) == 1:
            raise errors.Unavailable("cloud says wait", retry_after_s=12)

    async with running(reconcile) as (controller, clock):
        controller.queue.add("a")
        await clock.advance(60)
    assert len(times) == 2
    assert times[1] - times[0] >= 12
    assert "cloud says wait" in logs.getvalue()


async def test_a_terminal_error_is_told_once_and_not_retried(logs: io.StringIO) -> None:
    calls: list[str] = []

    async def reconcile(key: str) -> None:
        calls.append(key)
        raise errors.Invalid("provider ID is malformed", hint="fix spec.providerID")

    async with running(reconcile) as (controller, clock):
        controller.queue.add("a")
        await clock.advance(5000)
        assert calls == ["a"]
        controller.queue.add("a")
        await clock.advance(1)
    assert calls == ["a", "a"]
    assert logs.getvalue().count("provider ID is malformed") == 2
    assert "fix spec.providerID" in logs.getvalue()


@pytest.mark.parametrize("kind", [errors.Denied, errors.NotFound, errors.AlreadyExists])
async def test_what_others_may_mend_unheard_is_retried_with_backoff(kind: type[errors.Terminal]) -> None:
    """A role that is granted, a quota that is freed, a Secret that is created: no watch of ours tells of it."""
    times: list[float] = []

    async def reconcile(key: str) -> None:
        times.append(clock.monotonic())
        if len(times) < 15:
            raise kind("no")

    async with running(reconcile) as (controller, clock):
        controller.queue.add("a")
        await clock.advance(3600)
    assert len(times) == 15
    assert times[-1] - times[-2] > 30


async def test_a_bug_is_logged_with_its_traceback_and_retried_with_backoff(logs: io.StringIO) -> None:
    calls = 0

    async def reconcile(key: str) -> None:
        nonlocal calls
        calls += 1
        raise ZeroDivisionError

    async with running(reconcile) as (controller, clock):
        controller.queue.add("a")
        await clock.advance(10)
    assert 5 < calls < 20
    assert "ZeroDivisionError" in logs.getvalue()


async def test_no_more_than_the_given_number_of_reconciles_run_at_once() -> None:
    now, most = 0, 0

    async def reconcile(key: str) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await clock.sleep(1)
        now -= 1

    async with running(reconcile, workers=3) as (controller, clock):
        for number in range(20):
            controller.queue.add(str(number))
        await clock.advance(20)
    assert most == 3


async def test_a_reconcile_that_hangs_is_ended_and_retried() -> None:
    calls = 0

    async def reconcile(key: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            await asyncio.Event().wait()

    async with running(reconcile, timeout_s=0.02) as (controller, clock):
        controller.queue.add("a")
        async with asyncio.timeout(30):
            while calls < 2:
                await asyncio.sleep(0.01)
                await clock.advance(1)


async def test_a_cancellation_that_is_not_ours_does_not_end_the_worker(logs: io.StringIO) -> None:
    """A reconcile that awaits what somebody else cancelled: without care, the only worker would be gone, unheard."""
    calls: list[str] = []

    async def reconcile(key: str) -> None:
        calls.append(key)
        if len(calls) == 1:
            other = asyncio.ensure_future(asyncio.Event().wait())
            other.cancel()
            await other

    async with running(reconcile) as (controller, clock):
        controller.queue.add("a")
        await clock.advance(10)
        assert calls == ["a", "a"]
    assert "reconcile.bug" in logs.getvalue()


async def test_a_reconcile_that_answers_its_cancellation_with_an_error_does_not_stop_the_stop() -> None:
    begun = asyncio.Event()

    async def reconcile(key: str) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise errors.Unavailable("half done") from None

    controller = Controller("test", reconcile, time=ManualClock())
    task = asyncio.create_task(controller.run())
    controller.queue.add("a")
    await begun.wait()
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=30)
    assert done and task.cancelled()


async def test_nothing_is_reconciled_before_every_cache_is_complete() -> None:
    calls: list[str] = []

    async def reconcile(key: str) -> None:
        calls.append(key)

    clock = ManualClock()
    first: Cache[Any] = Cache()
    second: Cache[Any] = Cache()
    controller = Controller("test", reconcile, time=clock).watches(first).watches(second)
    task = asyncio.create_task(controller.run())
    first.replace([{"metadata": {"name": "a", "resourceVersion": "1"}}], "1")
    await clock.advance(1)
    assert calls == []
    second.replace([], "1")
    await clock.advance(1)
    assert calls == ["a"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_outcomes_are_counted() -> None:
    registry = CollectorRegistry()

    async def reconcile(key: str) -> Result | None:
        if key == "bad":
            raise errors.Terminal("no")
        return Result(60) if key == "later" else None

    async with running(reconcile, registry=registry) as (controller, clock):
        for key in ("good", "bad", "later"):
            controller.queue.add(key)
        await clock.advance(1)
    for result in ("success", "error", "requeue_after"):
        labels = {"controller": "test", "result": result}
        assert registry.get_sample_value("controller_runtime_reconcile_total", labels) == 1
    for name in ("reconcile_errors", "terminal_reconcile_errors"):
        assert registry.get_sample_value(f"controller_runtime_{name}_total", {"controller": "test"}) == 1
