"""The stages that put a snapshot in the place of a cluster's etcd.

In: answers with the cluster and the name of a snapshot on the head. Out: `stages`. The snapshot is unpacked on every
member before anything is stopped; then API servers are halted, all members change over at once, and API servers go on.
Nobody joins or leaves the cluster meanwhile. Each stage can be undone, so that a restore that fails leaves the data as
it was; once the API server has answered with the restored data, it stays. The former data of each member stays beside
the new one until the next restore.
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from bedplate.api.headapi import Care
from bedplate.api.resources import CONFIG_MAPS
from bedplate.core import errors
from bedplate.head import care as cared
from bedplate.head.clusters.snapshots import Snapshots, check
from bedplate.head.render.clusters import kubelets
from bedplate.setup.engine.stage import Context, Stage
from bedplate.setup.kubernetes import cluster as clusters
from bedplate.setup.kubernetes import nodes, pausing
from bedplate.setup.kubernetes.caring import care, in_words
from bedplate.setup.kubernetes.deploy import PLUGIN, folder_of

__all__ = ["FOREIGN", "differences", "republished", "stages"]

FOREIGN = "other_authority"
"""The answer that says that the snapshot has another authority than the cluster, and that this was accepted."""
_INFO, _PUBLIC = "cluster-info", "kube-public"
_AUTHORITY = re.compile(r"(certificate-authority-data:\s*)\S+")
_READY_S, _POLL_S = 300.0, 0.5
_SUCCEEDED = "the restored data is in use"
_AWAY = "members without their former data"

Step = Callable[[Context, str], Awaitable[None]]
T = TypeVar("T")


def stages(answers: dict[str, Any]) -> list[Stage]:
    """What restores the snapshot of the answers, in order."""
    stage = functools.partial(_stage, answers["cluster"])
    publish = stage("Publish Authority", _publish, _nothing, effects="the ConfigMap cluster-info")
    return [
        stage("Check Snapshot", _check, inputs="the snapshot, the agents of members and control plane nodes"),
        stage(pausing.PAUSE, pausing.pause, pausing.resume, effects=pausing.EFFECTS),
        stage("Unpack Snapshot On Members", _fetch, _drop_unused, effects="a folder beside the data of each member"),
        stage("Halt API Servers", _halt, _go_on_again, effects="the manifest of each API server"),
        stage("Replace Etcd Data", _replace, _put_back, effects="the data of each member; the former one is kept"),
        stage("Start API Servers", _go_on, _halt_again, effects="the manifest of each API server"),
        stage("Wait For API Server", _ready, inputs="the API server"),
        *([publish] if answers.get(FOREIGN) else []),
        stage("Remove Unpacked Snapshot", _drop, _drop, effects="that folder of each member"),
        stage(pausing.RESUME, pausing.resume, pausing.resume, effects=pausing.EFFECTS),
    ]


def differences(kept: Iterable[str], own: Iterable[str]) -> list[str]:
    """What is to be done about Nodes of the snapshot (`kept`) that are not those of the cluster (`own`). Pure."""
    kept, own = set(kept), set(own)
    late = "is not in the snapshot: start its kubelet again, then it registers"
    lines = [f"{name} {late}" for name in sorted(own - kept)]
    gone = "is in the snapshot and has left the cluster since: remove its Node with kubectl delete node"
    return [*lines, *(f"{name} {gone} {name}" for name in sorted(kept - own))]


def republished(kubeconfig: str, authority: bytes) -> str:
    """What joining nodes read, with another authority in it. Pure."""
    return _AUTHORITY.sub(lambda match: match[1] + base64.b64encode(authority).decode(), kubeconfig)


def _stage(
    cluster: str, name: str, run: Step, undo: Step | None = None, *, inputs: str = "", effects: str = ""
) -> Stage:
    async def begin(step: Step, context: Context) -> None:
        await context.services.backend.catch_up()
        await step(context, cluster)

    back = functools.partial(begin, undo) if undo is not None else None
    return Stage(name, PLUGIN, functools.partial(begin, run), back, None, inputs, effects)


def _members(context: Context, cluster: str) -> list[str]:
    return cared.members(context.services.backend.tree, cluster)


def _planes(context: Context, cluster: str) -> list[str]:
    return cared.planes(context.services.backend.tree, cluster)


async def _check(context: Context, cluster: str) -> None:
    snapshots = Snapshots(folder_of(context))
    about = snapshots.get(cluster, context.answers["snapshot"])
    check(snapshots.place(cluster, about.name))
    own = {*_members(context, cluster), *_planes(context, cluster)}
    states = {state.node: state.state for state in await nodes.head_of(context).nodes(sorted(own))}
    away = sorted(name for name in own if states.get(name) != "UP")
    if away:
        raise errors.Unavailable(
            f"the agent of {', '.join(away)} does not report; nothing was changed",
            hint="every member is restored at once: start the agents, then retry",
        )
    context.say(f"Snapshot {about.name}, {about.size} bytes{f', revision {about.revision}' if about.revision else ''}")


async def _ask(context: Context, names: list[str], cluster: str, action: Any, snapshot: str | None = None) -> None:
    request = Care(action=action, cluster=cluster, snapshot=snapshot)
    for item in await care(nodes.head_of(context), context.clock, names, request, context.log.info):
        context.say(f"{item.node}: {item.text}")


async def _fetch(context: Context, cluster: str) -> None:
    await _ask(context, _members(context, cluster), cluster, "fetch", context.answers["snapshot"])


async def _drop(context: Context, cluster: str) -> None:
    """The restore is over: whatever became of the folders, the data is the restored one."""
    context.notes[_SUCCEEDED] = True
    request = Care(action="drop", cluster=cluster)
    states = await care(
        nodes.head_of(context), context.clock, _members(context, cluster), request, context.log.info, is_strict=False
    )
    bad = [item for item in states if item.state != "done"]
    if bad:
        context.say(f"Warning: the folder restore beside the data of etcd stays: {in_words(bad)}; remove it by hand")


async def _drop_unused(context: Context, cluster: str) -> None:
    if _is_kept(context):
        return
    if away := context.notes.get(_AWAY):
        raise errors.Unavailable(
            f"what was unpacked stays, as {', '.join(away)} may still need it to put the former data back",
            hint="--undo again when all members are up",
        )
    await _ask(context, _members(context, cluster), cluster, "drop")


def _is_kept(context: Context) -> bool:
    """Whether the restore had succeeded before it was undone; parts of it must not be taken back then."""
    if context.notes.get(_SUCCEEDED):
        context.say("The restore had succeeded, and stays")
        return True
    return False


async def _halt(context: Context, cluster: str) -> None:
    await _ask(context, _planes(context, cluster), cluster, "halt")


async def _halt_again(context: Context, cluster: str) -> None:
    if not _is_kept(context):
        await _halt(context, cluster)


async def _go_on(context: Context, cluster: str) -> None:
    await _ask(context, _planes(context, cluster), cluster, "go-on")


async def _go_on_again(context: Context, cluster: str) -> None:
    away, members = context.notes.get(_AWAY) or [], _members(context, cluster)
    if 2 * (len(members) - len(away)) <= len(members):
        raise errors.Unavailable(
            f"the API servers stay halted: without {', '.join(away)} the former data has no quorum",
            hint="--undo again when these members are up",
        )
    if not _is_kept(context):
        await _go_on(context, cluster)


async def _replace(context: Context, cluster: str) -> None:
    await _ask(context, _members(context, cluster), cluster, "replace")


async def _put_back(context: Context, cluster: str) -> None:
    if _is_kept(context):
        return
    members = _members(context, cluster)
    context.notes[_AWAY] = members
    request = Care(action="put-back", cluster=cluster)
    states = await care(nodes.head_of(context), context.clock, members, request, context.log.info, is_strict=False)
    context.notes[_AWAY] = [item.node for item in states if item.state != "done"]
    for item in states:
        if item.state == "done":
            context.say(f"{item.node}: {item.text}")
    if bad := [item for item in states if item.state != "done"]:
        raise errors.Unavailable(
            f"put-back did not succeed on {len(bad)} of {len(states)} members: {in_words(bad)}",
            hint="--undo again when all members are up",
        )


async def _patiently(context: Context, ask: Callable[[], Awaitable[T]]) -> T:
    """The answer of an API server that has just been started. Raises `Unavailable` when there is none."""
    end_s = context.clock.monotonic() + _READY_S
    while True:
        try:
            return await ask()
        except errors.BedplateError as err:
            if context.clock.monotonic() > end_s:
                raise errors.Unavailable(
                    f"the API server is not ready after {_READY_S:g} s: {err}",
                    hint="--undo puts the former data back; --resume waits again",
                ) from err
        await context.clock.sleep(_POLL_S)


async def _ready(context: Context, cluster: str) -> None:
    async with clusters.connected(folder_of(context), cluster) as client:

        async def names() -> list[str]:
            await client.request("GET", "/readyz", accept="text/plain")
            return await clusters.node_names(client)

        present = await _patiently(context, names)
    context.say("The API server answers with the restored data")
    own = [member.node.key for member in kubelets(context.services.backend.tree, cluster)]
    for text in differences(present, own):
        context.say(f"Warning: {text}")


async def _publish(context: Context, cluster: str) -> None:
    """The controller manager gives every namespace the cluster's authority by itself, but not to nodes that join."""
    folder = folder_of(context)
    async with clusters.connected(folder, cluster) as client:

        async def change() -> bool:
            try:
                info = await client.get(CONFIG_MAPS, _INFO, _PUBLIC)
            except errors.NotFound:
                return False
            text = republished(info.data.get("kubeconfig", ""), clusters.authority_of(folder, cluster))
            await client.patch(CONFIG_MAPS, _INFO, {"data": {"kubeconfig": text}}, _PUBLIC)
            return True

        if await _patiently(context, change):
            context.say(f"Nodes that join {cluster} are told its authority")
        else:
            context.say(f"Warning: there is no ConfigMap {_INFO}; create it with kubeadm init phase bootstrap-token")
    context.say(
        "Warning: the snapshot has another authority. Tokens in it that the former keys signed are refused: delete "
        "Secrets of the type kubernetes.io/service-account-token, and restart pods that do not reach the API server"
    )


async def _nothing(context: Context, cluster: str) -> None:
    """It is in the data, and goes with it."""
