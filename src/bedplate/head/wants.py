"""What each node should be now: the one place that knows which tree counts for it.

In: the head, the roll-out and the clusters that hold nodes back, and what nodes are asked to do once. Out: desired
states, and their digests, which are kept for as long as no revision can have changed them; the nodes that have
something to do for a revision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from bedplate.api.desired import Errand, etag_of
from bedplate.head.affected import affected
from bedplate.head.desired import Desired, desired
from bedplate.head.plan import touched_between
from bedplate.head.schema.ranges import natural
from bedplate.head.service import Head
from bedplate.head.tree import Tree

__all__ = ["Base", "Wants"]

_AT_ONCE = 25
_REMEMBERED = 32


class Base(NamedTuple):
    """The tree that counts for nodes that are held back, and why they are."""

    revision: int
    tree: Tree
    nodes: frozenset[str]
    why: str = ""


class Wants:
    """Desired states, and digests of them."""

    def __init__(self, head: Head, errands: Callable[[str], tuple[Errand, ...]] = lambda node: ()) -> None:
        self._head = head
        self._errands = errands
        self._tree = head.tree
        self._digests: dict[str, str] = {}
        self._held: dict[str, tuple[int, str]] = {}
        self._with_work: dict[int, list[str]] = {}
        self._leaving: Mapping[str, Base] = {}
        self._base: Base | None = None
        self._last: tuple[Tree, str, Desired] | None = None
        self._active = ""

    @property
    def base(self) -> Base | None:
        return self._base

    @base.setter
    def base(self, base: Base | None) -> None:
        self._base = base

    @property
    def leaving(self) -> Mapping[str, Base]:
        """What holds nodes back that have to leave a cluster first, by node."""
        return self._leaving

    @leaving.setter
    def leaving(self, bases: Mapping[str, Base]) -> None:
        self._leaving = bases

    def base_of(self, node: str) -> Base | None:
        """What holds a node back: of a roll-out and a cluster that it leaves, the older tree; None for nothing."""
        rollout = self._base if self._base is not None and node in self._base.nodes else None
        cluster = self._leaving.get(node)
        if rollout is None or cluster is None:
            return rollout or cluster
        return min(rollout, cluster, key=lambda base: base.revision)

    def is_held(self, node: str) -> bool:
        """Whether the node is held back."""
        return self.base_of(node) is not None

    def tree(self, node: str) -> tuple[Tree, int]:
        """The tree that counts for a node, and its revision."""
        base = self.base_of(node)
        return (self._head.tree, self._head.revision) if base is None else (base.tree, base.revision)

    def state(self, node: str) -> Desired:
        """What a node should be. Raises `NotFound`."""
        tree, revision = self.tree(node)
        state = self._made(tree, node, revision)
        if self._known(node) is None:
            self._keep(node, state.digest)
        errands = self._errands(node)
        return msgspec.structs.replace(state, errands=errands) if errands else state

    def digest(self, node: str) -> str:
        """The digest of what a node should be; empty for a node that is not there."""
        known = self._known(node)
        if known is None:
            tree, revision = self.tree(node)
            is_there = tree.find("device", node) is not None
            known = self._made(tree, node, revision).digest if is_there else ""
            self._keep(node, known)
        return known

    def _made(self, tree: Tree, node: str, revision: int) -> Desired:
        """The state; who asks for its digest first gets it without its being made again."""
        last, active = self._last, self._active_head()
        is_known = last is not None and last[0] is tree and last[1] == active
        if last is None or not is_known or last[2].node != node or last[2].revision != revision:
            last = self._last = tree, active, _standing(desired(tree, node, revision), tree, active)
        return last[2]

    def _active_head(self) -> str:
        """The name of the active head; the last one while nobody is known to be. What is known of head nodes does not
        hold any more when it is another one."""
        active = self._head.standing.active_name or self._active
        if active != self._active:
            self._active = active
            for name, node in self._head.tree.mode("device").items():
                if node.type == "HeadNode":
                    self._digests.pop(name, None)
                    self._held.pop(name, None)
        return active

    def etag(self, node: str) -> str:
        """What a poll of the node compares; no state is made for it while its digest is known."""
        return etag_of(self.digest(node), self._errands(node))

    async def prepare(self, nodes: Iterable[str]) -> None:
        """Have the digests of many nodes at hand, without keeping others waiting."""
        for count, node in enumerate(node for node in nodes if self._known(node) is None):
            self.digest(node)
            if count % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)

    def _known(self, node: str) -> str | None:
        """The digest, where no revision can have changed it since it was made."""
        self._active_head()
        base = self.base_of(node)
        if base is not None:
            revision, digest = self._held.get(node, (0, ""))
            return digest if revision == base.revision else None
        return self._present().get(node)

    def _keep(self, node: str, digest: str) -> None:
        base = self.base_of(node)
        if base is not None:
            self._held[node] = base.revision, digest
        else:
            self._present()[node] = digest

    def _present(self) -> dict[str, str]:
        """The digests of nodes that are not held back."""
        tree = self._head.tree
        if tree is not self._tree:
            for name in affected(self._tree, tree, touched_between(self._tree, tree)):
                self._digests.pop(name, None)
            self._tree = tree
        return self._digests

    async def with_work(self, revision: int) -> list[str]:
        """The nodes that a revision makes something else of, in natural order. Raises `NotFound`."""
        known = self._with_work.get(revision)
        if known is None:
            before, after = await self._head.tree_at(revision - 1), await self._head.tree_at(revision)
            known = await changed(before, after)
            self._with_work[revision] = known
            if len(self._with_work) > _REMEMBERED:
                del self._with_work[next(iter(self._with_work))]
        return known


def _standing(state: Desired, tree: Tree, active: str) -> Desired:
    """The state of a head node without the services that are for the other one of active and passive. Pure."""
    if tree.get(("device", state.node)).type != "HeadNode" or not active:
        return state
    word = "ACTIVE" if state.node == active else "PASSIVE"
    services = tuple(service for service in state.services if service.run_if in ("ALWAYS", word))
    return state if services == state.services else msgspec.structs.replace(state, services=services)


async def changed(before: Tree, after: Tree) -> list[str]:
    """The nodes of the tree after that should be something else than before, in natural order."""
    names = []
    for count, name in enumerate(sorted(affected(before, after, touched_between(before, after)), key=natural)):
        if after.find("device", name) is None:
            continue
        is_new = before.find("device", name) is None
        if is_new or desired(before, name).digest != desired(after, name).digest:
            names.append(name)
        if count % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
    return names
