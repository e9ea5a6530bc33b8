"""The manual clock moves only when told, and wakes sleepers in order."""

import asyncio
import time
from datetime import UTC, datetime

import pytest

from bedplate.core import clock


async def test_sleepers_wake_in_order_of_their_time() -> None:
    manual = clock.ManualClock()
    woken: list[str] = []

    async def sleeper(name: str, seconds: float) -> None:
        await manual.sleep(seconds)
        woken.append(name)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sleeper("late", 5))
        tasks.create_task(sleeper("early", 1))
        await manual.advance(4.9)
        assert woken == ["early"]
        await manual.advance(0.2)
    assert woken == ["early", "late"]


async def test_a_jump_of_the_wall_clock_does_not_wake_sleepers() -> None:
    manual = clock.ManualClock()
    task = asyncio.create_task(manual.sleep(10))
    before = manual.monotonic()
    manual.jump(3600)
    await manual.advance(9)
    assert not task.done()
    assert manual.monotonic() == before + 9
    await manual.advance(1)
    await task


def test_times_are_written_as_kubernetes_writes_them() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert clock.rfc3339(moment) == "2026-01-02T03:04:05Z"
    assert clock.rfc3339_micro(moment) == "2026-01-02T03:04:05.000006Z"
    assert clock.parse_rfc3339(clock.rfc3339_micro(moment)) == moment


def test_a_time_without_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        clock.parse_rfc3339("2026-01-02T03:04:05")


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux counts the time it slept")
def test_time_passes_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader on a machine that slept for an hour must not believe that it renewed its lease a second ago."""
    before = clock.SystemClock().monotonic()
    asleep = time.clock_gettime(time.CLOCK_BOOTTIME) + 3600
    monkeypatch.setattr(time, "clock_gettime", {time.CLOCK_BOOTTIME: asleep}.__getitem__)
    assert clock.SystemClock().monotonic() - before >= 3600


async def test_a_sleep_ends_with_its_time_or_with_the_event() -> None:
    manual, event = clock.ManualClock(), asyncio.Event()
    sleeping = asyncio.create_task(clock.sleep_unless(event, 5.0, manual))
    await manual.advance(4.9)
    assert not sleeping.done()
    await manual.advance(0.2)
    assert sleeping.done()
    sleeping = asyncio.create_task(clock.sleep_unless(event, 5.0, manual))
    await manual.advance(1.0)
    assert not sleeping.done()
    event.set()
    await manual.advance(0.0)
    assert sleeping.done()
