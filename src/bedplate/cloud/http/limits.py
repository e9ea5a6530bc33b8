"""How fast one endpoint may be asked.

In: the clock, and word of every answer, 429 and Retry-After. Out: `admit`, which returns when a call may be sent, and
`leave`, which a caller that was admitted must call afterwards. Reads are as many at once as the endpoint answers
without strain (`pace`), so they are as fast as it answers; a rate is only a ceiling for those who set one. Mutating
calls have a bucket of their own and no window, so that a load balancer's fail-over never queues behind a refresh of a
thousand nodes. A 429 halves the rate of reads for a minute (where none is set: that of the last second), and that of
mutating calls when one of these was refused; then the rate doubles every quarter of a minute until it is whole.
Mutating calls never fall below one a second: a fail-over is two of them, and a Retry-After, which holds back every call
to the endpoint, protects it all the same.
"""

from __future__ import annotations

import asyncio
from collections import deque

from bedplate.cloud.http.pace import Pace
from bedplate.core import clock

__all__ = ["Bucket", "Limits"]

MUTATING_QPS = 5.0
MUTATING_BURST = 20
CALM_S = 60.0
DOUBLING_S = 15.0
# Calls under way when the first 429 arrives are refused too; together they are one message, not twenty.
ONE_MESSAGE_S = 1.0
SLOWEST = 1 / 64
MUTATING_SLOWEST = 1 / MUTATING_QPS
LEAST_MEASURED_QPS = 10.0


class Bucket:
    """Tokens drip in at a rate that falls and recovers; waiters are served in turn. qps <= 0: no limit."""

    def __init__(self, qps: float, burst: int, time: clock.Clock, slowest: float = SLOWEST) -> None:
        """`slowest`: the part of the rate that is left however often the other side complains."""
        self._qps = qps
        self._burst = max(1, burst)
        self._slowest = slowest
        self._time = time
        self._tokens = float(self._burst)
        self._at = time.monotonic()
        self._factor = 1.0
        self._slowed_at = float("-inf")
        self._turn = asyncio.Lock()
        self._measured_qps = LEAST_MEASURED_QPS
        self._taken: deque[float] = deque()
        """When tokens were taken in the last second, where no rate is set."""

    def factor(self) -> float:
        """Which part of the full rate is in force now."""
        calm_s = self._time.monotonic() - self._slowed_at - CALM_S
        if calm_s <= 0 or self._factor >= 1.0:
            return self._factor
        # Beyond this exponent every factor is whole again; the bound keeps a long calm from overflowing.
        return min(1.0, self._factor * 2 ** min(calm_s / DOUBLING_S, 64.0))

    def slow_down(self) -> None:
        """The other side said that this is too fast."""
        now = self._time.monotonic()
        if now - self._slowed_at < ONE_MESSAGE_S:
            return
        if self._qps <= 0 and self.factor() >= 1.0:
            self._forget(now)
            self._measured_qps = max(LEAST_MEASURED_QPS, float(len(self._taken)))
            # What was not counted so far is not saved up either; the call that was refused may try again.
            self._tokens, self._at = 1.0, now
        self._factor = max(self._slowest, self.factor() / 2)
        self._slowed_at = now
        self._tokens = min(self._tokens, self._capacity())

    def _capacity(self) -> float:
        burst = self._burst if self._qps > 0 else min(self._burst, self._measured_qps)
        return max(1.0, burst * self.factor())

    def _missing_s(self) -> float:
        """How long until there is a token; 0 when there is one."""
        if self._qps <= 0 and self.factor() >= 1.0:
            return 0.0
        # A client without a rate that is told to slow down halves the one at which it was asking.
        rate = (self._qps if self._qps > 0 else self._measured_qps) * self.factor()
        now = self._time.monotonic()
        self._tokens = min(self._capacity(), self._tokens + (now - self._at) * rate)
        self._at = now
        return max(0.0, (1.0 - self._tokens) / rate)

    async def take(self) -> None:
        """Wait for a token and take it."""
        async with self._turn:
            # The rate may change while we wait, hence the loop.
            while (missing_s := self._missing_s()) > 1e-9:
                await self._time.sleep(missing_s)
            self._tokens -= 1.0
            if self._qps <= 0:
                self._tokens = max(0.0, self._tokens)
                now = self._time.monotonic()
                self._taken.append(now)
                self._forget(now)

    def _forget(self, now: float) -> None:
        while self._taken and self._taken[0] <= now - 1.0:
            self._taken.popleft()


class Limits:
    """The two buckets of an endpoint, the window of its reads, and the pause it may have asked for."""

    def __init__(self, qps: float, burst: int, time: clock.Clock) -> None:
        self._time = time
        self.pace = Pace()
        self.under_way = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.reads = Bucket(qps, burst, time)
        self.mutations = Bucket(MUTATING_QPS, MUTATING_BURST, time, MUTATING_SLOWEST)
        self._paused_until = float("-inf")

    def paused_s(self) -> float:
        """For how long the endpoint still wants to be left alone."""
        return max(0.0, self._paused_until - self._time.monotonic())

    def pause(self, seconds: float) -> None:
        """The endpoint sent a Retry-After: no call is made before that."""
        self._paused_until = max(self._paused_until, self._time.monotonic() + seconds)

    def refused(self, *, is_mutating: bool) -> None:
        """The endpoint answered 429. Reads give way either way: they are the many."""
        self.reads.slow_down()
        self.strained()
        if is_mutating:
            self.mutations.slow_down()

    def answered(self, operation: str, seconds: float) -> None:
        """A read of this kind was answered well, after so long."""
        self.pace.answered(operation, seconds, self._time.monotonic(), self.under_way)

    def strained(self) -> None:
        """The endpoint answered 5xx, or not at all."""
        self.pace.strained(self._time.monotonic())

    def leave(self, *, is_mutating: bool) -> None:
        """A call that was admitted is over, however it ended."""
        if not is_mutating:
            self.under_way -= 1
            self._wake()

    async def admit(self, *, is_mutating: bool, patience_s: float) -> float:
        """Wait until a call may be sent; the seconds that took. `OverflowError` when a pause outlasts `patience_s`."""
        started = self._time.monotonic()
        bucket = self.mutations if is_mutating else self.reads
        await self._rest(patience_s)
        await bucket.take()
        if not is_mutating:
            await self._enter()
        try:
            # A pause may have begun while we queued.
            await self._rest(patience_s)
        except BaseException:
            self.leave(is_mutating=is_mutating)
            raise
        return self._time.monotonic() - started

    async def _enter(self) -> None:
        """Wait for a place among the reads that are under way; first come, first served."""
        if self.under_way < self.pace.window and not self._waiting:
            self.under_way += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except BaseException:
            if place.done() and not place.cancelled():
                # It was given in the very moment in which the caller gave up.
                self.leave(is_mutating=False)
            elif place in self._waiting:
                self._waiting.remove(place)
            raise

    def _wake(self) -> None:
        while self._waiting and self.under_way < self.pace.window:
            place = self._waiting.popleft()
            if not place.done():
                self.under_way += 1
                place.set_result(None)

    async def _rest(self, patience_s: float) -> None:
        while (paused_s := self.paused_s()) > 1e-9:
            if paused_s > patience_s:
                raise OverflowError
            await self._time.sleep(paused_s)
