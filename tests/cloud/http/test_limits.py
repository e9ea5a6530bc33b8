"""How fast an endpoint is asked: two buckets, halving and recovery, pauses for all."""

from __future__ import annotations

import asyncio

import pytest

from bedplate.cloud.http.limits import Bucket, Limits
from bedplate.core.clock import ManualClock


async def taken_within(bucket: Bucket, time: ManualClock, seconds: float, wanted: int = 2000) -> int:
    """How many tokens are handed out to a crowd within so many seconds."""
    count = 0

    async def take() -> None:
        nonlocal count
        await bucket.take()
        count += 1

    tasks = [asyncio.ensure_future(take()) for _ in range(wanted)]
    await time.advance(seconds)
    got = count
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return got


async def test_a_burst_at_once_and_then_the_rate() -> None:
    time = ManualClock()
    assert await taken_within(Bucket(10, 30, time), time, 5.0, wanted=300) in (79, 80)


async def test_no_limit_means_none_until_the_endpoint_complains() -> None:
    time = ManualClock()
    bucket = Bucket(0, 1, time)
    assert await taken_within(bucket, time, 0.0, wanted=500) == 500
    bucket.slow_down()
    assert 200 <= await taken_within(bucket, time, 1.0, wanted=500) <= 251, "half of what was asked in a second"


async def test_what_was_not_counted_without_a_limit_is_not_saved_up() -> None:
    time = ManualClock()
    bucket = Bucket(0, 200, time)
    await time.advance(600.0)
    assert await taken_within(bucket, time, 0.0, wanted=40) == 40
    bucket.slow_down()
    assert await taken_within(bucket, time, 0.0, wanted=40) == 1
    assert await taken_within(bucket, time, 1.0, wanted=40) <= 20
    await time.advance(30.0)
    assert await taken_within(bucket, time, 0.0, wanted=200) <= 20, "nor is more than a second's while it is slow"


async def test_a_429_halves_the_rate_for_a_minute_and_then_it_grows_back() -> None:
    time = ManualClock()
    bucket = Bucket(100, 200, time)
    bucket.slow_down()
    assert bucket.factor() == 0.5
    await time.advance(60)
    assert bucket.factor() == 0.5
    await time.advance(7.5)
    assert 0.5 < bucket.factor() < 1.0
    await time.advance(7.5)
    assert bucket.factor() == 1.0
    await time.advance(1e9)
    assert bucket.factor() == 1.0


async def test_refusals_of_calls_under_way_count_once_and_later_ones_again() -> None:
    time = ManualClock()
    bucket = Bucket(100, 200, time)
    for _ in range(20):
        bucket.slow_down()
    assert bucket.factor() == 0.5
    for _ in range(10):
        await time.advance(1)
        bucket.slow_down()
    assert bucket.factor() == pytest.approx(1 / 64), "and never slower than this"


async def test_however_often_it_is_refused_a_fail_over_waits_two_seconds_for_its_two_calls() -> None:
    time = ManualClock()
    limits = Limits(100, 100, time)
    for _ in range(10):
        await time.advance(1)
        limits.refused(is_mutating=True)
    assert limits.reads.factor() == pytest.approx(1 / 64)
    while not limits.mutations._missing_s():
        await limits.mutations.take()
    moving = [asyncio.ensure_future(limits.admit(is_mutating=True, patience_s=30)) for _ in range(2)]
    await time.advance(2.1)
    assert all(one.done() for one in moving)


async def test_a_slower_rate_holds_for_those_who_wait_already() -> None:
    time = ManualClock()
    bucket = Bucket(10, 1, time)
    count = 0

    async def take() -> None:
        nonlocal count
        await bucket.take()
        count += 1

    tasks = [asyncio.ensure_future(take()) for _ in range(100)]
    await time.advance(1.0)
    before = count
    bucket.slow_down()
    await time.advance(2.0)
    assert before in (10, 11) and 9 <= count - before <= 11
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_waiter_that_is_cancelled_takes_nothing() -> None:
    time = ManualClock()
    bucket = Bucket(1, 1, time)
    await bucket.take()
    waiting = [asyncio.ensure_future(bucket.take()) for _ in range(2)]
    await time.advance(0.5)
    waiting[0].cancel()
    await asyncio.wait([waiting[0]])
    await time.advance(0.6)
    assert waiting[1].done()


async def test_mutating_calls_do_not_queue_behind_reads() -> None:
    time = ManualClock()
    limits = Limits(1, 1, time)
    reads = [asyncio.ensure_future(limits.admit(is_mutating=False, patience_s=30)) for _ in range(50)]
    await time.advance(0.1)
    assert await limits.admit(is_mutating=True, patience_s=30) == 0.0
    for task in reads:
        task.cancel()
    await asyncio.gather(*reads, return_exceptions=True)


async def test_mutating_calls_are_five_a_second_after_twenty() -> None:
    time = ManualClock()
    assert await taken_within(Limits(1000, 1000, time).mutations, time, 4.0, wanted=100) in (39, 40)


async def test_a_refused_read_slows_reads_and_a_refused_change_slows_both() -> None:
    time = ManualClock()
    limits = Limits(100, 100, time)
    limits.refused(is_mutating=False)
    assert (limits.reads.factor(), limits.mutations.factor()) == (0.5, 1.0)
    await time.advance(2)
    limits.refused(is_mutating=True)
    assert (limits.reads.factor(), limits.mutations.factor()) == (0.25, 0.5)


async def test_a_pause_holds_everybody_even_who_queues_already() -> None:
    time = ManualClock()
    limits = Limits(1, 1, time)
    await limits.admit(is_mutating=False, patience_s=30)
    read = asyncio.ensure_future(limits.admit(is_mutating=False, patience_s=30))
    await time.advance(0.5)
    limits.pause(20)
    limits.pause(5)
    change = asyncio.ensure_future(limits.admit(is_mutating=True, patience_s=30))
    await time.advance(19)
    assert not read.done() and not change.done()
    await time.advance(2)
    assert read.done() and change.done() and await read == pytest.approx(20.5)


async def test_who_has_no_patience_for_a_pause_is_told_at_once() -> None:
    limits = Limits(1, 1, ManualClock())
    limits.pause(31)
    with pytest.raises(OverflowError):
        await limits.admit(is_mutating=False, patience_s=30)
