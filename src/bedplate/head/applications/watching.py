"""Notices at once when somebody else changes or deletes what was applied.

In: the kinds that applications of a cluster have. Out: a call for each change of a labelled object, with its metadata;
None for one that is gone. Of each kind only objects with the label of applications are watched, and only their
metadata is sent, so that a large cluster costs no more than a small one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from bedplate.api import meta
from bedplate.api.resources import ResourceRef
from bedplate.core.clock import Clock
from bedplate.head.applications.applying import LABEL
from bedplate.head.applications.records import Item
from bedplate.runtime.cache import Cache, Change
from bedplate.runtime.reflector import Reflector

if TYPE_CHECKING:
    from bedplate.kube.client import Client

__all__ = ["Watches", "has_drifted"]

OnChange = Callable[[Item, meta.ObjectMeta | None], None]


def has_drifted(applied: meta.ObjectMeta | None, now: meta.ObjectMeta | None) -> bool:
    """Whether an object is another one than was applied, by its metadata. What changes its status alone does not count;
    where a kind has no generation, every change does. Before it was applied there is nothing to compare."""
    if applied is None:
        return False
    if now is None or now.uid != applied.uid:
        return True
    if now.generation or applied.generation:
        return now.generation > applied.generation
    return now.resource_version != applied.resource_version


class Watches:
    """Follows kinds until cancelled; `cover` says which."""

    def __init__(self, client: Client, clock: Clock, on_change: OnChange) -> None:
        self._client = client
        self._clock = clock
        self._on_change = on_change
        self._covered: frozenset[ResourceRef[Any]] = frozenset()
        self._moved = asyncio.Event()

    def cover(self, refs: Iterable[ResourceRef[Any]]) -> None:
        """Watch these kinds, in whatever version they are named, and no others."""
        kinds = {(ref.group, ref.kind): ref.partial() for ref in sorted(refs, key=str)}
        covered = frozenset(kinds.values())
        if covered != self._covered:
            self._covered = covered
            self._moved.set()

    async def run(self) -> None:
        running: dict[ResourceRef[Any], asyncio.Task[None]] = {}
        try:
            while True:
                for ref in [ref for ref in running if ref not in self._covered]:
                    await _stop(running.pop(ref))
                for ref in self._covered:
                    if ref not in running:
                        running[ref] = asyncio.create_task(self._follow(ref), name=f"applications {ref}")
                await self._moved.wait()
                self._moved.clear()
        finally:
            for task in running.values():
                await _stop(task)

    async def _follow(self, ref: ResourceRef[Any]) -> None:
        cache: Cache[meta.PartialObject] = Cache()

        def tell(change: Change[meta.PartialObject]) -> None:
            namespace, _, name = change.key.rpartition("/")
            item = Item(ref.group, ref.kind, namespace, name)
            self._on_change(item, change.new.metadata if change.new is not None else None)

        cache.on_change(tell)
        await Reflector(self._client, ref, cache, label_selector=LABEL, time=self._clock).run()


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
