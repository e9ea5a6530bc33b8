"""How many reads may be under way: growth while the endpoint answers well, halves when it is strained.

`Endpoint` is a model of a server with a number of workers: beyond that calls queue, and beyond its queue they get 429.
"""

from __future__ import annotations

import asyncio

import pytest

from bedplate.cloud.http.limits import Limits
from bedplate.cloud.http.pace import MOST, Pace
from bedplate.core.clock import ManualClock

VIEW, LIST = "instance_view", "instance_list"


def rounds(pace: Pace, count: int, seconds: float = 0.01, now: float = 0.0) -> float:
    """So many rounds of a full window, all answered well; the time afterwards."""
    for _ in range(count):
        under_way = pace.window
        for _ in range(under_way):
            pace.answered(VIEW, seconds, now, under_way)
        now += seconds
    return now


def test_it_doubles_round_by_round_until_the_most() -> None:
    pace = Pace()
    windows = [pace.window]
    for _ in range(4):
        rounds(pace, 1)
        windows.append(pace.window)
    assert windows == [8, 16, 32, 64, 64] and MOST == 64


def test_a_window_that_is_not_used_does_not_grow() -> None:
    pace = Pace()
    for _ in range(1000):
        pace.answered(VIEW, 0.01, 0.0, under_way=1)
    assert pace.window == 8


def test_strain_halves_it_once_for_calls_under_way_together() -> None:
    pace = Pace()
    now = rounds(pace, 3)
    for _ in range(30):
        pace.strained(now)
    assert pace.window == 32
    for _ in range(20):
        now += 2.0
        pace.strained(now)
    assert pace.window == 1


def test_after_strain_it_grows_by_one_a_round() -> None:
    pace = Pace()
    now = rounds(pace, 3)
    pace.strained(now)
    now = rounds(pace, 4, now=now)
    assert 35 <= pace.window <= 36


def test_answers_that_become_late_halve_it() -> None:
    pace = Pace()
    now = rounds(pace, 3)
    for _ in range(40):
        pace.answered(VIEW, 0.5, now, pace.window)
    assert pace.window == 32


def test_jitter_is_not_strain() -> None:
    pace = Pace()
    for number in range(2000):
        pace.answered(VIEW, 0.002 + 0.004 * (number % 7 == 0), number * 0.001, pace.window)
    assert pace.window == MOST


def test_a_list_that_takes_longer_than_a_view_is_not_strain() -> None:
    pace = Pace()
    now = rounds(pace, 3)
    for number in range(200):
        pace.answered(LIST if number % 5 == 0 else VIEW, 1.5 if number % 5 == 0 else 0.01, now, pace.window)
        now += 0.1
    assert pace.window == MOST
    for _ in range(40):
        pace.answered(LIST, 5.0, now, pace.window)
    assert pace.window == MOST / 2, "but it is compared with what lists took before"


def test_an_endpoint_that_is_slower_for_good_is_not_starved() -> None:
    pace = Pace()
    now = rounds(pace, 3)
    for _ in range(20_000):
        pace.answered(VIEW, 0.3, now, pace.window)
        now += 0.3 / pace.window
    assert pace.window > 8


class Endpoint:
    """So many workers, each of which takes so long; a queue, and 429 beyond it."""

    def __init__(self, time: ManualClock, workers: int, seconds: float, queue: int) -> None:
        self._time, self._seconds, self._room = time, seconds, workers + queue
        self._workers = asyncio.Semaphore(workers)
        self.inside = self.most = self.served = self.refused = 0

    async def serve(self) -> bool:
        if self.inside >= self._room:
            self.refused += 1
            await self._time.sleep(0.001)
            return False
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            async with self._workers:
                await self._time.sleep(self._seconds)
        finally:
            self.inside -= 1
        self.served += 1
        return True


async def load(limits: Limits, time: ManualClock, endpoint: Endpoint, callers: int, seconds: float) -> None:
    async def call() -> None:
        while True:
            await limits.admit(is_mutating=False, patience_s=60)
            started = time.monotonic()
            try:
                is_served = await endpoint.serve()
                if is_served:
                    limits.answered(VIEW, time.monotonic() - started)
                else:
                    limits.refused(is_mutating=False)
            finally:
                limits.leave(is_mutating=False)
            if not is_served:
                await time.sleep(0.5)

    tasks = [asyncio.ensure_future(call()) for _ in range(callers)]
    for _ in range(int(seconds / 0.05)):
        await time.advance(0.05)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_without_a_ceiling_it_is_as_fast_as_the_endpoint_answers() -> None:
    time = ManualClock()
    endpoint = Endpoint(time, workers=100, seconds=0.02, queue=100)
    await load(Limits(0, 200, time), time, endpoint, callers=32, seconds=3)
    assert endpoint.served > 0.8 * 32 / 0.02 * 3 * 0.4, "far beyond a hundred a second"
    assert endpoint.refused == 0


async def test_a_ceiling_holds_however_fast_the_endpoint_is() -> None:
    time = ManualClock()
    endpoint = Endpoint(time, workers=100, seconds=0.02, queue=100)
    await load(Limits(50, 50, time), time, endpoint, callers=32, seconds=4)
    assert endpoint.served <= 50 + 50 * 4


async def test_a_slow_endpoint_is_asked_by_fewer_at_once() -> None:
    time = ManualClock()
    endpoint = Endpoint(time, workers=4, seconds=0.05, queue=1000)
    await load(Limits(0, 200, time), time, endpoint, callers=60, seconds=20)
    limits_free = 60
    assert endpoint.most < limits_free, "an unlimited client would have had all its callers in the queue"
    assert endpoint.served > 0.7 * 4 / 0.05 * 20, "and the endpoint is busy all the same"


async def test_an_endpoint_that_refuses_is_refused_to_a_few_times_only() -> None:
    time = ManualClock()
    endpoint = Endpoint(time, workers=4, seconds=0.05, queue=4)
    await load(Limits(0, 200, time), time, endpoint, callers=60, seconds=20)
    # Sixty callers that wait half a second after each refusal would be refused some 2,000 times.
    assert endpoint.refused < 150


async def test_a_retry_after_holds_every_read_back() -> None:
    time = ManualClock()
    limits, endpoint = Limits(0, 200, time), Endpoint(time, workers=10, seconds=0.01, queue=10)
    limits.pause(5.0)
    await load(limits, time, endpoint, callers=10, seconds=4)
    assert endpoint.served == 0
    await load(limits, time, endpoint, callers=10, seconds=2)
    assert endpoint.served > 0


@pytest.mark.parametrize("is_given", [True, False])
async def test_a_reader_that_gives_up_leaves_its_place_to_others(is_given: bool) -> None:
    time = ManualClock()
    limits = Limits(0, 200, time)
    for _ in range(limits.pace.window):
        await limits.admit(is_mutating=False, patience_s=30)
    waiting = [asyncio.ensure_future(limits.admit(is_mutating=False, patience_s=30)) for _ in range(2)]
    await time.advance(0.1)
    if is_given:
        limits.leave(is_mutating=False)
    waiting[0].cancel()
    await asyncio.wait([waiting[0]])
    if not is_given:
        limits.leave(is_mutating=False)
    await time.advance(0.1)
    assert waiting[1].done()
    assert limits.under_way == limits.pace.window


async def test_mutating_calls_need_no_place() -> None:
    time = ManualClock()
    limits = Limits(0, 200, time)
    for _ in range(limits.pace.window):
        await limits.admit(is_mutating=False, patience_s=30)
    assert await limits.admit(is_mutating=True, patience_s=30) == 0.0
