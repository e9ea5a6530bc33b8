"""What the two controllers of nodes share: writes that are decided again after a conflict, passes of bounded width.

In: a Node as the cache has it, its patch (or None: nothing to write), and the function that decides it again. Out: the
Node as the server has it afterwards. Reads the server only after a conflict. Decides nothing.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bedplate.api import core
from bedplate.api.resources import NODES
from bedplate.cloud.interface import Address
from bedplate.core import backoff, clock, errors
from bedplate.core.tasks import TaskGroup
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client

__all__ = ["ASK_TIMEOUT_S", "INITIALISE", "RECONCILE", "NodeWriter", "Tries", "in_parallel"]

Patch = Mapping[str, Any]
ASK_TIMEOUT_S = 120.0
"""No answer of a cloud takes longer than this, whatever its provider does."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tries:
    """How often a conflicting write is decided again, and the shortest pause before that (at most twice as long)."""

    steps: int
    base_s: float


INITIALISE = Tries(20, 0.05)
RECONCILE = Tries(5, 0.1)


@dataclass(frozen=True, slots=True)
class NodeWriter:
    """Patches of Nodes, under one field manager."""

    client: Client
    field_manager: str
    time: clock.Clock
    rng: random.Random = field(default_factory=random.Random)

    async def patch(
        self, node: core.Node, change: Patch | None, decide: Callable[[core.Node], Patch | None], tries: Tries
    ) -> core.Node | None:
        """Write a change of the node; after a conflict what `decide` then makes of it. None when there was nothing (any
        more) to write, or no such node."""
        for step in range(tries.steps):
            if change is None:
                return None
            try:
                return await self.client.patch(NODES, node.name, change, field_manager=self.field_manager)
            except kube_errors.NotFound:
                return None
            except errors.Conflict:
                if step == tries.steps - 1:
                    raise
            await self.time.sleep(backoff.jitter(tries.base_s, 1.0, self.rng))
            current = await self.current(node)
            if current is None:
                return None
            node, change = current, decide(current)
        return None

    async def current(self, node: core.Node) -> core.Node | None:
        """This very node as it is now; None when it is gone, or stands for another machine: what is to be written was
        decided by what a cloud said of the one before."""
        try:
            current = await self.client.get(NODES, node.name)
        except kube_errors.NotFound:
            return None
        is_same = current.metadata.uid == node.metadata.uid and current.spec.provider_id == node.spec.provider_id
        return current if is_same else None

    async def addresses(self, node: core.Node, desired: Sequence[Address]) -> core.Node:
        """Replace the whole list: its merge key is the type, and two addresses of one type would become one."""
        listed = [{"type": address.type, "address": address.address} for address in desired]
        body = {"metadata": {"uid": node.metadata.uid}, "status": {"addresses": listed}}
        return await self.client.patch(NODES, node.name, body, subresource="status", field_manager=self.field_manager)


async def in_parallel(work: Sequence[T], workers: int, do: Callable[[T], Awaitable[None]]) -> None:
    """`do` for each, at most `workers` at a time; an exception of one ends all."""
    if not work:
        return
    left = iter(work)

    async def one() -> None:
        for item in left:
            await do(item)

    async with TaskGroup() as tasks:
        for _ in range(min(workers, len(work))):
            tasks.create_task(one())
