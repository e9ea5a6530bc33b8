"""How far nodes are: the roll-out, a revision on its nodes, and what is pending on each.

In: visits, and what the head keeps for its nodes. Out: pages, parts of pages that scripts renew, and the roll-out
paused, resumed or undone under the name of who is signed in. Where the head has no nodes' keeper there is nothing to
show.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from aiohttp import web

from bedplate.api.headapi import NodeState, RolloutState
from bedplate.core import errors
from bedplate.head import Tree, demand
from bedplate.head.fleet import Fleet
from bedplate.head.schema import ranges
from bedplate.ui.web import commits, links
from bedplate.ui.web.visit import Visit

__all__ = ["Behind", "act", "behind", "current", "pending", "pending_file", "revision", "rollout", "states"]

_ROWS = 500
"""More nodes than this are not listed one by one; those that fail it come first."""
_MOST_NODES = 2000
_ORDER = ("failed", "away", "pending", "applied", "held")
_ACTIONS: dict[str, Literal["pause", "resume", "undo"]] = {"pause": "pause", "resume": "resume", "undo": "undo"}


class Behind(NamedTuple):
    """Nodes that are not what they should be: how many, which, and why some of them fail it."""

    total: int
    names: str
    failed: Sequence[NodeState]


async def rollout(visit: Visit) -> web.StreamResponse:
    """The roll-out that is under way, or the last one."""
    state = await _state(visit)
    nodes = sorted(state.nodes, key=lambda node: _ORDER.index(node.state)) if state is not None else []
    counts = [(word, sum(node.state == word for node in nodes)) for word in _ORDER]
    return visit.page(
        "rollout.html",
        "Roll-out",
        rollout=state,
        nodes=nodes[:_ROWS],
        more=max(len(nodes) - _ROWS, 0),
        counts=[(word, count) for word, count in counts if count],
        is_open=state is not None and state.state in ("running", "paused", "stopped"),
    )


async def act(visit: Visit) -> web.StreamResponse:
    """Pause, resume or undo it."""
    demand(visit.person, "edit", "rollout")
    try:
        state = await _fleet(visit).rollouts.act(visit.person, _ACTIONS[visit.request.match_info["action"]])
    except (errors.Conflict, errors.NotFound) as err:
        visit.login.say(f"{err.message}.", "warning", err.hint)
    else:
        visit.session.follow(visit.service.head.tree)
        visit.login.say(f"The roll-out of revision {state.revision} is {state.state}.", "good")
    return visit.go("/rollout")


async def current(visit: Visit) -> RolloutState | None:
    """The roll-out that is under way, if there is one."""
    fleet = visit.service.fleet
    if fleet is None or fleet.rollouts.current is None or not fleet.rollouts.current.is_open:
        return None
    return await _state(visit)


async def _state(visit: Visit) -> RolloutState | None:
    try:
        return await visit.service.fleet.rollouts.state() if visit.service.fleet is not None else None
    except errors.NotFound:
        return None


async def revision(visit: Visit) -> web.StreamResponse:
    """How far nodes are with a revision: the part of its page that scripts renew."""
    await visit.service.head.read(visit.number())
    return visit.page("progress.html", "Progress", number=visit.number(), progress=await commits.progress_of(visit))


async def states(visit: Visit, names: Sequence[str]) -> dict[str, NodeState]:
    """What is known of nodes, by name."""
    if visit.service.fleet is None:
        return {name: visit.service.health.node_state(name) for name in names}
    present = visit.service.head.tree.mode("device")
    known = await visit.service.fleet.progress.states([name for name in names if name in present])
    return {state.node: state for state in known}


async def behind(visit: Visit) -> Behind | None:
    """The nodes that have something pending; None where there are too many to ask by the way."""
    names = [name for name in visit.service.head.tree.mode("device") if visit.service.health.of(name) is not None]
    if len(names) > _MOST_NODES:
        return None
    late = [state for state in (await states(visit, names)).values() if state.pending or state.failures]
    late.sort(key=lambda state: ranges.natural(state.node))
    return Behind(
        len(late), ranges.compress([state.node for state in late]), [state for state in late if state.failures]
    )


async def pending(visit: Visit, node: str) -> commits.Planned | None:
    """What a node has still to change; None for one that is not there or has never reported."""
    if visit.service.fleet is None or visit.service.health.of(node) is None:
        return None
    if visit.service.head.tree.find("device", node) is None:
        return None
    actions, _ = await visit.service.fleet.progress.pending(node, visit.service.renderers)
    return commits.as_planned(actions)


async def pending_file(visit: Visit) -> web.StreamResponse:
    """What is pending in a file of a node."""
    node, fleet, head = visit.request.query.get("node", ""), _fleet(visit), visit.service.head
    after, _ = fleet.wants.tree(node)
    condition = visit.service.health.of(node)
    applied = min(condition.applied, head.revision) if condition is not None else 0
    before = await head.tree_at(applied) if applied else Tree(after.schema)
    return commits.file_between(visit, before, after, links.show(("device", node)))


def _fleet(visit: Visit) -> Fleet:
    if visit.service.fleet is None:
        raise errors.Unavailable("this head keeps nothing for nodes", hint="serve it with a data folder")
    return visit.service.fleet
