"""The clusters of a site: applications kept applied, users kept, checks made, snapshots taken, certificates renewed,
and how each cluster stands.

In: the store, the head, kubeconfigs in the data folder. Out: `ClusterState` and the history of checks. `open` reads
what is kept, `follow` keeps up with other head nodes, `run` works while this head is the active one.
"""

from __future__ import annotations

from pathlib import Path

from bedplate.api.headapi import Certificate, CheckHistory, ClusterHealth, ClusterState
from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock
from bedplate.core.logging import get_logger
from bedplate.core.tasks import TaskGroup
from bedplate.head.applications.service import Applications
from bedplate.head.clusters.administrator import Administrators
from bedplate.head.clusters.snapshots import Snapshots
from bedplate.head.clusters.upkeep import Upkeep
from bedplate.head.fleet import Fleet
from bedplate.head.health import Health
from bedplate.head.kubeclusters import Follower, KubeClusters
from bedplate.head.notices import Notices
from bedplate.head.people.service import People
from bedplate.head.service import Head
from bedplate.store.interface import Store

__all__ = ["Clusters"]

_LOG = get_logger("head.clusters")
_TIDY_S = 5.0
_PREFIX = "kubernetes:"


class Clusters:
    """Open before use; the store is opened and closed by its owner."""

    def __init__(
        self,
        store: Store,
        head: Head,
        notices: Notices,
        health: Health,
        folder: Path | None = None,
        *,
        fleet: Fleet | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._head = head
        self._notices = notices
        self._health = health
        self._clock = clock or SystemClock()
        self.applications = Applications(store, head, notices, folder, clock=self._clock)
        self.people = People(store, head, notices, folder, clock=self._clock)
        self._fleet = fleet
        self._followed: list[KubeClusters[Follower]] = []
        self._administrators: Administrators | None = None
        self.snapshots: Snapshots | None = None
        self._upkeep: Upkeep | None = None
        if folder is not None:
            self.snapshots = Snapshots(folder)
            if fleet is not None:
                self._upkeep = Upkeep(head, health, fleet.errands, self.snapshots, self._clock)
            self._administrators = Administrators(head, folder, clock=self._clock)
            starts = [self._start, *([self._start_nodes] if fleet is not None else [])]
            self._followed = [KubeClusters(head, folder, start, clock=self._clock) for start in starts]

    def _start_nodes(self, name: str) -> Follower:
        from bedplate.head.clusters.joining import ClusterNodes

        assert self._fleet is not None
        return ClusterNodes(name, self._head, self._fleet.members, self._fleet.progress, self._clock)

    def _start(self, name: str) -> Follower:
        # A head without clusters does not carry the client.
        from bedplate.head.clusters.checks import ClusterChecks

        return ClusterChecks(name, self._head, self._health, self._notices, self._clock)

    async def open(self) -> Clusters:
        """Read what the store has."""
        await self.applications.open()
        await self.people.open()
        return self

    async def follow(self) -> None:
        """Keep up with what other head nodes write; runs until cancelled."""
        async with TaskGroup() as tasks:
            tasks.create_task(self.applications.follow())
            tasks.create_task(self.people.follow())

    async def run(self) -> None:
        """Do what is due; runs until cancelled."""
        async with TaskGroup() as tasks:
            tasks.create_task(self.applications.run())
            tasks.create_task(self.people.run())
            for followed in self._followed:
                tasks.create_task(followed.run())
            if self._administrators is not None:
                tasks.create_task(self._administrators.run())
                tasks.create_task(self._tidy())
            if self._upkeep is not None:
                tasks.create_task(self._upkeep.run())

    def certificates(self) -> list[Certificate]:
        """Those of administrators of clusters."""
        return list(self._administrators.certificates()) if self._administrators is not None else []

    def state(self, cluster: str) -> ClusterState:
        """How a cluster stands. Raises `NotFound`."""
        self._head.tree.get(("kubernetes", cluster))
        known = self._health.node_state(f"{_PREFIX}{cluster}")
        trouble = self.applications.trouble(cluster)
        return ClusterState(
            cluster=cluster,
            reached=not trouble,
            trouble=trouble,
            checks=known.checks,
            applications=list(self.applications.states(cluster)),
        )

    async def health(self, cluster: str, check: str = "") -> ClusterHealth:
        """How a cluster stands, with the kept results of its checks, or of one. Raises `NotFound`."""
        state = self.state(cluster)
        history = await self._health.history(f"{_PREFIX}{cluster}", check)
        kept = [CheckHistory(check=name, samples=samples) for name, samples in history.items()]
        return ClusterHealth(state=state, history=kept)

    async def _tidy(self) -> None:
        """Forget the checks of clusters that have left the tree."""
        while True:
            if self._head.standing.is_active:
                try:
                    await self._forget_gone()
                except errors.Retryable as err:
                    _LOG.warning("head.clusters.not_tidied", error=str(err))
            await self._clock.sleep(_TIDY_S)

    async def _forget_gone(self) -> None:
        for host in [name for name in self._health.conditions() if name.startswith(_PREFIX)]:
            name = host.removeprefix(_PREFIX)
            if self._head.tree.find("kubernetes", name) is None:
                await self._health.forget(host)
                _LOG.info("head.clusters.checks_removed", cluster=name)
