"""The circuit breaker: after five transport failures in a row no call is made for fifteen seconds.

In: the outcome of every attempt. Out: whether an attempt may be made. After the pause one attempt is let through; its
outcome decides for all. An answer of any status proves that the endpoint is there, and closes the breaker.
"""

from __future__ import annotations

from bedplate.core import clock

__all__ = ["Breaker"]

FAILURES = 5
OPEN_S = 15.0


class Breaker:
    """Counts failures in a row. Every attempt that was let through must be ended by exactly one of the three calls."""

    def __init__(self, time: clock.Clock) -> None:
        self._time = time
        self._failures = 0
        self._open_until = float("-inf")
        self._has_probe = False

    @property
    def is_open(self) -> bool:
        return self._failures >= FAILURES

    def rests_for(self) -> float:
        """How long no call is allowed; 0 when the breaker is closed or may be probed. Changes nothing."""
        return max(0.0, self._open_until - self._time.monotonic()) if self.is_open else 0.0

    def refuses_for(self) -> float | None:
        """None: go on. Otherwise: the attempt must not be made, and may be worth another try after so many seconds."""
        if not self.is_open:
            return None
        if (left_s := self.rests_for()) > 0:
            return left_s
        if self._has_probe:
            return 1.0
        self._has_probe = True
        return None

    def succeeded(self) -> None:
        """An answer came."""
        self._failures = 0
        self._has_probe = False

    def failed(self) -> None:
        """None came, or it broke off."""
        self._failures += 1
        self._has_probe = False
        if self.is_open:
            self._open_until = self._time.monotonic() + OPEN_S

    def abandoned(self) -> None:
        """The caller gave up before there was an outcome."""
        self._has_probe = False
