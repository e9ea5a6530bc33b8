"""A controller program put together: clients, leader election, a `runtime.Manager` to register caches and parts with.

In: options, environment, a clock, and what a program overrides. Out: `Assembly.run`, the whole program: it connects,
becomes a candidate, lets the program register what it is made of, and runs it until cancelled. `Leadership` says
whether it may write: it is the guard of fenced clients.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic

from prometheus_client import CollectorRegistry

from bedplate.core import clock, metrics
from bedplate.kube.client import Client
from bedplate.kube.config import ClientConfig
from bedplate.program.clients import Clients
from bedplate.program.options import O
from bedplate.runtime.events import EventRecorder
from bedplate.runtime.leaderelection import Elector, Timing
from bedplate.runtime.manager import Manager

__all__ = ["Assembly", "Leadership", "Lease", "Parts"]


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


@dataclass(frozen=True, slots=True)
class Parts:
    """What a program registers its own parts with: `manager.cache`, `manager.add`, `manager.serve`.

    `reader` has no guard: it lists and watches, and writes only what every replica may write. What is entered into
    `stack` is closed when the program ends, before the clients are.
    """

    manager: Manager
    clients: Clients
    reader: Client
    stack: contextlib.AsyncExitStack


class Assembly(abc.ABC, Generic[O]):
    """One program. `run` ends when it is cancelled, and raises when a part fails or leadership is lost."""

    def __init__(self, options: O, environ: Mapping[str, str], *, time: clock.Clock | None = None) -> None:
        self.options = options
        self.environ = environ
        self.time = time if time is not None else clock.SystemClock()
        self.registry: CollectorRegistry = metrics.registry()
        self.leadership = Leadership()

    @property
    def elector(self) -> Elector | None:
        """Who takes part in the election; None without one, and before `run` has connected."""
        return self.leadership.elector

    @property
    def is_dry_run(self) -> bool:
        """Whether nothing may be written. A dry run takes part in no election."""
        return False

    @abc.abstractmethod
    def connection(self) -> ClientConfig:
        """The cluster to work for."""

    @abc.abstractmethod
    def lease(self) -> Lease | None:
        """The Lease to compete for; None when every replica works."""

    @abc.abstractmethod
    async def assemble(self, parts: Parts) -> None:
        """Register caches, controllers and endpoints."""

    async def run(self) -> None:
        """The whole program."""
        clients = Clients(self.connection(), self.leadership.guard, self.is_dry_run, self.time, self.registry)
        async with clients, contextlib.AsyncExitStack() as stack:
            reader = await clients.plain()
            lease = self.lease() if not self.is_dry_run else None
            if lease is not None:
                await self.leadership.prepare(lease, clients, self.time, self.registry)
            manager = Manager(
                reader, elector=self.leadership.elector, recorder=self.leadership.recorder, time=self.time
            )
            await self.assemble(Parts(manager, clients, reader, stack))
            await manager.run()
