"""The clients that a program's parts use.

In: how to reach the API server, a guard, whether this is a dry run. Out: open clients, closed together. Everything that
only a leader may write goes through a fenced client: one that asks the guard first, so that a process that lost its
Lease cannot write. In a dry run such a client only records. Each client has a rate limit of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from prometheus_client import CollectorRegistry

from bedplate.core import clock
from bedplate.core.metrics import shared
from bedplate.kube.client import Client
from bedplate.kube.config import ClientConfig
from bedplate.kube.metrics import RequestMetrics
from bedplate.kube.recording import Mode, RecordingClient
from bedplate.runtime.leaderelection import FencedClient

__all__ = ["Clients"]


@dataclass(slots=True)
class Clients:
    """Opens clients and closes them all. `guard` raises when this process may not write."""

    config: ClientConfig
    guard: Callable[[], None]
    is_dry_run: bool
    time: clock.Clock
    registry: CollectorRegistry
    _stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    async def __aenter__(self) -> Clients:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def plain(self, config: ClientConfig | None = None) -> Client:
        """A client without a guard: for watches, and for what every replica may write."""
        return await self._open(Client(config or self.config, time=self.time, metrics=self._metrics()))

    async def election(self, deadline_s: float) -> Client:
        """For the Lease: no answer may take longer than the leader has to renew it, and no other request delays it."""
        config = self.config.with_rate(-1, 1)
        return await self.plain(replace(config, timeout_s=deadline_s, connect_timeout_s=deadline_s))

    async def leading(self, config: ClientConfig | None = None) -> Client:
        """For what only the leader writes."""
        chosen = config or self.config
        if self.is_dry_run:
            return await self._open(RecordingClient(chosen, mode=Mode.LOCAL, time=self.time, metrics=self._metrics()))
        return await self._open(FencedClient(chosen, self.guard, time=self.time, metrics=self._metrics()))

    async def events(self, qps: float, burst: int) -> Client:
        """For events, at their own rate."""
        return await self.leading(self.config.with_rate(qps, burst))

    async def _open(self, client: Client) -> Client:
        return await self._stack.enter_async_context(client)

    def _metrics(self) -> RequestMetrics:
        return shared(self.registry, RequestMetrics)
