"""A site that lives: a head behind REST, simulated devices that carry out what it says, and somebody at a shell.

In: the tree of a site. Out: a desk whose backend is the daemon, the notices it gets, and the devices.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.ui.rest.serving import Served, served
from tests.ui.transcripts.driving import Desk, sized_files, tree_of

from bedplate.api.headapi import Notice
from bedplate.head.entities import SCHEMA
from bedplate.head.objects import Obj
from bedplate.sim.agents import Devices, Pace
from bedplate.sim.device import Refusal, nothing_fails
from bedplate.ui.cmsh import wording
from bedplate.ui.remote import RemoteBackend

__all__ = ["Site", "living", "serving"]

DEADLINE_S = 120.0


@dataclass
class Site:
    """`told` are the notices as the shell shows them."""

    desk: Desk
    served: Served
    told: list[str] = field(default_factory=list)
    devices: Devices | None = None

    async def settles(self, node: str) -> None:
        """Wait until a device has carried out the newest revision, which means something to it."""
        backend, deadline = self.desk.backend, time.monotonic() + DEADLINE_S
        assert backend is not None
        while (await backend.applied([node])).get(node, 0) < self.served.head.revision:
            assert time.monotonic() < deadline, f"{node} does not carry out revision {self.served.head.revision}"
            await asyncio.sleep(0.02)

    async def hears(self, text: str, times: int = 1) -> str:
        """Wait until a notice with that text has come so often; the newest."""
        deadline = time.monotonic() + DEADLINE_S
        while len(found := [line for line in self.told if text in line]) < times:
            assert time.monotonic() < deadline, f"{text!r} did not come {times} times: {self.told[-20:]}"
            await asyncio.sleep(0.02)
        return found[-1]


@contextlib.asynccontextmanager
async def serving(site: str, folder: Path) -> AsyncIterator[Site]:
    """A site behind REST, without devices."""
    tree = [*(await tree_of(site, folder)).objects(), ("user", Obj("User", "admin", {"role": "admin"}))]
    async with served(folder, tree=tree) as server, server.client() as client, RemoteBackend(client, SCHEMA) as backend:
        yield Site(Desk(server.head, files=sized_files(folder / "files"), backend=backend), server)


@contextlib.asynccontextmanager
async def living(site: str, folder: Path, refuse: Refusal = nothing_fails) -> AsyncIterator[Site]:
    """A site with its devices, each of which holds its state when this begins."""
    async with serving(site, folder) as made, made.served.client() as client:
        made.devices = Devices(client, pace=Pace(reports_per_s=1000.0, retry_s=0.2), refuse=refuse)
        backend = made.desk.backend
        assert isinstance(backend, RemoteBackend)

        async def listen() -> None:
            async for event in backend.follow():
                if isinstance(event, Notice):
                    made.told.append(wording.line(event))

        tasks = [
            asyncio.create_task(made.devices.run()),
            asyncio.create_task(listen()),
        ]
        try:
            async with asyncio.timeout(DEADLINE_S):
                await made.devices.ready.wait()
            yield made
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
