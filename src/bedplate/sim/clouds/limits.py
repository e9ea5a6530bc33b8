"""The rate limiter that a cloud may put before its API: a token bucket.

In: the moment of each request. Out: 0 when it may pass, else how many seconds the caller should wait.
"""

from __future__ import annotations

from bedplate.core import clock

__all__ = ["RateLimit"]


class RateLimit:
    """`rate` requests a second, `burst` at once; the defaults are those of the BMM server when it has one on."""

    def __init__(self, time: clock.Clock, rate: float = 10.0, burst: int = 30) -> None:
        self._time = time
        self.rate = rate
        self.burst = burst
        self._left = float(burst)
        self._at = time.monotonic()

    def wait_s(self) -> float:
        """Take one; says how long to wait when there is none."""
        now = self._time.monotonic()
        self._left = min(float(self.burst), self._left + (now - self._at) * self.rate)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return (1 - self._left) / self.rate
