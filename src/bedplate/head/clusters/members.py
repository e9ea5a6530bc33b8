"""The nodes of clusters that kubeadm made: who is part of which, kept beside the tree, and who is held until it left.

In: commits, before they are written; what became of kubeadm on nodes; the tree. Out: refusals of commits that would
destroy a cluster; nodes held at the tree before (`Wants.leaving`); requests to reset. What that means for a record,
`membership` decides; what needs the cluster itself, `joining` does. A node of a cluster that is gone is reset as soon
as it is up: one that was off while its cluster was removed cleans itself when it comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Final

import msgspec

from bedplate.api.headapi import ErrandState
from bedplate.core import errors
from bedplate.core.clock import Clock, parse_rfc3339, rfc3339
from bedplate.core.logging import get_logger
from bedplate.head.affected import affected
from bedplate.head.book import Book, Change, again, write
from bedplate.head.clusters import membership as rules
from bedplate.head.clusters.membership import Membership
from bedplate.head.errands import Errands
from bedplate.head.health import Health
from bedplate.head.notices import Notices
from bedplate.head.plan import touched_between
from bedplate.head.service import Head
from bedplate.head.tree import Tree
from bedplate.head.wants import Base, Wants
from bedplate.store.interface import Store

__all__ = ["MEMBERS", "Members"]

MEMBERS: Final = "/head/clustermembers/"
_LOG = get_logger("head.clusters")
_BY = "the head"
_LOOK_S = 0.5
_TAKEN_S = 60.0
_WRITTEN = timedelta(seconds=30)
"""So long a commit may take from its hold to its revision."""
_AGAIN = timedelta(seconds=60)
"""After so long kubeadm is tried again where it failed."""


class Members:
    """All records. Only the active head changes them."""

    def __init__(
        self,
        store: Store,
        head: Head,
        notices: Notices,
        health: Health,
        errands: Errands,
        wants: Wants,
        *,
        clock: Clock,
    ) -> None:
        self._store = store
        self._head = head
        self._notices = notices
        self._health = health
        self._errands = errands
        self._wants = wants
        self._clock = clock
        self._trees: dict[int, Tree] = {}
        self.listeners: list[Callable[[Iterable[str]], None]] = []
        """Called with nodes that are no longer held back."""
        self._is_stale = False
        self._unseen: set[str] = set()
        """Nodes whose records are new here: only of these it is asked whether they have lost their role unseen."""
        self.book = Book(store, MEMBERS, Membership)
        self.book.listen(self._changed)
        errands.beside = self._beside
        head.rules.append(self._refuse)
        head.holders.append(self._hold)

    async def open(self) -> None:
        """Read the records, and hold back who is leaving."""
        await self.book.open()
        await self._adopt()

    async def follow(self) -> None:
        """Do so whenever another head node changes one; runs until cancelled."""
        await self.book.follow_with(self._adopt)

    def _changed(self, node: str) -> None:
        self._is_stale = True
        self._unseen.add(node)

    def of(self, cluster: str) -> Mapping[str, Membership]:
        """The records of a cluster, by node."""
        return {node: known for node, known in self.book.items().items() if known.cluster == cluster}

    def is_settled(self, known: Membership) -> bool:
        """Whether the revision that a node leaves by is written."""
        return self._head.revision > known.base

    async def move(self, node: str, after: Membership | None) -> None:
        """Keep a record, or forget it."""
        await again(lambda: write(self._store, [self.book.change(node, after)]))
        await self._adopt()

    async def tell(self, node: str, known: Membership, text: str, *, is_bad: bool = False) -> None:
        """Keep what a node waits for; where somebody has to do something about it, say so once."""
        if known.text == text:
            return
        await self.move(node, msgspec.structs.replace(known, text=text))
        if is_bad:
            await self._notices.add(node, f"{node} is {known.state}, cluster {known.cluster}: {text}", "warning")

    def may_ask(self, node: str, action: str) -> bool:
        """Whether a node can be asked for kubeadm now: it is up, is not busy with it, and did not just fail it."""
        if self._health.state(node) != "UP":
            return False
        own = [errand for errand in self._errands.list([node]) if errand.kind == "kubeadm"]
        if any(errand.state in ("waiting", "accepted") for errand in own):
            return False
        failed = [errand for errand in own if errand.action == action and errand.state in ("failed", "expired")]
        now = self._clock.now()
        return all(now - parse_rfc3339(errand.changed or errand.asked) > _AGAIN for errand in failed)

    async def ask(self, node: str, action: str, cluster: str) -> None:
        """Ask a node to join its cluster, or to reset itself."""
        work = {node: {"action": action, "cluster": cluster}}
        await self._errands.ask([node], "kubeadm", by=_BY, lasts_s=_TAKEN_S, work=work)

    # Commits

    def _refuse(self, before: Tree, after: Tree) -> None:
        sentences = rules.refusals(self.book.items(), before, after, lambda node: self._health.state(node) == "UP")
        if sentences:
            raise errors.Invalid(
                "a Kubernetes cluster is in the way", problems=list(sentences), hint="nothing was written"
            )

    async def _hold(self, before: Tree, after: Tree, revision: int) -> None:
        records = self.book.items()
        if not records:
            return
        touched = affected(before, after, touched_between(before, after)) & set(records)
        moved = rules.moves(records, touched, before, after, revision - 1, rfc3339(self._clock.now()))
        if not moved:
            return
        await again(lambda: write(self._store, [self.book.change(node, known) for node, known in moved.items()]))
        self._trees[revision - 1] = before
        await self._adopt()

    async def _adopt(self) -> None:
        """Hold back whom the records hold back."""
        self._is_stale = False
        before, bases = self._wants.leaving, {}
        for node, known in list(self.book.items().items()):
            if not known.held:
                continue
            tree = self._trees.get(known.base)
            if tree is None:
                tree = self._trees[known.base] = await self._head.tree_at(known.base)
            why = known.text or f"is {known.state}"
            bases[node] = Base(known.base, tree, frozenset((node,)), why)
            if known.state == "draining":
                for other in known.others:
                    bases.setdefault(other, Base(known.base, tree, frozenset((other,)), f"waits until {node} {why}"))
        self._trees = {base.revision: base.tree for base in bases.values()}
        self._wants.leaving = bases
        freed = set(before) - set(bases)
        if freed:
            for listener in self.listeners:
                listener(freed)

    # What became of kubeadm

    def _beside(self, errand: ErrandState) -> list[Change]:
        """What is written together with the end of a request."""
        if errand.kind != "kubeadm" or errand.state != "done":
            return []
        known = self.book.get(errand.node)
        if errand.action == "reset":
            if known is None or known.cluster != errand.cluster:
                return []
            has_node = rules.is_managed(self._head.tree, known.cluster) and known.state == "resetting"
            after = msgspec.structs.replace(known, state="deleting", base=0, text="") if has_node else None
            return [self.book.change(errand.node, after)]
        if known is not None and known.cluster == errand.cluster and known.state != "joining":
            return []
        now = rfc3339(self._clock.now())
        return [self.book.change(errand.node, Membership(errand.cluster, since=now))]

    # What is due

    async def run(self) -> None:
        """Reset who has to leave, while this head is the active one; runs until cancelled."""
        while True:
            if self._head.standing.is_active:
                try:
                    await self.look()
                except errors.Retryable as err:
                    _LOG.warning("head.clusters.members_not_looked_at", error=str(err))
            if not self.book.items():
                await self.book.moved()
            await self._clock.sleep(_LOOK_S)

    async def look(self) -> None:
        """Move on what needs nothing of a cluster."""
        if self._is_stale:
            # What is written beside the end of a request frees the node.
            await self._adopt()
        unseen = set(self._unseen)
        due = [(node, known) for node, known in self.book.items().items() if known.state != "joined" or node in unseen]
        for node, known in due:
            if self.is_settled(known):
                await self._look(node, known)
            elif self._clock.now() - parse_rfc3339(known.since) > _WRITTEN:
                # The commit was never written.
                await self.move(node, msgspec.structs.replace(known, state="returning", base=0, others=()))
        self._unseen -= unseen

    async def _look(self, node: str, known: Membership) -> None:
        tree = self._head.tree
        stays, is_managed = rules.cluster_of(tree, node) == known.cluster, rules.is_managed(tree, known.cluster)
        if known.state in ("joined", "joining") and not stays:
            await self._missed(node, known)
        elif known.state == "resetting":
            if stays and not known.is_asked:
                await self.move(node, msgspec.structs.replace(known, state="returning", base=0, others=()))
            elif rules.is_paused(tree, known.cluster):
                await self.tell(node, known, "its cluster is being restored or upgraded; it is reset after that")
            elif self.may_ask(node, "reset"):
                if not known.is_asked:
                    await self.move(node, msgspec.structs.replace(known, is_asked=True))
                await self.ask(node, "reset", known.cluster)
            elif self._health.state(node) != "UP":
                text = "it is down; it is reset when it is back, or device remove gives it up"
                await self.tell(node, known, text, is_bad=True)
        elif not is_managed and known.state == "draining":
            await self.move(node, msgspec.structs.replace(known, state="resetting", others=()))
        elif not is_managed and known.state == "deleting":
            await self.move(node, None)
        elif not is_managed and known.state == "returning":
            await self.move(node, msgspec.structs.replace(known, state="joined"))

    async def _missed(self, node: str, known: Membership) -> None:
        """Nobody held the node when it lost its role: it was committed while no head served."""
        base = self._head.revision
        while base > 0 and rules.cluster_of(await self._head.tree_at(base), node) != known.cluster:
            base -= 1
        now = rfc3339(self._clock.now())
        state: rules.State = "draining" if rules.is_managed(self._head.tree, known.cluster) and base else "resetting"
        await self.move(node, msgspec.structs.replace(known, state=state, base=base, since=now))
