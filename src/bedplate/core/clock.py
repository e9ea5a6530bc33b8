"""Time as a value that is passed in.

In: nothing. Out: a `Clock` with wall time, monotonic time and sleep. Programs use `SystemClock`; tests `ManualClock`,
which moves only when told, so that no test sleeps and a jump of the wall clock can be played.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock", "parse_rfc3339", "rfc3339", "rfc3339_micro", "sleep_unless"]


_COUNTS_SLEEP = hasattr(time, "CLOCK_BOOTTIME")


class Clock(Protocol):
    """What code that deals with time receives instead of the `time` module."""

    def now(self) -> datetime:
        """Wall time, in UTC. It may jump; never measure a span with it."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow, also while the machine sleeps."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after that many monotonic seconds."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        # Linux stops its monotonic clock while it is suspended; a lease runs out all the same.
        return time.clock_gettime(time.CLOCK_BOOTTIME) if _COUNTS_SLEEP else time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ManualClock:
    """A clock that stands still until `advance` moves it; `jump` moves the wall time alone."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._wall = start.timestamp()
        self._monotonic = 1000.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._wall, UTC)

    def monotonic(self) -> float:
        return self._monotonic

    @property
    def sleepers(self) -> int:
        """How many tasks sleep now. While one of them works with a disk or a socket, time should stand still."""
        return sum(not future.done() for _, _, future in self._sleepers)

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic + seconds, next(self._order), future))
        await future

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back; spans being slept are not touched."""
        self._wall += seconds

    async def advance(self, seconds: float) -> None:
        """Move both clocks, waking sleepers in order and letting each of them run."""
        target = self._monotonic + seconds
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            due, _, future = heapq.heappop(self._sleepers)
            self._wall += max(0.0, due - self._monotonic)
            self._monotonic = max(self._monotonic, due)
            if not future.done():
                future.set_result(None)
            await self._settle()
        self._wall += target - self._monotonic
        self._monotonic = target
        await self._settle()

    @staticmethod
    async def _settle() -> None:
        for _ in range(20):
            await asyncio.sleep(0)


async def sleep_unless(event: asyncio.Event, seconds: float, time: Clock) -> None:
    """Return after that many seconds, or as soon as the event is set."""
    sleeping = asyncio.ensure_future(time.sleep(seconds))
    waking = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((sleeping, waking), return_when=asyncio.FIRST_COMPLETED)
    finally:
        sleeping.cancel()
        waking.cancel()
        await asyncio.gather(sleeping, waking, return_exceptions=True)


def rfc3339(moment: datetime) -> str:
    """`2026-01-02T03:04:05Z`, as Kubernetes writes metav1.Time."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(moment: datetime) -> str:
    """`2026-01-02T03:04:05.000006Z`, as Kubernetes writes metav1.MicroTime."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_rfc3339(text: str) -> datetime:
    """Read either form back; raises ValueError on anything else."""
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    if moment.tzinfo is None:
        raise ValueError(f"no time zone in {text!r}")
    return moment
