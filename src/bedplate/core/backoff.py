"""How long to wait: before the next try, and before the next request where their rate is limited.

In: parameters, the time, a source of randomness. Out: seconds. Pure, except for what an instance counts: failures in a
row, or tokens.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from bedplate.core import clock

__all__ = ["Backoff", "TokenBucket", "jitter"]


def jitter(seconds: float, factor: float, rng: random.Random) -> float:
    """A value between `seconds` and `seconds * (1 + factor)`, as Kubernetes' wait.Jitter gives."""
    return seconds * (1.0 + rng.random() * factor)


@dataclass(slots=True)
class Backoff:
    """Exponential backoff: `first_s`, then `factor` times as long, up to `cap_s`, each with jitter."""

    first_s: float = 0.8
    cap_s: float = 30.0
    factor: float = 2.0
    jitter: float = 1.0
    rng: random.Random = field(default_factory=random.Random)
    failures: int = 0

    def next(self) -> float:
        """Count one more failure and say how long to wait now."""
        # The exponent is bounded so that a long outage cannot overflow the float.
        base = min(self.cap_s, self.first_s * self.factor ** min(self.failures, 64))
        self.failures += 1
        return jitter(base, self.jitter, self.rng)

    def reset(self) -> None:
        """Forget the failures: the next wait is the first again."""
        self.failures = 0


class TokenBucket:
    """`qps` requests per second over time, `burst` at once; the semantics of client-go's flow control.

    Waiters are served in the order they asked: a debt of tokens is a queue of them. `qps` <= 0: no limit.
    """

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
                self.give_back()
                raise
        return seconds

    def give_back(self) -> None:
        """A token that was taken is not used."""
        self._tokens += 1.0
