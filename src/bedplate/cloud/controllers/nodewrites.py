"""Writes to Nodes that two controllers share: after a conflict the patch is decided again.

In: a Node as the cache has it, and a function that makes the patch of a Node (or None: nothing to write). Out: the Node
as the server has it afterwards. Reads the server only after a conflict. Decides nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bedplate.api import core
from bedplate.api.resources import NODES
from bedplate.cloud.interface import Address
from bedplate.core import backoff, clock, errors
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client

__all__ = ["INITIALISE", "RECONCILE", "NodeWriter", "Tries"]

Patch = Mapping[str, Any]


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
        self, node: core.Node, decide: Callable[[core.Node], Patch | None], tries: Tries
    ) -> core.Node | None:
        """Write what `decide` makes of the node; None when there was nothing (any more) to write, or no such node."""
        for step in range(tries.steps):
            change = decide(node)
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
            node = current
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
