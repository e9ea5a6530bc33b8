"""How far nodes are: who of those a revision means something to has applied it, and what is pending on a node.

In: the head, what nodes report, what holds them back. Out: `RevisionProgress`, and the changes that a node has still to
make. A node has applied a revision when it says so, or when it says that it is what it should be now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from bedplate.api.headapi import NodeProgress, NodeState, RevisionProgress
from bedplate.head.explain import Renderer
from bedplate.head.health import Health
from bedplate.head.plan import PlannedAction, plan
from bedplate.head.rollout import Seen
from bedplate.head.service import Head
from bedplate.head.tree import Tree
from bedplate.head.wants import Wants

__all__ = ["Progress"]


class Progress:
    """Answers from what is known; it writes nothing."""

    def __init__(self, head: Head, health: Health, wants: Wants, image: Callable[[str], str] = lambda node: "") -> None:
        self._head = head
        self._health = health
        self._wants = wants
        self._image = image

    def has_applied(self, node: str, revision: int = 0) -> bool:
        """Whether a node is what it should be now, or what it should have been at a revision."""
        condition = self._health.of(node)
        if condition is None:
            return False
        if revision and condition.applied >= revision:
            return True
        return bool(condition.digest) and condition.digest == self._wants.digest(node)

    def seen(self, node: str) -> Seen:
        """What a roll-out has to know of a node; one that is gone has nothing to do."""
        if self._head.tree.find("device", node) is None:
            return Seen(True)
        condition = self._health.of(node)
        if condition is None:
            return Seen(False, is_up=False)
        failing = {
            check: verdict.last.info for check, verdict in condition.checks.items() if verdict.last.status == "FAIL"
        }
        return Seen(self.has_applied(node), condition.failures, self._health.state(node) == "UP", failing)

    async def of(self, revision: int) -> RevisionProgress:
        """How far a revision is. Raises `NotFound`."""
        names = [name for name in await self._wants.with_work(revision) if self._head.tree.find("device", name)]
        await self._wants.prepare(names)
        nodes = [self._node(name, revision) for name in names]
        left = [node for node in nodes if node.state != "applied"]
        return RevisionProgress(
            revision=revision,
            total=len(nodes),
            applied=len(nodes) - len(left),
            is_settled=not any(node.state in ("pending", "held") for node in left),
            nodes=left,
        )

    def _node(self, name: str, revision: int) -> NodeProgress:
        condition = self._health.of(name)
        applied = condition.applied if condition is not None else 0
        base = self._wants.base_of(name)
        if base is not None and revision > base.revision:
            # Whoever is down does not leave a cluster before it is back.
            is_away = base is self._wants.leaving.get(name) and self._health.state(name) != "UP"
            return NodeProgress(node=name, state="DOWN" if is_away else "held", text=base.why, applied=applied)
        if condition is None:
            return NodeProgress(node=name, state="UNKNOWN")
        if self.has_applied(name, revision):
            return NodeProgress(node=name, state="applied", applied=applied)
        if condition.failures and condition.tried >= revision:
            return NodeProgress(node=name, state="failed", text="; ".join(condition.failures), applied=applied)
        is_up = self._health.state(name) == "UP"
        return NodeProgress(node=name, state="pending" if is_up else "DOWN", applied=applied)

    async def states(self, names: Sequence[str]) -> list[NodeState]:
        """What is known of nodes, each with the revision that it has not applied yet."""
        await self._wants.prepare(name for name in names if self._health.of(name) is not None)
        states = []
        for name in names:
            state, condition = self._health.node_state(name), self._health.of(name)
            is_behind = condition is not None and bool(condition.digest) and not self.has_applied(name)
            pending = self._wants.tree(name)[1] if is_behind else 0
            states.append(
                msgspec.structs.replace(
                    state,
                    pending=pending,
                    is_held=self._wants.is_held(name),
                    failures=list(condition.failures) if condition is not None else [],
                    image=self._image(name),
                )
            )
        return states

    async def pending(self, node: str, renderers: Sequence[Renderer]) -> tuple[list[PlannedAction], int]:
        """What a node has still to change to be what it should be, and the revision that it has applied. Raises
        `NotFound`."""
        self._head.tree.get(("device", node))
        condition = self._health.of(node)
        applied = condition.applied if condition is not None else 0
        if condition is not None and self.has_applied(node):
            return [], applied
        after, _ = self._wants.tree(node)
        before = await self._head.tree_at(min(applied, self._head.revision)) if applied else Tree(after.schema)
        return plan(before, after, (), renderers, only=node), applied
