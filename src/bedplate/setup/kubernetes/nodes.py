"""What stages do through the head: objects of its tree, commits that are waited for, kubeadm on nodes.

In: the context of a stage. Out: revisions that all nodes have applied, errands that ended. What a run creates is noted
before, so that an interrupted run knows what is its own, and undoing it takes nothing away that somebody else made.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from bedplate.api import headapi
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.setup.engine.stage import Context

__all__ = [
    "MAY_BE_DOWN",
    "adopt",
    "applied",
    "commit",
    "create",
    "down",
    "find",
    "head_of",
    "is_under_way",
    "kubeadm",
    "set_extra",
    "systems",
    "whole",
    "withdraw",
]

_POLL_S = 0.1
_APPLY_S, _KUBEADM_S = 300.0, 1200.0
_TAKEN_S = 60.0
_AWAY_S = 30.0
"""A node that counts as down has so long to report again: the agent of a busy machine may only be late."""
_AWAY = ("DOWN", "UNKNOWN")
_LOOK_EVERY = 20
_MADE, _FOUND = "made", "found"
_OVER = ("done", "failed", "expired")
MAY_BE_DOWN = "nodes may be down"
"""The note of a run that does not wait for nodes that are down: the head has them do their part when they are back."""

Action = Literal["init", "join", "reset", "upgrade-check", "upgrade-apply", "upgrade-node"]
Place = tuple[str, str]
"""Mode and key of an object."""


def head_of(context: Context) -> HeadClient:
    """The head's daemon. Raises `Unavailable` where none serves, as nodes could not be told anything."""
    client: HeadClient = context.services.backend.fleet
    return client


async def find(head: HeadClient, mode: str, key: str) -> headapi.Object | None:
    """An object of the tree, or None."""
    try:
        return await head.get(mode, key)
    except errors.NotFound:
        return None


async def create(
    context: Context, objects: Mapping[Place, Mapping[str, Any]], message: str, *, is_awaited: bool = True
) -> int:
    """Create objects in one revision, and wait until all nodes have applied it, unless a later stage does; the
    revision. Raises `AlreadyExists` for one that this run did not make."""
    head, edits = head_of(context), []
    own = [tuple(place) for place in context.notes.get(_MADE, [])]
    for (mode, key), obj in objects.items():
        present = await find(head, mode, key)
        if present is not None and (mode, key) not in own:
            raise errors.AlreadyExists(
                f"{mode} {key} already exists, and is not part of this deployment",
                hint="remove it, or choose another name for the cluster",
            )
        if present is None:
            edits.append(headapi.Edit(mode=mode, key=key, object=dict(obj)))
    context.notes[_MADE] = [*own, *(place for place in objects if place not in own)]
    return await commit(context, edits, message, is_awaited=is_awaited)


async def adopt(context: Context, objects: Mapping[Place, Mapping[str, Any]], message: str) -> None:
    """Create objects, or make those that are there what they should be; `withdraw` gives back what was found."""
    head, edits = head_of(context), []
    own = [tuple(place) for place in context.notes.get(_MADE, [])]
    originals = dict(context.notes.get(_FOUND, {}))
    for (mode, key), obj in objects.items():
        present = await find(head, mode, key)
        if present is not None and (mode, key) not in own:
            originals[f"{mode}/{key}"] = whole(present)
        if present is None or whole(present) != _complete(obj):
            base = present.revision if present is not None else None
            edits.append(headapi.Edit(mode=mode, key=key, base=base, object=dict(obj)))
    context.notes[_FOUND] = originals
    context.notes[_MADE] = [*own, *(place for place in objects if place not in own)]
    await commit(context, edits, message)


def whole(obj: headapi.Object) -> dict[str, Any]:
    """An object as an edit has it."""
    return {"type": obj.type, "values": obj.values, "extras": obj.extras, "children": obj.children}


def _complete(obj: Mapping[str, Any]) -> dict[str, Any]:
    return {"values": {}, "extras": {}, "children": {}, **obj}


async def withdraw(context: Context, places: Iterable[Place], message: str) -> None:
    """Remove what this run created of these objects, give back what it found, and wait for the nodes."""
    own = [tuple(place) for place in context.notes.get(_MADE, [])]
    chosen = [place for place in places if place in own]
    head, edits = head_of(context), []
    for mode, key in chosen:
        present, before = await find(head, mode, key), context.notes.get(_FOUND, {}).get(f"{mode}/{key}")
        if present is not None and whole(present) != before:
            edits.append(headapi.Edit(mode=mode, key=key, base=present.revision, object=before))
    await commit(context, edits, message)
    context.notes[_MADE] = [place for place in own if place not in chosen]


async def commit(context: Context, edits: Sequence[headapi.Edit], message: str, *, is_awaited: bool = True) -> int:
    """Write edits as one revision, and wait until the nodes it means something to have applied it, unless a later stage
    does; the revision. A run that was interrupted waits for the revision that it wrote."""
    head = head_of(context)
    if edits:
        revision = await head.commit(edits, message)
        number = revision.number if revision is not None else (await head.whoami()).revision
    else:
        number = (await head.whoami()).revision
    if is_awaited:
        await applied(context, number)
    return number


async def systems(context: Context, names: Sequence[str]) -> dict[str, headapi.System | None]:
    """What nodes say of their machines; None for one that says nothing."""
    states = {state.node: state.system for state in await head_of(context).nodes(names)} if names else {}
    return {name: states.get(name) for name in names}


async def set_extra(context: Context, place: Place, name: str, text: str | None, message: str) -> None:
    """Give an object that is there an extra parameter, or take it away."""
    present = await find(head_of(context), *place)
    if present is None or present.extras.get(name) == text:
        return
    extras = {key: value for key, value in present.extras.items() if key != name}
    obj = {**whole(present), "extras": extras if text is None else {**extras, name: text}}
    await commit(context, [headapi.Edit(mode=place[0], key=place[1], base=present.revision, object=obj)], message)


async def down(context: Context, names: Sequence[str]) -> list[headapi.NodeState]:
    """Those of the nodes that do not report."""
    return [node for node in await head_of(context).nodes(names) if node.state != "UP"] if names else []


async def applied(context: Context, number: int) -> None:
    """Wait until the nodes that a revision means something to have applied it. Raises `Unavailable` with the others."""
    head, now_s = head_of(context), context.clock.monotonic
    end_s, away_s = now_s() + _APPLY_S, now_s()
    while True:
        progress = await head.progress(number)
        late = progress.nodes
        if context.notes.get(MAY_BE_DOWN):
            late = [node for node in late if node.state not in _AWAY]
        if not late or now_s() > end_s:
            break
        if not progress.is_settled:
            away_s = now_s()
        elif any(node.state not in _AWAY for node in late) or now_s() - away_s > _AWAY_S:
            break
        await context.clock.sleep(_POLL_S)
    if late:
        told = "; ".join(f"{node.node}: {node.state}{f' {node.text}' if node.text else ''}" for node in late)
        raise errors.Unavailable(
            f"revision {number} is not applied on {len(late)} of {progress.total} nodes: {told}",
            hint="see that the nodes are up (cmsh: device status), then resume",
        )


def is_under_way(item: headapi.ErrandState, work: headapi.Kubeadm) -> bool:
    """Whether a node does that very thing now. Pure."""
    is_same = (item.action, item.cluster, item.version) == (work.action, work.cluster, work.version)
    return item.kind == "kubeadm" and item.state == "accepted" and is_same


async def kubeadm(context: Context, nodes: Sequence[str], action: Action, cluster: str, version: str = "") -> None:
    """Have kubeadm run on nodes, all at once, and wait for its end. What a run that was killed asked for, and what is
    still being done, is not asked for again. Raises `Terminal` with what kubeadm said."""
    if not nodes:
        return
    head = head_of(context)
    work = headapi.Kubeadm(action=action, cluster=cluster, version=version)
    asked = {item.id: item.node for item in await head.errands(nodes) if is_under_way(item, work)}
    rest = [node for node in nodes if node not in asked.values()]
    if rest:
        fresh = await head.ask_errand(rest, "kubeadm", lasts_s=_TAKEN_S, kubeadm=work)
        asked |= {item.id: item.node for item in fresh}
    told: dict[str, str] = {}
    end_s = context.clock.monotonic() + _KUBEADM_S
    for turn in itertools.count():
        states = [item for item in await head.errands(nodes) if item.id in asked]
        if context.notes.get(MAY_BE_DOWN) and turn % _LOOK_EVERY == _LOOK_EVERY - 1:
            away = {node.node for node in await down(context, nodes)}
            for item in states:
                if item.node in away and item.state not in _OVER:
                    context.say(f"Warning: {item.node} went down; it is not waited for")
                    asked.pop(item.id)
            states = [item for item in states if item.id in asked]
        for item in states:
            if item.text and told.get(item.id) != item.text:
                told[item.id] = item.text
                context.log.info(f"{item.node}: {item.text}")
        if all(item.state in _OVER for item in states) or context.clock.monotonic() > end_s:
            break
        await context.clock.sleep(_POLL_S)
    bad = [item for item in states if item.state != "done"]
    for item in states:
        context.say(f"{item.node}: {item.text if item.state == 'done' else item.state}")
    if bad:
        for item in bad:
            context.log.error("\n".join([f"{item.node}: kubeadm {action}", *item.lines]))
        told_of = "; ".join(f"{item.node}: {item.text or item.state}" for item in bad)
        raise errors.Terminal(
            f"kubeadm {action} did not succeed on {len(bad)} of {len(states)} nodes: {told_of}",
            hint="the log has all that kubeadm said; put the cause right, then resume",
        )
