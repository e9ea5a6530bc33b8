"""What will happen in a simulated cloud later: run when the cloud is read, so that no task has to wait for it.

In: callbacks with the moment they are due. Out: they are called, in order, by the first `run` after that moment.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from bedplate.core import clock

__all__ = ["Agenda"]


class Agenda:
    """Due callbacks, by the passed clock."""

    def __init__(self, time: clock.Clock) -> None:
        self._time = time
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Do it then; at once when there is nothing to wait for."""
        if seconds <= 0:
            act()
        else:
            heapq.heappush(self._due, (self._time.monotonic() + seconds, next(self._order), act))

    def run(self) -> None:
        """Do what is due."""
        now = self._time.monotonic()
        while self._due and self._due[0][0] <= now:
            heapq.heappop(self._due)[2]()
