"""Works off a queue with one task per key, so that work which hangs never holds up other work.

In: keys, and `work(key)`. Out: requeues and log lines. At most `width` keys of a lane (a provider) are worked on at
once; but one that has taken longer than `patience_s` gives its place back and goes on beside the others. Four hung
cloud calls thus cost a fifth Service no more than that patience, and one cloud's trouble costs another cloud nothing.
The queue still never hands out a key that is being worked on.

    seconds returned   again after that time          an error   as `core.requeue` says, and it never gives up
    None               done
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable

from prometheus_client import CollectorRegistry

from bedplate.core import clock, errors, logging, requeue
from bedplate.core.requeue import Outcome, Retry
from bedplate.core.tasks import TaskGroup
from bedplate.runtime.workqueue import RateLimit, WorkQueue

__all__ = ["Dispatcher"]

PATIENCE_S = 2.0
# Per key from 5 s to 5 min; no limit over all keys, because each has its own task.
BACKOFF = RateLimit(first_s=5.0, cap_s=300.0, per_second=1e6, burst=1_000_000)


class _Place:
    """One of the places of a lane, given back once."""

    def __init__(self, lane: asyncio.Semaphore) -> None:
        self._lane = lane
        self._is_held = True

    def give_back(self) -> None:
        if self._is_held:
            self._is_held = False
            self._lane.release()


class Dispatcher:
    """A queue and the tasks that work on its keys."""

    def __init__(
        self,
        name: str,
        work: Callable[[str], Awaitable[float | None]],
        lane: Callable[[str], str],
        *,
        width: int,
        patience_s: float = PATIENCE_S,
        time: clock.Clock,
        registry: CollectorRegistry,
    ) -> None:
        self.queue: WorkQueue[str] = WorkQueue(name, limit=BACKOFF, time=time, registry=registry)
        self._work = work
        self._lane = lane
        self._patience_s = patience_s
        self._time = time
        self._lanes: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(width))
        self._waiting: set[str] = set()
        self._log = logging.get_logger("cloud.dispatch", queue=name)

    def is_waiting(self, key: str) -> bool:
        """Whether a failed key waits for its next turn, which nothing but news should bring forward."""
        return key in self._waiting

    def waiting(self) -> list[str]:
        """All such keys."""
        return list(self._waiting)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with TaskGroup() as tasks:
                while True:
                    key = await self.queue.get()
                    tasks.create_task(self._take(key), name=f"{self.queue.name} {key}")
        finally:
            await self.queue.shut_down()

    async def _take(self, key: str) -> None:
        lane = self._lanes[self._lane(key)]
        try:
            await lane.acquire()
            place = _Place(lane)
            try:
                async with TaskGroup() as both:
                    patience = both.create_task(self._lose_patience(key, place))
                    try:
                        await self._attempt(key)
                    finally:
                        patience.cancel()
            finally:
                place.give_back()
        finally:
            self.queue.done(key)

    async def _lose_patience(self, key: str, place: _Place) -> None:
        await self._time.sleep(self._patience_s)
        self._log.v(2).info("dispatch.slow", object=key, after_s=self._patience_s)
        place.give_back()

    async def _attempt(self, key: str) -> None:
        self._waiting.discard(key)
        try:
            again_s = await self._work(key)
        except (Exception, asyncio.CancelledError) as err:
            if requeue.is_cancelled():
                raise asyncio.CancelledError from err
            self._failed(key, err)
            return
        self.queue.forget(key)
        if again_s is not None:
            self._again(key, again_s)

    def _failed(self, key: str, err: BaseException) -> None:
        decision = requeue.decide(err, gives_up=False)
        delay_s = decision.delay_s
        if decision.retry is Retry.AFTER:
            self._again(key, delay_s)
        else:
            self._waiting.add(key)
            delay_s = self.queue.add_rate_limited(key, at_least_s=delay_s)
        if decision.outcome is Outcome.BUG:
            self._log.exception("dispatch.bug", object=key, retry_in_s=round(delay_s, 3))
        else:
            self._log.warning("dispatch.failed", object=key, error=errors.describe(err), retry_in_s=round(delay_s, 3))

    def _again(self, key: str, seconds: float) -> None:
        if seconds > 0:
            self._waiting.add(key)
        self.queue.add_after(key, seconds)
