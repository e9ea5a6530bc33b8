"""The nodes, and which pools a change of one concerns.

In: changes of a cache that holds nodes' metadata alone. Out: the nodes in the form plans want, made once for all
pools until something changes; and whether a change matters to a pool. A heartbeat changes nothing here: what a pool
asks of a node is its name and its labels.
"""

from __future__ import annotations

from typing import Any

from bedplate.api import meta
from bedplate.ipam import selectors
from bedplate.ipam.planning import PlanNode
from bedplate.ipam.pools import NodeSelector
from bedplate.runtime.cache import Cache, Change

__all__ = ["Roster", "is_news", "matters"]


def is_news(change: Change[meta.PartialObject]) -> bool:
    """The node is new, gone, or has other labels."""
    if change.old is None or change.new is None:
        return True
    return change.old.metadata.labels != change.new.metadata.labels


def matters(change: Change[meta.PartialObject], test: selectors.Test) -> bool:
    """The pool with this selector has another node now, or one less."""
    return _is_selected(change.old, test) != _is_selected(change.new, test)


def _is_selected(node: meta.PartialObject | None, test: selectors.Test) -> bool:
    return node is not None and test(node.name, node.metadata.labels)


class Roster:
    """The nodes of a cache as plans want them, and selectors as tests; both are made once and kept."""

    def __init__(self, cache: Cache[meta.PartialObject]) -> None:
        self._cache = cache
        self._nodes: tuple[PlanNode, ...] | None = None
        self._tests: dict[str, tuple[NodeSelector | None, selectors.Test]] = {}

    def note(self, change: Change[Any]) -> bool:
        """Hear of a change; whether it is news."""
        if not is_news(change):
            return False
        self._nodes = None
        return True

    def nodes(self) -> tuple[PlanNode, ...]:
        """Every node there is."""
        if self._nodes is None:
            self._nodes = tuple(PlanNode(node.name, node.metadata.labels) for node in self._cache)
        return self._nodes

    def has(self, name: str) -> bool:
        """The node exists."""
        return name in self._cache

    def test(self, key: str, selector: NodeSelector | None) -> selectors.Test:
        """The test of a pool's selector; `key` is the pool's, under which it is kept while it stays the same."""
        known = self._tests.get(key)
        # Pools are decoded again with every change, so equal selectors are rarely the same object.
        if known is None or known[0] != selector:
            known = self._tests[key] = (selector, selectors.matcher(selector))
        return known[1]

    def forget(self, key: str) -> None:
        """The pool is gone."""
        self._tests.pop(key, None)
