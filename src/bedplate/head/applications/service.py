"""The applications of all clusters of a site.

In: the tree, the store, kubeconfigs in the data folder. Out: applied objects while this head is the active one; how
each application stands, on every head. The removal of a cluster from the tree, or of its kubeconfig, deletes nothing in
the cluster: what was recorded of it is forgotten, and a notice says that its objects were left.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bedplate.api.headapi import ApplicationState
from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock
from bedplate.core.logging import get_logger
from bedplate.core.tasks import TaskGroup
from bedplate.head import book as books
from bedplate.head.applications import planning, records, reporting
from bedplate.head.applications.planning import Key, Wanted
from bedplate.head.kubeclusters import Follower, KubeClusters
from bedplate.head.notices import Notices
from bedplate.head.service import Head
from bedplate.store.interface import Store

__all__ = ["Applications"]

_LOG = get_logger("head.applications")


class Applications:
    """Open before use; `follow` keeps up with other heads, `run` keeps applications applied."""

    def __init__(
        self, store: Store, head: Head, notices: Notices, folder: Path | None = None, *, clock: Clock | None = None
    ) -> None:
        self._store = store
        self._head = head
        self._notices = notices
        self._clock = clock or SystemClock()
        self.book = records.book(store)
        self._clusters: KubeClusters[Follower] | None = None
        if folder is not None:
            self._clusters = KubeClusters(head, folder, self._start, clock=self._clock)

    def _start(self, name: str) -> Follower:
        # A head without clusters does not carry the client.
        from bedplate.head.applications.syncing import Sync

        return Sync(name, self._head, self._store, self.book, self._notices, self._clock)

    async def open(self) -> None:
        """Read what the store has."""
        await self.book.open()

    async def follow(self) -> None:
        """Keep up with what other head nodes write; runs until cancelled."""
        await self.book.follow()

    async def run(self) -> None:
        """Keep applications applied; runs until cancelled."""
        async with TaskGroup() as tasks:
            tasks.create_task(self._tidy())
            if self._clusters is not None:
                tasks.create_task(self._clusters.run())

    def trouble(self, cluster: str) -> str:
        """Why the API server of a cluster is not asked; empty while it answers."""
        follower = self._clusters.get(cluster) if self._clusters is not None else None
        if follower is not None:
            return str(getattr(follower, "trouble", ""))
        if not self._head.standing.is_active:
            return "another head node is the active one"
        return f"there is no kubernetes/{cluster}.kubeconfig in the data folder of the head"

    def states(self, cluster: str) -> Sequence[ApplicationState]:
        """How the applications of a cluster stand, in their order. Raises `NotFound`."""
        obj = self._head.tree.get(("kubernetes", cluster))
        enabled = planning.wanted(obj)
        known = {
            Key(record.group, record.name): record for record in self.book.items().values() if record.cluster == cluster
        }
        return [
            reporting.shown(
                cluster, key, known.get(key), is_enabled=key in enabled, is_empty=enabled.get(key) == Wanted(())
            )
            for key in sorted({*planning.keys(obj), *known})
        ]

    async def _tidy(self) -> None:
        """Forget what was recorded of clusters that have left the tree."""
        await self._forget_gone()
        async for _ in self._head.revisions(self._head.revision):
            await self._forget_gone()

    async def _forget_gone(self) -> None:
        if not self._head.standing.is_active:
            return
        gone: dict[str, list[str]] = {}
        for name, record in self.book.items().items():
            if self._head.tree.find("kubernetes", record.cluster) is None:
                gone.setdefault(record.cluster, []).append(name)
        for cluster, names in gone.items():
            count = sum(len(self.book.items()[name].objects) for name in names)
            text = f"Cluster {cluster} is no longer managed; {count} objects of its applications were left in it"
            try:
                await books.write(self._store, [self.book.change(name, None) for name in names])
                await self._notices.add(cluster, text)
            except errors.Conflict as err:
                _LOG.v(1).info("head.applications.contended", cluster=cluster, error=str(err))
