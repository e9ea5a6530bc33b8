"""What each node should be now: the one place that knows which tree counts for it.

In: the head, the roll-out that holds nodes back, and what nodes are asked to do once. Out: desired states, and their
digests, which are kept for as long as no revision can have changed them; the nodes that have something to do for a
revision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
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
    """The tree that counts for nodes that are held back."""

    revision: int
    tree: Tree
    nodes: frozenset[str]


class Wants:
    """Desired states, and digests of them."""

    def __init__(self, head: Head, errands: Callable[[str], tuple[Errand, ...]] = lambda node: ()) -> None:
        self._head = head
        self._errands = errands
        self._tree = head.tree
        self._digests: dict[str, str] = {}
        self._held: dict[str, str] = {}
        self._with_work: dict[int, list[str]] = {}
        self._base: Base | None = None
        self._last: tuple[Tree, Desired] | None = None

    @property
    def base(self) -> Base | None:
        return self._base

    @base.setter
    def base(self, base: Base | None) -> None:
        if base is None or self._base is None or base.revision != self._base.revision:
            self._held = {}
        self._base = base

    def is_held(self, node: str) -> bool:
        """Whether a roll-out holds the node back."""
        return self._base is not None and node in self._base.nodes

    def tree(self, node: str) -> tuple[Tree, int]:
        """The tree that counts for a node, and its revision."""
        base = self._base
        if base is not None and node in base.nodes:
            return base.tree, base.revision
        return self._head.tree, self._head.revision

    def state(self, node: str) -> Desired:
        """What a node should be. Raises `NotFound`."""
        tree, revision = self.tree(node)
        state = self._made(tree, node, revision)
        digests = self._digests_of(node)
        if node not in digests:
            digests[node] = state.digest
        errands = self._errands(node)
        return msgspec.structs.replace(state, errands=errands) if errands else state

    def digest(self, node: str) -> str:
        """The digest of what a node should be; empty for a node that is not there."""
        digests = self._digests_of(node)
        if node not in digests:
            tree, revision = self.tree(node)
            is_there = tree.find("device", node) is not None
            digests[node] = self._made(tree, node, revision).digest if is_there else ""
        return digests[node]

    def _made(self, tree: Tree, node: str, revision: int) -> Desired:
        """The state; who asks for its digest first gets it without its being made again."""
        last = self._last
        if last is None or last[0] is not tree or last[1].node != node or last[1].revision != revision:
            last = self._last = tree, desired(tree, node, revision)
        return last[1]

    def etag(self, node: str) -> str:
        """What a poll of the node compares; no state is made for it while its digest is known."""
        return etag_of(self.digest(node), self._errands(node))

    async def prepare(self, nodes: Iterable[str]) -> None:
        """Have the digests of many nodes at hand, without keeping others waiting."""
        for count, node in enumerate(node for node in nodes if node not in self._digests_of(node)):
            self.digest(node)
            if count % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)

    def _digests_of(self, node: str) -> dict[str, str]:
        if self.is_held(node):
            return self._held
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
