"""A head that stood still does not take its own pause for the silence of its nodes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from bedplate.core.clock import ManualClock
from bedplate.head.attention import Attention
from bedplate.head.health import Health
from bedplate.store.interface import Store


class StoppedClock(ManualClock):
    """`stand_still` lets time pass while nothing runs, as on a machine that is suspended."""

    def stand_still(self, seconds: float) -> None:
        self._monotonic += seconds


@contextlib.asynccontextmanager
async def listening(attention: Attention) -> AsyncIterator[None]:
    task = asyncio.create_task(attention.run())
    try:
        yield
    finally:
        task.cancel()


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


async def test_time_passes_as_on_the_clock_while_the_head_listens(clock: StoppedClock) -> None:
    attention = Attention(clock, 60.0)
    start_s = attention.now()
    async with listening(attention):
        for _ in range(7):
            await clock.advance(100.0)
        assert attention.now() - start_s == 700.0


async def test_a_pause_counts_for_a_fifth_of_the_span_at_most_before_and_after_it_was_noticed(
    clock: StoppedClock,
) -> None:
    attention = Attention(clock, 60.0)
    async with listening(attention):
        await clock.advance(6.0)
        start_s = attention.now()
        clock.stand_still(3600.0)
        assert attention.now() - start_s == 12.0
        await clock.advance(0.0)
        assert attention.now() - start_s == 12.0
        await clock.advance(30.0)
        assert attention.now() - start_s == 42.0


async def test_nodes_that_reported_before_a_pause_are_up_after_it_and_down_once_they_are_silent(
    store: Store, clock: StoppedClock
) -> None:
    async with Health(store, clock=clock, silence_s=60.0) as health, listening(health.attention):
        await health.record("node001")
        await health.record("node002")
        health.left("node002")
        clock.stand_still(3600.0)
        assert (health.state("node001"), health.state("node002")) == ("UP", "DOWN")
        await clock.advance(40.0)
        assert health.state("node001") == "UP"
        await clock.advance(21.0)
        assert health.state("node001") == "DOWN"
        await health.record("node001")
        assert health.state("node001") == "UP"
