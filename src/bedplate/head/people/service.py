"""The users of all clusters of a site.

In: the tree, the store, kubeconfigs in the data folder. Out: rights, certificates and kubeconfigs kept while this head
is the active one; who may do what. Users keep their rights when their cluster, or its kubeconfig, leaves the tree.
"""

from __future__ import annotations

from pathlib import Path

from bedplate.api.headapi import PeopleState
from bedplate.core.clock import Clock, SystemClock
from bedplate.head.book import Book
from bedplate.head.kubeclusters import KubeClusters
from bedplate.head.notices import Notices
from bedplate.head.people import records
from bedplate.head.people.records import Person
from bedplate.head.people.views import PeopleFollower
from bedplate.head.service import Head
from bedplate.people.accounts import PKI, Accounts, SystemAccounts
from bedplate.store.interface import Store

__all__ = ["People"]


class People:
    """Open before use; `follow` keeps up with other heads, `run` keeps users as the tree says."""

    def __init__(
        self,
        store: Store,
        head: Head,
        notices: Notices,
        folder: Path | None = None,
        *,
        clock: Clock | None = None,
        accounts: Accounts | None = None,
        pki: Path = PKI,
    ) -> None:
        self._store = store
        self._head = head
        self._notices = notices
        self._clock = clock or SystemClock()
        self._accounts = accounts or SystemAccounts()
        self._pki = pki
        self.book: Book[Person] = records.book(store)
        self._clusters: KubeClusters[PeopleFollower] | None = None
        if folder is not None:
            self._clusters = KubeClusters(head, folder, self._start, clock=self._clock)

    def _start(self, name: str) -> PeopleFollower:
        # A head without clusters does not carry the client.
        from bedplate.head.people.upkeep import Upkeep

        more = (self._notices, self._accounts, self._clock, self._pki)
        return Upkeep(name, self._head, self._store, self.book, *more)

    async def open(self) -> None:
        """Read what the store has."""
        await self.book.open()

    async def follow(self) -> None:
        """Keep up with what other head nodes write; runs until cancelled."""
        await self.book.follow()

    async def run(self) -> None:
        """Keep users as the tree says; runs until cancelled."""
        if self._clusters is not None:
            await self._clusters.run()

    def state(self, cluster: str) -> PeopleState:
        """Who may do what in a cluster. Raises `NotFound`."""
        self._head.tree.get(("kubernetes", cluster))
        follower = self._clusters.get(cluster) if self._clusters is not None else None
        if follower is not None:
            return follower.state()
        trouble = f"there is no kubernetes/{cluster}.kubeconfig in the data folder of the head"
        if not self._head.standing.is_active:
            trouble = "another head node is the active one"
        return PeopleState(cluster=cluster, reached=False, trouble=trouble)
