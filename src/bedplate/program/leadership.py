"""Whether this process leads, and may therefore write.

In: the Lease that candidates compete for, or None. Out: `Leadership`: the guard of fenced clients, and, once `prepare`
has run, the elector that `runtime.Manager` runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from bedplate.core import clock
from bedplate.program.clients import Clients
from bedplate.runtime.events import EventRecorder
from bedplate.runtime.leaderelection import Elector, Timing

__all__ = ["Leadership", "Lease"]


@dataclass(frozen=True, slots=True)
class Lease:
    """What candidates compete for. `component` is the source of the election's Events."""

    name: str
    namespace: str
    component: str
    timing: Timing = field(default_factory=Timing)


@dataclass(slots=True)
class Leadership:
    """Leads always when there is no elector: a program without an election, or a dry run."""

    elector: Elector | None = None
    recorder: EventRecorder | None = None

    def guard(self) -> None:
        """Raise unless this process may write now."""
        if self.elector is not None:
            self.elector.guard()

    @property
    def is_leading(self) -> bool:
        """Whether this process may write now."""
        return self.elector is None or self.elector.is_leading

    async def prepare(self, lease: Lease, clients: Clients, time: clock.Clock, registry: CollectorRegistry) -> None:
        """Become a candidate; the election itself begins with `Manager.run`."""
        client = await clients.election(lease.timing.renew_s)
        self.recorder = EventRecorder(client, lease.component, time=time)
        self.elector = Elector(
            client,
            lease.name,
            lease.namespace,
            timing=lease.timing,
            time=time,
            registry=registry,
            recorder=self.recorder,
        )
