"""The service controller alone: an API server in memory, a cloud, and a clock that tests move."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from prometheus_client import CollectorRegistry
from tests.cloud.controllers.balancers import ScriptedBalancers, ScriptedCloud, Told, clouds
from tests.cloud.controllers.fakeapi import Caches, FakeApi

from bedplate.cloud.controllers.service import ServiceController, ServiceOptions
from bedplate.core import clock


class World:
    """An API server in memory, a cloud, a clock, and a controller that may be killed and started again."""

    def __init__(self, *, needs_ready: bool = False, providers: int = 1, **options: Any) -> None:
        self.time = clock.ManualClock()
        self.api = FakeApi()
        self.clouds = [
            ScriptedCloud(name, (name,), load_balancers=ScriptedBalancers(needs_ready_nodes=needs_ready))
            for name in ("scripted", "second")[:providers]
        ]
        self.told = Told()
        self.options = ServiceOptions(**options)
        self.caches = Caches()
        self.registry = CollectorRegistry()
        self.slices_are_readable = True
        self.controller: ServiceController | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def balancers(self) -> ScriptedBalancers:
        found = self.clouds[0].load_balancers
        assert found is not None
        return found

    async def start(self) -> None:
        self.caches, self.registry = Caches(), CollectorRegistry()
        self.api.list_into(self.caches)
        if self.slices_are_readable:
            self.caches.slices.replace([], "1")
        self.controller = ServiceController(
            self.api,  # type: ignore[arg-type]
            clouds(*self.clouds),
            self.caches.services,
            self.caches.nodes,
            self.caches.slices,
            self.told,
            self.options,
            self.time,
            self.registry,
        )
        self._task = asyncio.ensure_future(self.controller.run())
        await self.time.advance(0)

    def passes(self) -> float:
        """How often a change of nodes was a reason to look at every Service."""
        return self.registry.get_sample_value("workqueue_adds_total", {"name": "node"}) or 0.0

    async def kill(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def after(self, seconds: float) -> None:
        """Everything arrives, and time goes by."""
        for _ in range(4):
            self.api.deliver(self.caches)
            await self.time.advance(seconds / 4)


@contextlib.asynccontextmanager
async def world(**options: Any) -> AsyncIterator[World]:
    made = World(**options)
    try:
        await made.start()
        yield made
    finally:
        await made.kill()
