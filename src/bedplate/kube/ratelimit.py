"""A token bucket: `qps` requests per second over time, `burst` at once; the semantics of client-go's flow control.

In: the monotonic time. Out: how long the caller must wait. Waiters are served in the order they asked.
"""

from __future__ import annotations

from bedplate.core import clock

__all__ = ["TokenBucket"]


class TokenBucket:
    """Tokens drip in at `qps` up to `burst`; a debt of tokens is a queue of waiters. `qps` <= 0: no limit."""

    def __init__(self, qps: float, burst: int, time: clock.Clock) -> None:
        self._qps = qps
        self._burst = max(1, burst)
        self._time = time
        self._tokens = float(self._burst)
        self._at = time.monotonic()

    def reserve(self) -> float:
        """Take a token, on credit if need be, and say in how many seconds it is there."""
        if self._qps <= 0:
            return 0.0
        now = self._time.monotonic()
        self._tokens = min(float(self._burst), self._tokens + (now - self._at) * self._qps)
        self._at = now
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._qps)

    async def wait(self) -> float:
        """Wait for a token; the seconds that it took. A cancelled waiter gives its token back."""
        seconds = self.reserve()
        if seconds > 0:
            try:
                await self._time.sleep(seconds)
            except BaseException:
                self._tokens += 1.0
                raise
        return seconds
