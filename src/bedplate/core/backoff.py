"""How long to wait before the next try.

In: parameters and a source of randomness. Out: seconds. Pure, except for the count of failures an instance keeps.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

__all__ = ["Backoff", "jitter"]


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
