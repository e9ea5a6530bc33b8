"""A site that lives: a head behind REST, simulated devices that carry out what it says, and somebody at a shell.

In: the tree of a site. Out: a desk whose backend is the daemon, the notices it gets, and the devices.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.ui.rest.serving import Served, served
from tests.ui.transcripts.driving import Desk, sized_files, tree_of
from tests.waiting import DEADLINE_S, until

from bedplate.api.headapi import Notice
from bedplate.head.entities import SCHEMA
from bedplate.head.objects import Obj
from bedplate.sim.agents import Devices, Pace
from bedplate.sim.device import Refusal, nothing_fails
from bedplate.ui.cmsh import wording
from bedplate.ui.remote import RemoteBackend

__all__ = ["Site", "living", "serving"]


@dataclass
class Site:
    """`told` are the notices as the shell shows them."""

    desk: Desk
    served: Served
    told: list[str] = field(default_factory=list)
    devices: Devices | None = None

    async def settles(self, node: str) -> None:
        """Wait until a device has carried out the newest revision, which means something to it."""
        backend = self.desk.backend
        assert backend is not None

        async def is_settled() -> bool:
            return (await backend.states([node]))[0].applied >= self.served.head.revision

        await until(is_settled, f"{node} has carried out revision {self.served.head.revision}")

    async def hears(self, text: str, times: int = 1) -> str:
        """Wait until a notice with that text has come so often; the newest."""

        def heard() -> list[str]:
            return [line for line in self.told if text in line]

        what = f"{text!r} has come {times} times"
        await until(lambda: len(heard()) >= times, what, describe=lambda: self.told[-20:])
        return heard()[-1]


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
