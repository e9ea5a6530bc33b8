"""The original's controller beside ours, on one API server: namespaces apart, nodes in common.

In: a world, the folder that `BEDPLATE_PEERS` names. Out: `Side`s, each with a controller of its own and the same
pools. The original's controller dies with the test process.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import subprocess
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests import programs, servers
from tests.ipam.controller.worlds import KINDS, World

from bedplate.api.resources import NAMESPACES


@contextlib.asynccontextmanager
async def side(world: World, name: str) -> AsyncIterator[World]:
    """The same world with a pools namespace of its own."""
    made = copy.copy(world)
    made.namespace = f"{name}-{world.id}-{uuid.uuid4().hex[:4]}"
    await world.client.create(NAMESPACES, {"metadata": {"name": made.namespace}})
    try:
        yield made
    finally:
        for ref in KINDS.values():
            await world.client.delete_collection(ref, made.namespace)
        await world.client.delete(NAMESPACES, made.namespace)


@contextlib.asynccontextmanager
async def running_original(world: World, folder: Path, *flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The original's controller for this world's pools; it must not end before the test does."""
    command = [
        str(programs.original("ipam-controller")),
        f"--kubeconfig={world.server.kubeconfig}",
        f"--ippools-namespace={world.namespace}",
        "--metrics-bind-address=0",
        "--health-probe-bind-address=0",
        *flags,
    ]
    with (folder / f"original-{uuid.uuid4().hex[:4]}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=log, stderr=subprocess.STDOUT, preexec_fn=servers._die_with_parent
        )
    try:
        yield process
    finally:
        await stop(process)


async def stop(process: asyncio.subprocess.Process) -> None:
    """End it as a rollout does, if it still runs."""
    for end in (process.terminate, process.kill):
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError, TimeoutError):
                end()
                async with asyncio.timeout(20):
                    await process.wait()


async def versions(world: World) -> dict[tuple[str, str], str]:
    """Which state each pool is in: equal twice means that nobody wrote."""
    found: dict[tuple[str, str], Any] = {}
    for kind, ref in KINDS.items():
        for one in (await world.client.list(ref, world.namespace)).items:
            found[kind, one["metadata"]["name"]] = one["metadata"]["resourceVersion"]
    return found
