"""What a commit would do: which fact changes on which node.

In: the tree before and after, the top-level objects that differ, and further sources of facts. Out: one action per node
and fact. Nodes that the change means nothing to are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bedplate.head.affected import affected
from bedplate.head.explain import Fact, Renderer, facts
from bedplate.head.resolve import Source
from bedplate.head.schema.ranges import natural
from bedplate.head.tree import Address, Tree

__all__ = ["Action", "plan", "touched_between"]


class Action(NamedTuple):
    """One line: `verb` is add, change or remove; `source` what causes it (for remove: what had)."""

    node: str
    kind: str
    name: str
    verb: str
    source: Source
    old: str
    new: str


def plan(before: Tree, after: Tree, touched: Iterable[Address], renderers: Sequence[Renderer] = ()) -> list[Action]:
    """What would change, by node in natural order."""
    found: list[Action] = []
    for node in sorted(affected(before, after, touched), key=natural):
        old = facts(before, node, renderers) if before.find("device", node) is not None else {}
        new = facts(after, node, renderers) if after.find("device", node) is not None else {}
        for place in sorted(set(old) | set(new)):
            action = _action(node, old.get(place), new.get(place))
            if action is not None:
                found.append(action)
    return found


def _action(node: str, old: Fact | None, new: Fact | None) -> Action | None:
    if new is None:
        assert old is not None
        return Action(node, old.kind, old.name, "remove", old.source, old.value, "")
    if old is None:
        return Action(node, new.kind, new.name, "add", new.source, "", new.value)
    if old.value == new.value and old.source == new.source and old.detail == new.detail:
        return None
    return Action(node, new.kind, new.name, "change", new.source, old.value, new.value)


def touched_between(before: Tree, after: Tree) -> list[Address]:
    """The top-level objects that differ between two trees; what they share costs a comparison of identities."""
    found: list[Address] = []
    for mode in before.schema.modes:
        old, new = before.mode(mode), after.mode(mode)
        if old is not new:
            found.extend((mode, key) for key in sorted(set(old) | set(new)) if old.get(key) != new.get(key))
    return found
