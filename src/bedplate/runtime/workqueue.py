"""The queue between caches and controllers: every key at most once, never two workers on one key.

In: keys, as often as somebody has a reason. Out: keys to work on. The semantics and metric names are client-go's: a
key added while it waits is dropped; one added while it is being worked on comes again afterwards; a failed key comes
back after a delay that doubles, and all retries together keep to an overall rate.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Gauge

from bedplate.core import clock, figures
from bedplate.core.metrics import shared

__all__ = ["QueueMetrics", "RateLimit", "ShutDown", "WorkQueue"]

K = TypeVar("K", bound=Hashable)


class ShutDown(Exception):
    """The queue is closed and empty: the worker may go."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Delays for retries: per key doubling from `first_s` to `cap_s`; overall `per_second` with `burst`."""

    first_s: float = 0.005
    cap_s: float = 1000.0
    per_second: float = 10.0
    burst: int = 100


class QueueMetrics:
    """`workqueue_*` of one registry, labelled by queue name."""

    def __init__(self, registry: CollectorRegistry) -> None:
        label = ("name",)
        slow = tuple(10.0**power for power in range(-8, 4))
        self.depth = Gauge("workqueue_depth", "Current depth of workqueue", label, registry=registry)
        self.adds = figures.Counter(
            "workqueue_adds", "Total number of adds handled by workqueue", label, registry=registry
        )
        self.waits = figures.Histogram(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested.",
            label,
            buckets=slow,
            registry=registry,
        )
        self.works = figures.Histogram(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes.",
            label,
            buckets=slow,
            registry=registry,
        )
        self.unfinished = Gauge(
            "workqueue_unfinished_work_seconds",
            "How many seconds of work has been done that is in progress and hasn't been observed by work_duration.",
            label,
            registry=registry,
        )
        self.longest = Gauge(
            "workqueue_longest_running_processor_seconds",
            "How many seconds has the longest running processor for workqueue been running.",
            label,
            registry=registry,
        )
        self.retries = figures.Counter(
            "workqueue_retries", "Total number of retries handled by workqueue", label, registry=registry
        )


class WorkQueue(Generic[K]):
    """A de-duplicating queue with delays and rate-limited retries. Belongs to one event loop."""

    def __init__(
        self,
        name: str,
        *,
        limit: RateLimit | None = None,
        time: clock.Clock | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self.name = name
        self._limit = limit if limit is not None else RateLimit()
        self._time = time if time is not None else clock.SystemClock()
        metrics = shared(registry if registry is not None else CollectorRegistry(), QueueMetrics)
        self._metrics = metrics
        self._queue: deque[K] = deque()
        self._dirty: dict[K, float] = {}
        """Keys that wait to be worked on, with the time they were added."""
        self._processing: dict[K, float] = {}
        """Keys being worked on, with the time that began."""
        self._delayed: dict[K, float] = {}
        self._timers: list[tuple[float, int, K]] = []
        self._order = itertools.count()
        self._timer: asyncio.Task[None] | None = None
        self._timer_wake = asyncio.Event()
        self._getters: deque[asyncio.Future[None]] = deque()
        self._failures: dict[K, int] = {}
        self._slots_full_at = 0.0
        self._closed = False
        metrics.unfinished.labels(name).set_function(lambda: sum(self._running_s(), 0.0))
        metrics.longest.labels(name).set_function(lambda: max(self._running_s(), default=0.0))
        metrics.depth.labels(name).set_function(lambda: float(len(self._dirty)))

    def __len__(self) -> int:
        return len(self._queue)

    def _running_s(self) -> list[float]:
        now = self._time.monotonic()
        return [now - since for since in self._processing.values()]

    def is_processing(self, key: K) -> bool:
        """Whether a worker has this key and is not done with it."""
        return key in self._processing

    def add(self, key: K, *, is_first: bool = False) -> None:
        """Have `key` worked on, before all that wait if it `is_first`; once, however often it is added before that
        begins."""
        if self._closed or key in self._dirty:
            return
        self._dirty[key] = self._time.monotonic()
        self._metrics.adds.labels(self.name).inc()
        if key not in self._processing:
            if is_first:
                self._queue.appendleft(key)
            else:
                self._queue.append(key)
            self._wake()

    def add_after(self, key: K, seconds: float) -> None:
        """Add `key` later; when it is already to be added, the earlier time counts."""
        if self._closed:
            return
        self._metrics.retries.labels(self.name).inc()
        if seconds <= 0:
            self.add(key)
            return
        due = self._time.monotonic() + seconds
        if key in self._delayed and self._delayed[key] <= due:
            return
        self._delayed[key] = due
        heapq.heappush(self._timers, (due, next(self._order), key))
        if self._timer is None or self._timer.done():
            self._timer = asyncio.get_running_loop().create_task(self._run_timers(), name=f"queue {self.name}")
        else:
            self._timer_wake.set()

    def add_rate_limited(self, key: K, *, at_least_s: float = 0.0) -> float:
        """Add `key` after its backoff, and not before `at_least_s`; the delay that was chosen."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        own = min(self._limit.cap_s, self._limit.first_s * 2.0 ** min(failures, 60))
        delay = max(own, self._overall_delay(), at_least_s)
        self.add_after(key, delay)
        return delay

    def _overall_delay(self) -> float:
        # A token bucket kept as the moment at which it was, or will be, full.
        now = self._time.monotonic()
        per_token = 1.0 / self._limit.per_second
        self._slots_full_at = max(self._slots_full_at, now) + per_token
        return max(0.0, self._slots_full_at - now - self._limit.burst * per_token)

    def forget(self, key: K) -> None:
        """The key succeeded: its next failure starts the backoff from the beginning."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """How often in a row the key has failed."""
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """The next key; the caller must call `done` for it. Raises `ShutDown` when closed and empty."""
        while not self._queue:
            if self._closed:
                raise ShutDown
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                # The wake-up may have been meant for us: pass it on.
                if getter.done() and not getter.cancelled() and self._queue:
                    self._wake()
                raise
        key = self._queue.popleft()
        now = self._time.monotonic()
        self._metrics.waits.labels(self.name).observe(now - self._dirty.pop(key))
        self._processing[key] = now
        return key

    def done(self, key: K) -> None:
        """The work on `key` is over; if it was added meanwhile, it comes again."""
        started = self._processing.pop(key)
        self._metrics.works.labels(self.name).observe(self._time.monotonic() - started)
        if key in self._dirty:
            self._queue.append(key)
            self._wake()

    async def shut_down(self) -> None:
        """Take no more keys; what waits is still handed out, what was delayed is dropped."""
        self._closed = True
        self._delayed.clear()
        self._timers.clear()
        if self._timer is not None:
            self._timer.cancel()
            await asyncio.gather(self._timer, return_exceptions=True)
        while self._getters:
            self._wake()

    def _wake(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    async def _run_timers(self) -> None:
        while self._timers:
            due, _, key = self._timers[0]
            pause = due - self._time.monotonic()
            if pause > 0:
                await self._pause(pause)
                continue
            heapq.heappop(self._timers)
            if self._delayed.get(key) == due:
                del self._delayed[key]
                self.add(key)

    async def _pause(self, seconds: float) -> None:
        """Sleep, or less when an earlier timer was added."""
        self._timer_wake.clear()
        await clock.sleep_unless(self._timer_wake, seconds, self._time)
