"""A head with an image and agents of sandboxes, over the real REST API: what tests and benches of images start with."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

from tests.agent.machines import Machine
from tests.ui.rest.serving import Served, objects
from tests.waiting import until

from bedplate.agent.link import Link, Login
from bedplate.agent.loop import Agent
from bedplate.agent.node import Pace
from bedplate.api.headapi import ErrandState, Transfer
from bedplate.client import HeadClient
from bedplate.head.objects import Obj

OVER = ("done", "failed", "expired")
QUICK = Pace(poll_s=60.0, drift_s=1000.0, retry_s=0.05, longest_retry_s=0.05, gather_s=0.0, alive_s=1000.0)


def bare() -> list[tuple[str, Obj]]:
    """The manual's cluster without roles: nodes on which the head manages no file."""
    kept = ("softwareimage", "category", "device", "network", "user")
    return [(mode, replace(obj, children={})) for mode, obj in objects() if mode in kept]


def grow(tree: Path, files: dict[str, str], *, age_s: float = 0.0) -> Path:
    """Write files below a folder, some time ago; `-> target` makes a link."""
    for path, content in files.items():
        place = tree / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if content.startswith("-> "):
            place.symlink_to(content.removeprefix("-> "))
        else:
            place.write_text(content)
            then = time.time() - age_s
            os.utime(place, (then, then))
    return tree


def contents(tree: Path, *without: str) -> dict[str, str]:
    """Every file and link of a tree: content, or where it leads."""
    found = {}
    for parent, folders, names in os.walk(tree):
        for name in (*names, *(folder for folder in folders if os.path.islink(os.path.join(parent, folder)))):
            place = os.path.join(parent, name)
            path = "/" + os.path.relpath(place, tree)
            if path.startswith(("/var/lib/bedplate-agent", "/.bedplate-image", *without)):
                continue
            if os.path.islink(place):
                found[path] = f"-> {os.readlink(place)}"
            else:
                data = Path(place).read_bytes()
                found[path] = data.decode() if len(data) < 100 else hashlib.sha256(data).hexdigest()
    return found


@contextlib.asynccontextmanager
async def agent(server: Served, machine: Machine, node: str, token: Path) -> AsyncIterator[Agent]:
    """The agent of a sandbox, until the block is left; the token is its credential."""
    token.write_text(server.tokens[node])
    login = Login(node, (server.url,), token_file=str(token))
    async with Link(login) as link:
        running = Agent(machine.effects, link, pace=QUICK, rng=random.Random(1))
        task = asyncio.create_task(running.run())
        try:
            await until(lambda: running.held.state is not None)
            yield running
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def transfer(
    client: HeadClient, nodes: Sequence[str], *, kind: str = "imageupdate", **how: object
) -> list[ErrandState]:
    """Ask for a transfer, and wait until it is over on all nodes."""
    asked = await client.ask_errand(nodes, kind, transfer=Transfer(**how))  # type: ignore[arg-type]
    return await over(client, nodes, {errand.id for errand in asked})


async def over(client: HeadClient, nodes: Sequence[str], ids: set[str]) -> list[ErrandState]:
    """Wait until requests are over."""
    async with asyncio.timeout(60):
        while True:
            known = [errand for errand in await client.errands(nodes) if errand.id in ids]
            if known and all(errand.state in OVER for errand in known):
                return known
            await asyncio.sleep(0.02)
