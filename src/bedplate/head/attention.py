"""Time as a head can hold it against others: what passes while the head itself stands still does not count.

In: a clock, and how long others may be silent. Out: `now`, seconds that grow while the head listens. A head that got no
processor, was stopped, or ran on a machine that was suspended, has heard of no node for so long; by the machine's clock
all of them would be down until their next reports have been read, and roll-outs would stop.
"""

from __future__ import annotations

from bedplate.core.clock import Clock
from bedplate.core.logging import get_logger

__all__ = ["Attention"]

_LOG = get_logger("head.attention")
_SHARE, _SHORTEST_S = 0.1, 0.05
_LATE = 2.0


class Attention:
    """`run` until cancelled: it notes ten times within `span_s` that the head listens. Before it runs all time counts.
    A pause counts for two notes at most, also for whoever asks before the first note after it."""

    def __init__(self, clock: Clock, span_s: float) -> None:
        self._clock = clock
        self._period_s = max(span_s * _SHARE, _SHORTEST_S)
        self._noted_s: float | None = None
        self._lost_s = 0.0

    def now(self) -> float:
        """Seconds; only differences mean something."""
        now_s = self._clock.monotonic()
        return now_s - self._lost_s - self._missed(now_s)

    async def run(self) -> None:
        while True:
            self._note()
            await self._clock.sleep(self._period_s)

    def _note(self) -> None:
        now_s = self._clock.monotonic()
        missed_s = self._missed(now_s)
        if missed_s:
            _LOG.warning(
                "head.stood_still", seconds=round(missed_s, 1), effect="nodes are not blamed for their silence"
            )
        self._lost_s += missed_s
        self._noted_s = now_s

    def _missed(self, now_s: float) -> float:
        if self._noted_s is None:
            return 0.0
        return max(0.0, now_s - self._noted_s - _LATE * self._period_s)
