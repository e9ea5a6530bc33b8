"""The stages that add nodes to a cluster and take nodes out of it: the overlays change, and the head does the rest.

In: the name of a cluster and of nodes. Out: stages; `assigned` and `unassigned`, pure, say what becomes of overlays.
The head joins, drains and resets nodes whoever changed the overlays (`head/clusters`), so these stages write one
revision and wait. What was changed is noted, so that it can be undone.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.head import Tree
from bedplate.head.clusters.membership import Membership, cluster_of, is_managed, is_paused, refusals
from bedplate.head.entities.nodes import ConfigurationOverlay
from bedplate.head.render.clusters import kubelets
from bedplate.head.schema.ranges import natural
from bedplate.head.session import Session
from bedplate.setup.engine.stage import Context, Stage
from bedplate.setup.kubernetes import cluster, docker, nodes, repositories
from bedplate.setup.kubernetes.deploy import PLUGIN, folder_of

__all__ = ["adding", "assigned", "check", "removing", "unassigned", "with_repositories"]

_CHANGED, _WANTED = "nodes of overlays before", "nodes of overlays"
_REVISION = "revision of the change"
_ROLES = ("etcd", "master", "worker")
_LABEL = "node-role.kubernetes.io/"

Overlays = dict[str, list[str]]
"""The nodes of overlays, by overlay."""


def assigned(tree: Tree, name: str, names: Sequence[str], *, is_plane: bool) -> Overlays:
    """The overlays as they are once the nodes are part of a cluster. Raises `Invalid` with all that is wrong."""
    _demand_managed(tree, name)
    wrong = []
    for node in names:
        device, other = tree.find("device", node), cluster_of(tree, node)
        if device is None:
            wrong.append(f"{node}: there is no such device")
        elif other:
            wrong.append(f"{node} is part of the cluster {other} already")
        elif not device.values.get("ip"):
            wrong.append(f"{node} has no IP address, and could not be reached by the others")
    if wrong:
        raise errors.Invalid(f"the nodes cannot be added to {name}", problems=wrong)
    overlays = [f"kube-{name}-{'master' if is_plane else 'worker'}"]
    overlays += [docker.name_of(name)] if tree.find("configurationoverlay", docker.name_of(name)) else []
    return {overlay: sorted({*_nodes(tree, overlay), *names}, key=natural) for overlay in overlays}


def with_repositories(
    tree: Tree, name: str, overlays: Overlays, present: Mapping[str, headapi.System | None]
) -> Overlays:
    """The same, and those with the package repositories of the nodes, as far as it is known how they install. Pure."""
    repos = {}
    for overlay in repositories.overlays_of(tree, name):
        family = overlay.rpartition("-")[2]
        fit = [node for node, system in present.items() if system is not None and system.packages == family]
        if fit:
            repos[overlay] = sorted({*_nodes(tree, overlay), *fit}, key=natural)
    return {**overlays, **repos}


def unassigned(tree: Tree, name: str, names: Sequence[str]) -> Overlays:
    """The overlays as they are without the nodes. Raises `Invalid` with all that is wrong."""
    _demand_managed(tree, name)
    overlays = [f"kube-{name}-{role}" for role in _ROLES]
    known = {overlay: _nodes(tree, overlay) for overlay in overlays if tree.find("configurationoverlay", overlay)}
    wrong = []
    for node in names:
        if tree.find("device", node) is None:
            wrong.append(f"{node}: there is no such device")
        elif cluster_of(tree, node) != name:
            wrong.append(f"{node} is not part of the cluster {name}")
        elif not any(node in members for members in known.values()):
            category = tree.get(("device", node)).values.get("category", "")
            wrong.append(f"{node} is part of {name} by its category {category} or a role: set another one, and commit")
    if wrong:
        raise errors.Invalid(f"the nodes cannot be taken out of {name}", problems=wrong)
    further = [docker.name_of(name), *repositories.overlays_of(tree, name)]
    known |= {overlay: _nodes(tree, overlay) for overlay in further if tree.find("configurationoverlay", overlay)}
    left = {overlay: [node for node in members if node not in names] for overlay, members in known.items()}
    changed = {overlay: members for overlay, members in left.items() if members != known[overlay]}
    _demand_survival(tree, name, changed)
    return changed


def _demand_survival(tree: Tree, name: str, overlays: Overlays) -> None:
    """Refuse what the head would refuse to commit: a cluster without control plane, an etcd without quorum. Who is up
    is known to the head alone."""
    session = Session(tree)
    for overlay, members in overlays.items():
        session.set(("configurationoverlay", overlay), "nodes", ",".join(members))
    records = {member.node.key: Membership(name) for member in kubelets(tree, name)}
    wrong = refusals(records, tree, session.tree, lambda node: True)
    if wrong:
        raise errors.Invalid(f"the nodes cannot be taken out of {name}", problems=list(wrong))


def _demand_managed(tree: Tree, name: str) -> None:
    if not is_managed(tree, name):
        raise errors.Invalid(
            f"the head does not join and drain the nodes of the cluster {name}",
            hint=f"in cmsh: kubernetes use {name}; set -e node_lifecycle managed; commit",
        )
    if is_paused(tree, name):
        raise errors.Invalid(
            f"the cluster {name} is being restored or upgraded",
            hint=f"wait for the end; an interrupted run: --resume --cluster {name}, or --undo --cluster {name}",
        )


def _nodes(tree: Tree, overlay: str) -> list[str]:
    members = ConfigurationOverlay.nodes.value(tree.get(("configurationoverlay", overlay)))
    assert isinstance(members, tuple)
    return list(members)


def check(action: str, tree: Tree, answers: Mapping[str, Any]) -> None:
    """Refuse nodes that cannot be added or taken out, before a run begins. Raises `Invalid` with all that is wrong."""
    asked = _Answers(answers)
    if action == "add-nodes":
        assigned(tree, asked.cluster, asked.nodes, is_plane=asked.is_plane)
    else:
        unassigned(tree, asked.cluster, asked.nodes)


def adding(answers: Mapping[str, Any]) -> list[Stage]:
    """What adds nodes to a cluster."""
    stage = functools.partial(_stage, answers)
    return [
        stage("Check Nodes", _check_added, inputs="the state of the nodes"),
        stage("Assign Roles", _assign, _take_back, effects="overlays; packages and services on the nodes"),
        stage("Join Nodes", _joined, effects="kubeadm join, by the head"),
        stage("Print Summary", _summary, inputs="the cluster"),
    ]


def removing(answers: Mapping[str, Any]) -> list[Stage]:
    """What takes nodes out of a cluster."""
    stage = functools.partial(_stage, answers)
    return [
        stage("Check Nodes", _check_removed, inputs="the state of the nodes"),
        stage("Unassign Roles", _unassign, _give_back, effects="overlays"),
        stage("Drain And Reset Nodes", _left, effects="drain, etcd member, kubeadm reset, Node; by the head"),
        stage("Wait For Nodes", _cleared, inputs="files and services of the nodes"),
        stage("Print Summary", _summary, inputs="the cluster"),
    ]


class _Answers:
    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.cluster: str = answers["cluster"]
        self.nodes: list[str] = answers["nodes"]
        self.is_plane = bool(answers.get("control_plane"))


Work = Callable[[Context, Tree, _Answers], Awaitable[None]]


def _stage(
    answers: Mapping[str, Any], name: str, run: Work, undo: Work | None = None, *, inputs: str = "", effects: str = ""
) -> Stage:
    asked = _Answers(answers)
    undone = functools.partial(_with_tree, asked, undo) if undo is not None else None
    return Stage(name, PLUGIN, functools.partial(_with_tree, asked, run), undone, inputs=inputs, effects=effects)


async def _with_tree(asked: _Answers, work: Work, context: Context) -> None:
    backend = context.services.backend
    await backend.catch_up()
    await work(context, backend.tree, asked)


async def _check_added(context: Context, tree: Tree, asked: _Answers) -> None:
    assigned(tree, asked.cluster, asked.nodes, is_plane=asked.is_plane)
    away = [node.node for node in await nodes.down(context, asked.nodes)]
    if away:
        raise errors.Unavailable(
            f"the agent of {', '.join(away)} does not report",
            hint="see cmsh: device status; start the agents, then retry",
        )


async def _check_removed(context: Context, tree: Tree, asked: _Answers) -> None:
    unassigned(tree, asked.cluster, asked.nodes)
    for node in await nodes.down(context, asked.nodes):
        context.say(f"Warning: {node.node} is {node.state}: it cannot be drained and reset before it is back")


async def _assign(context: Context, tree: Tree, asked: _Answers) -> None:
    if _WANTED not in context.notes:
        overlays = assigned(tree, asked.cluster, asked.nodes, is_plane=asked.is_plane)
        present = await nodes.systems(context, asked.nodes)
        _note(context, tree, with_repositories(tree, asked.cluster, overlays, present))
    await _change(context, asked)
    await nodes.applied(context, context.notes[_REVISION])


async def _unassign(context: Context, tree: Tree, asked: _Answers) -> None:
    if _WANTED not in context.notes:
        _note(context, tree, unassigned(tree, asked.cluster, asked.nodes))
    await _change(context, asked)


def _note(context: Context, tree: Tree, overlays: Overlays) -> None:
    context.notes[_CHANGED] = {overlay: _nodes(tree, overlay) for overlay in overlays}
    context.notes[_WANTED] = overlays


async def _change(context: Context, asked: _Answers) -> None:
    """Write the overlays; a run that was killed before it noted the revision finds nothing to change."""
    if _REVISION not in context.notes:
        message = f"nodes of the Kubernetes cluster {asked.cluster}: {', '.join(asked.nodes)}"
        context.notes[_REVISION] = await _write(context, context.notes[_WANTED], message)


async def _write(context: Context, overlays: Overlays, message: str) -> int:
    head, edits = nodes.head_of(context), []
    for overlay, members in overlays.items():
        obj = await head.get("configurationoverlay", overlay)
        whole = {**nodes.whole(obj), "values": {**obj.values, "nodes": members}}
        edits.append(headapi.Edit(mode="configurationoverlay", key=overlay, base=obj.revision, object=whole))
    revision = await head.commit(edits, message) if edits else None
    return revision.number if revision is not None else (await head.whoami()).revision


async def _restore(context: Context, tree: Tree, asked: _Answers) -> int | None:
    """Give the overlays the nodes back that they had, and leave what else was changed of them; the revision, None where
    nothing had been changed."""
    overlays = {}
    for overlay, members in (context.notes.get(_CHANGED) or {}).items():
        if tree.find("configurationoverlay", overlay) is not None:
            present = set(_nodes(tree, overlay)) - set(asked.nodes)
            overlays[overlay] = sorted(present | (set(members) & set(asked.nodes)), key=natural)
    if not overlays:
        return None
    return await _write(context, overlays, f"undo: nodes of the Kubernetes cluster {asked.cluster}")


async def _take_back(context: Context, tree: Tree, asked: _Answers) -> None:
    """Undo of an addition: over when the nodes are out again, and what they were."""
    revision = await _restore(context, tree, asked)
    if revision is not None:
        await _until_left(context, asked, revision)
        context.notes[nodes.MAY_BE_DOWN] = True
        await nodes.applied(context, revision)


async def _give_back(context: Context, tree: Tree, asked: _Answers) -> None:
    """Undo of a removal: over when the nodes are part of the cluster again."""
    revision = await _restore(context, tree, asked)
    if revision is not None:
        context.notes[nodes.MAY_BE_DOWN] = True
        await nodes.applied(context, revision)
        away = {node.node for node in await nodes.down(context, asked.nodes)}
        there = [name for name in asked.nodes if name not in away]
        async with cluster.connected(folder_of(context), asked.cluster) as client:
            await cluster.until_ready(client, there, {}, context.clock)


async def _joined(context: Context, tree: Tree, asked: _Answers) -> None:
    words = ["control-plane", "master"] if asked.is_plane else ["worker"]
    labels = {name: [f"{_LABEL}{word}" for word in words] for name in asked.nodes}
    async with cluster.connected(folder_of(context), asked.cluster) as client:
        await cluster.until_ready(client, asked.nodes, labels, context.clock)
    context.say(f"{', '.join(asked.nodes)}: Ready")


async def _left(context: Context, tree: Tree, asked: _Answers) -> None:
    await _until_left(context, asked, context.notes[_REVISION])


async def _until_left(context: Context, asked: _Answers, revision: int) -> None:
    away = {node.node for node in await nodes.down(context, asked.nodes)}
    for name in sorted(away, key=natural):
        context.say(
            f"Warning: {name} is down; the head drains and resets it when it is back, "
            f"and gives it up once it is removed (cmsh: device remove {name})"
        )

    async def waits() -> str:
        progress = await nodes.head_of(context).progress(revision)
        return "; ".join(f"{node.node}: {node.text or node.state}" for node in progress.nodes)

    there = [name for name in asked.nodes if name not in away]
    await cluster.until_gone(folder_of(context), asked.cluster, there, context.clock, waits)


async def _cleared(context: Context, tree: Tree, asked: _Answers) -> None:
    context.notes[nodes.MAY_BE_DOWN] = True
    await nodes.applied(context, context.notes[_REVISION])


async def _summary(context: Context, tree: Tree, asked: _Answers) -> None:
    async with cluster.connected(folder_of(context), asked.cluster) as client:
        for name in await cluster.node_names(client):
            context.say(name)
