"""Wait for a cluster to get somewhere, and say what it lacked when it does not.

In: a probe that answers "" when satisfied or else what is missing, the programs that must stay alive meanwhile. Out: a
return, or an error with the last answer, the log file to read and its last lines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock
from bedplate.lab.nodes import Daemon
from bedplate.lab.processes import tail

__all__ = ["Waiter"]

_POLL_S = 0.25


class Waiter:
    """One deadline for a whole start, and the programs started so far."""

    def __init__(self, timeout_s: float, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._timeout_s = timeout_s
        self._end = self._clock.monotonic() + timeout_s
        self.daemons: list[Daemon] = []

    @property
    def rest_s(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self._end - self._clock.monotonic())

    async def until(self, what: str, probe: Callable[[], Awaitable[str]], log: Path) -> None:
        """Return when the probe is satisfied. A program that ends meanwhile, or the deadline, is an error."""
        answer = ""
        while True:
            for daemon in self.daemons:
                if failure := daemon.failure():
                    raise failure
            try:
                async with asyncio.timeout(self.rest_s):
                    answer = await probe()
            except TimeoutError:
                answer = answer or "no answer"
            except errors.BedplateError as err:
                answer = str(err).splitlines()[-1]
            if not answer:
                return
            if not self.rest_s:
                raise errors.Unavailable(
                    f"{what}: timed out after {self._timeout_s:.0f} s ({answer}); last lines of {log}:\n{tail(log)}"
                )
            await self._clock.sleep(_POLL_S)
