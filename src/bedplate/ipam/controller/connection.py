"""The clients that the controller's parts use.

In: how to reach the API server. Out: open clients. What a leader writes goes through a fenced
client, in a dry run through one that only records; the Lease and the webhook's certificate are written by a plain
one.
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

EVENT_QPS, EVENT_BURST = 10.0, 25


@dataclass(slots=True)
class Clients:
    """Opens clients and closes them all. `guard` raises when this process may not write."""

    config: ClientConfig
    is_dry_run: bool
    guard: Callable[[], None]
    time: clock.Clock
    registry: CollectorRegistry
    _stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    async def __aenter__(self) -> Clients:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def plain(self) -> Client:
        """For watches and for what every replica may write."""
        return await self._open(Client(self.config, time=self.time, metrics=self._metrics()))

    async def election(self, deadline_s: float) -> Client:
        """For the Lease: no answer may take longer than the leader has to renew it, and no other request delays it."""
        config = replace(self.config.with_rate(-1, 1), timeout_s=deadline_s, connect_timeout_s=deadline_s)
        return await self._open(Client(config, time=self.time, metrics=self._metrics()))

    async def leading(self) -> Client:
        """For what only the leader writes."""
        return await self._writing(self.config)

    async def events(self) -> Client:
        """For events, at their own rate."""
        return await self._writing(self.config.with_rate(EVENT_QPS, EVENT_BURST))

    async def _writing(self, config: ClientConfig) -> Client:
        if self.is_dry_run:
            made: Client = RecordingClient(config, mode=Mode.LOCAL, time=self.time, metrics=self._metrics())
        else:
            made = FencedClient(config, self.guard, time=self.time, metrics=self._metrics())
        return await self._open(made)

    async def _open(self, client: Client) -> Client:
        return await self._stack.enter_async_context(client)

    def _metrics(self) -> RequestMetrics:
        return shared(self.registry, RequestMetrics)
