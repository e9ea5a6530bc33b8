"""A client that writes to a cluster once a second, and counts what it had to try again.

In: a client of the cluster, which reaches it as everybody does, through a proxy. Out: the names of the ConfigMaps that
it was told are written, each retry with its error, and how long the slowest write took. What was written and is not
there afterwards is lost. It ends when it is stopped, never because the cluster does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from bedplate.api.resources import CONFIG_MAPS
from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.kube import Client

__all__ = ["Writer"]

_NAMESPACE = "default"
_EVERY_S, _PAUSE_S, _TIMEOUT_S = 1.0, 0.2, 20.0


@dataclass(slots=True)
class Writer:
    """One client. It sends no write twice by itself: every retry is counted."""

    client: Client
    clock: Clock
    written: list[str] = field(default_factory=list)
    retries: list[str] = field(default_factory=list)
    slowest_s: float = 0.0

    async def write(self, is_over: Callable[[], bool], told: Callable[[], None] = lambda: None) -> None:
        """Write until it is over; `told` is called after each write."""
        while not is_over():
            name, start_s = f"write-{len(self.written):05}", self.clock.monotonic()
            while not await self._create(name):
                if is_over():
                    return
                await self.clock.sleep(_PAUSE_S)
            took_s = self.clock.monotonic() - start_s
            self.written.append(name)
            self.slowest_s = max(self.slowest_s, took_s)
            told()
            await self.clock.sleep(max(0.0, _EVERY_S - took_s))

    async def _create(self, name: str) -> bool:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await self.client.create(CONFIG_MAPS, {"metadata": {"name": name}}, _NAMESPACE)
        except errors.AlreadyExists:
            pass  # the answer was lost, the write was not
        except (errors.Unavailable, errors.Denied, TimeoutError) as err:
            # A server that has just started refuses everybody until it has read its rules.
            why = str(err) or type(err).__name__
            self.retries.append(f"{self.clock.now().astimezone():%H:%M:%S} {name}: {why}")
            return False
        return True

    async def lost(self) -> list[str]:
        """The writes that the cluster does not have any more."""
        present = {item.metadata.name for item in (await self.client.list(CONFIG_MAPS, _NAMESPACE)).items}
        return [name for name in self.written if name not in present]
