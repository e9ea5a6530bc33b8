"""How many reads of one endpoint may be under way at once: as many as it answers without strain.

In: how long each call took and how it ended, and the time. Out: `window`, the number of calls allowed at once. Pure: no
clock is read. It begins small and doubles with every round of answers until the first strain, then grows by one a
round. A 429, a 5xx, a broken connection, and answers that take more than twice as long as they do at best halve it:
once for a round, because calls that were under way together are one message. Each kind of call is compared with itself:
a list of a thousand takes longer than one instance, and is not late for that.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Pace"]

FIRST, LEAST, MOST = 8.0, 1.0, 64.0
LATE_FACTOR, LATE_SLACK_S = 2.0, 0.05
"""Answers are late when they take so many times the best ones, and so much more besides: jitter is not strain."""
SMOOTHING = 0.1
DRIFT = 0.002
"""The best time rises by this part with every answer, so that an endpoint that has become slower for good is not held
against what it once was."""
ONE_MESSAGE_S = 1.0


@dataclass(slots=True)
class _Latency:
    """How long one kind of call takes: at best, and usually."""

    best_s: float
    usual_s: float

    def take(self, seconds: float) -> bool:
        """Note one; whether answers have become late."""
        self.best_s = min(seconds, self.best_s * (1.0 + DRIFT))
        self.usual_s += SMOOTHING * (seconds - self.usual_s)
        return self.usual_s > LATE_FACTOR * self.best_s + LATE_SLACK_S


class Pace:
    """The window of one endpoint."""

    def __init__(self, most: float = MOST) -> None:
        self._most = most
        self._window = min(FIRST, most)
        self._is_doubling = True
        self._latencies: dict[str, _Latency] = {}
        self._halved_at = float("-inf")
        self._quiet_s = ONE_MESSAGE_S

    @property
    def window(self) -> int:
        """How many calls may be under way."""
        return int(self._window)

    def answered(self, operation: str, seconds: float, now: float, under_way: int) -> None:
        """A call was answered well; `under_way`: how many were with it, this one included."""
        latency = self._latencies.get(operation)
        if latency is None:
            latency = self._latencies[operation] = _Latency(seconds, seconds)
        if latency.take(seconds):
            self.strained(now)
            return
        # A window that is not used says nothing about what the endpoint bears.
        if under_way >= self._window / 2:
            step = 1.0 if self._is_doubling else 1.0 / self._window
            self._window = min(self._most, self._window + step)

    def strained(self, now: float) -> None:
        """The endpoint is overloaded, or says so."""
        if now - self._halved_at < self._quiet_s:
            return
        self._halved_at, self._is_doubling = now, False
        self._window = max(LEAST, self._window / 2)
        self._quiet_s = max([ONE_MESSAGE_S, *(latency.usual_s for latency in self._latencies.values())])
        # What was measured under strain must not halve it again before it can have an effect.
        for latency in self._latencies.values():
            latency.usual_s = min(latency.usual_s, LATE_FACTOR * latency.best_s)
