"""Events that a program writes while it leads.

In: one client, the names of components. Out: a recorder per component, and the parts that write their events.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from bedplate.core import clock
from bedplate.kube.client import Client
from bedplate.runtime.events import EventRecorder
from bedplate.runtime.manager import Leading

__all__ = ["Recorders", "Recording"]

_DRAIN_S = 1.5


@dataclass(slots=True)
class Recording:
    """Writes events while leading; those still queued when the work ends are written before the Lease is released."""

    name: str
    recorder: EventRecorder

    async def run(self) -> None:
        writing = asyncio.ensure_future(self.recorder.run())
        try:
            await asyncio.shield(writing)
        finally:
            if not writing.done():
                await self.recorder.drain(timeout_s=_DRAIN_S)
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)


class Recorders:
    """One recorder per component, all writing through one client, and thereby at one rate."""

    def __init__(self, client: Client, time: clock.Clock) -> None:
        self._client = client
        self._time = time
        self._recorders: dict[str, EventRecorder] = {}

    def get(self, component: str) -> EventRecorder:
        """The recorder whose events name this component as their source."""
        if component not in self._recorders:
            self._recorders[component] = EventRecorder(self._client, component, time=self._time)
        return self._recorders[component]

    def parts(self) -> list[Leading]:
        """What writes their events while leading."""
        return [Recording(f"events of {name}", recorder) for name, recorder in self._recorders.items()]
