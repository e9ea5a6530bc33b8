"""A clock for tests that wait: sleeping takes no time, but the clock has moved by as much when it is over."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from bedplate.core import clock


class LeapingClock(clock.SystemClock):
    """All that was slept, and nothing else: a slow machine does not move it. A task that waits for a moment gets
    there."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self._ahead_s = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self._ahead_s)

    def monotonic(self) -> float:
        return 1000.0 + self._ahead_s

    def leap(self, seconds: float) -> None:
        """Let time pass."""
        self._ahead_s += seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.leap(max(0.0, seconds))
        await asyncio.sleep(0)
