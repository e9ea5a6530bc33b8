"""Backoff grows to its cap, with jitter, and starts over after a success; a token bucket keeps its rate."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.core import clock
from bedplate.core.backoff import Backoff, TokenBucket


def test_waits_double_up_to_the_cap() -> None:
    backoff = Backoff(first_s=1, cap_s=10, jitter=0)
    assert [backoff.next() for _ in range(6)] == [1, 2, 4, 8, 10, 10]


def test_jitter_only_lengthens_and_at_most_by_its_factor() -> None:
    backoff = Backoff(first_s=1, cap_s=1, jitter=0.5, rng=random.Random(7))
    waits = [backoff.next() for _ in range(200)]
    assert all(1 <= wait <= 1.5 for wait in waits)
    assert len(set(waits)) > 100


def test_reset_forgets_the_failures() -> None:
    backoff = Backoff(first_s=1, cap_s=100, jitter=0)
    backoff.next(), backoff.next()
    backoff.reset()
    assert backoff.next() == 1


def test_thousands_of_failures_do_not_overflow() -> None:
    backoff = Backoff(first_s=1, cap_s=30, jitter=0, failures=100_000)
    assert backoff.next() == 30


class SetClock(clock.SystemClock):
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.at = 0.0

    def monotonic(self) -> float:
        return self.at


@given(
    st.floats(0.5, 100),
    st.integers(1, 20),
    st.lists(st.floats(0, 3), min_size=1, max_size=60),
)
def test_no_window_ever_sees_more_than_burst_plus_rate(qps: float, burst: int, gaps: list[float]) -> None:
    time = SetClock()
    bucket = TokenBucket(qps, burst, time)
    served = []
    for gap in gaps:
        time.at += gap
        served.append(time.at + bucket.reserve())
    assert served == sorted(served)
    for first in range(len(served)):
        for last in range(first, len(served)):
            allowed = burst + (served[last] - served[first]) * qps
            assert last - first + 1 <= allowed + 1e-6


def test_an_idle_bucket_fills_to_its_burst_and_no_further() -> None:
    time = SetClock()
    bucket = TokenBucket(5, 10, time)
    assert [bucket.reserve() for _ in range(10)] == [0.0] * 10
    assert bucket.reserve() == pytest.approx(0.2)
    time.at = 1000
    assert [bucket.reserve() for _ in range(10)] == [0.0] * 10
    assert bucket.reserve() > 0


def test_a_rate_below_zero_is_no_limit() -> None:
    bucket = TokenBucket(-1, 1, SetClock())
    assert {bucket.reserve() for _ in range(1000)} == {0.0}


async def test_a_waiter_waits_and_a_cancelled_one_gives_its_token_back() -> None:
    time = clock.ManualClock()
    bucket = TokenBucket(1, 1, time)
    assert await bucket.wait() == 0
    cancelled = asyncio.ensure_future(bucket.wait())
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    waiting = asyncio.ensure_future(bucket.wait())
    await time.advance(0.9)
    assert not waiting.done()
    await time.advance(0.2)
    assert await waiting == pytest.approx(1.0)
