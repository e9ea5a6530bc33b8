"""When to work on a pool after nodes came or went: soon for one, once for many.

In: `touch(key)` for every change that concerns a pool. Out: the key, handed to a queue when it is due. A status is
one object that every daemon receives whole, so a thousand nodes that join together must not be a thousand writes; but
a node that joins alone must not wait for others that never come.

    a single change         due after `quiet_s` without another one
    a trickle               due at the latest `patience_s` after its first change, and `apart_s` after the one before
    a flood (`FLOOD` or     due after `flood_quiet_s` without another one, at the latest `flood_patience_s` after its
    more changes wait)      first change; what comes within `flood_memory_s` of it belongs to it, and waits up to twice
                            as long as what came before, but never longer than `longest_s`

`due_at` is pure; `Pacer` is the task that waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from bedplate.core import clock

__all__ = ["Flood", "Pace", "Pacer", "Waiting", "due_at"]

FLOOD = 24


@dataclass(frozen=True, slots=True)
class Pace:
    """The times, in seconds."""

    quiet_s: float = 0.06
    patience_s: float = 0.5
    apart_s: float = 1.0
    flood_quiet_s: float = 0.2
    flood_patience_s: float = 2.0
    flood_memory_s: float = 1.0
    longest_s: float = 8.0


@dataclass(frozen=True, slots=True)
class Flood:
    """Many changes of one pool that were released together: when, and the how manieth time in a row."""

    released: float
    times: int = 1


@dataclass(slots=True)
class Waiting:
    """Changes of one pool that wait: the first, the last, how many."""

    first: float
    last: float
    changes: int = 1

    def follows(self, flood: Flood | None, pace: Pace) -> bool:
        """They belong to a flood whose beginning was released already."""
        return flood is not None and self.first < flood.released + pace.flood_memory_s

    def is_flood(self, flood: Flood | None, pace: Pace) -> bool:
        """Many at once, or what follows many."""
        return self.changes >= FLOOD or self.follows(flood, pace)


def due_at(waiting: Waiting, flood: Flood | None, pace: Pace, released: float | None = None) -> float:
    """The moment to work on it; `flood`: the last one of this pool, `released`: when it was worked on last.

    A trickle need not come evenly: API servers tell of changes in small groups, with pauses that end a quiet time.
    """
    if not waiting.is_flood(flood, pace):
        due = min(waiting.first + pace.patience_s, waiting.last + pace.quiet_s)
        return due if released is None else max(due, released + pace.apart_s)
    times = flood.times if flood is not None and waiting.follows(flood, pace) else 0
    patience_s = min(pace.flood_patience_s * 2.0 ** min(times, 10), pace.longest_s)
    return min(waiting.first + patience_s, waiting.last + pace.flood_quiet_s)


class Pacer:
    """Hands keys to `release` when they are due. Run `run()` beside the controller that it feeds."""

    def __init__(
        self, name: str, release: Callable[[str], None], *, pace: Pace | None = None, time: clock.Clock | None = None
    ) -> None:
        self.name = name
        self._release = release
        self._pace = pace if pace is not None else Pace()
        self._time = time if time is not None else clock.SystemClock()
        self._waiting: dict[str, Waiting] = {}
        self._floods: dict[str, Flood] = {}
        self._released: dict[str, float] = {}
        """When a pool was released last."""
        self._wake = asyncio.Event()

    def touch(self, key: str) -> None:
        """Something that concerns this pool changed."""
        now = self._time.monotonic()
        waiting = self._waiting.get(key)
        if waiting is None:
            self._waiting[key] = Waiting(now, now)
            self._wake.set()
        else:
            # The wait may only grow, so the sleeper need not be woken: it looks again when it wakes.
            waiting.last = now
            waiting.changes += 1

    async def run(self) -> None:
        """Wait and release until cancelled."""
        while True:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            now = self._time.monotonic()
            soonest = min(self._look(now), default=now)
            if soonest > now:
                await self._sleep(soonest - now)

    def _look(self, now: float) -> list[float]:
        """Release what is due; when the others will be."""
        later = []
        for key, waiting in list(self._waiting.items()):
            due = due_at(waiting, self._floods.get(key), self._pace, self._released.get(key))
            if due > now:
                later.append(due)
                continue
            del self._waiting[key]
            self._remember(key, waiting, now)
            self._released[key] = now
            self._release(key)
        return later

    def _remember(self, key: str, waiting: Waiting, now: float) -> None:
        before = self._floods.pop(key, None)
        if waiting.changes >= FLOOD:
            is_next = before is not None and waiting.follows(before, self._pace)
            self._floods[key] = Flood(now, before.times + 1 if before is not None and is_next else 1)

    async def _sleep(self, seconds: float) -> None:
        """Until then, or until another pool begins to wait."""
        self._wake.clear()
        await clock.sleep_unless(self._wake, seconds, self._time)
