"""What holds for every node, kept while the tree moves on: only what a change can mean something to is resolved again.

In: trees, one after the other, with the objects that differ. Out: resolutions, each made when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Iterable

from bedplate.head.affected import affected
from bedplate.head.resolve import Resolved, resolve
from bedplate.head.tree import Address, Tree

__all__ = ["Standing"]


class Standing:
    """See the module. `resolutions` counts how often a node was resolved."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._held: dict[str, Resolved] = {}
        self.resolutions = 0

    @property
    def tree(self) -> Tree:
        return self._tree

    def of(self, name: str) -> Resolved:
        """What holds for a node. Raises `NotFound`."""
        held = self._held.get(name)
        if held is None:
            held = self._held[name] = resolve(self._tree, name)
            self.resolutions += 1
        return held

    def move(self, tree: Tree, touched: Iterable[Address]) -> set[str]:
        """Go on to another tree; the nodes for which something may differ."""
        names = affected(self._tree, tree, touched)
        self._tree = tree
        for name in names:
            self._held.pop(name, None)
        return names
