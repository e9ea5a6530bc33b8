"""The stages that put a snapshot in the place of a cluster's etcd.

In: answers with the cluster and the name of a snapshot on the head. Out: `stages`. The snapshot is unpacked on every
member before anything is stopped; then API servers are halted, all members change over at once, and API servers go on.
Each stage can be undone, so that a restore that fails leaves the data as it was. The former data of each member stays
beside the new one until the next restore.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

from bedplate.api.headapi import Care
from bedplate.core import errors
from bedplate.head import care as cared
from bedplate.head.clusters.snapshots import Snapshots, check
from bedplate.setup.engine.stage import Context, Stage
from bedplate.setup.kubernetes import cluster as clusters
from bedplate.setup.kubernetes import nodes
from bedplate.setup.kubernetes.caring import care
from bedplate.setup.kubernetes.deploy import PLUGIN, folder_of

__all__ = ["stages"]

_READY_S, _POLL_S = 300.0, 0.5

Step = Callable[[Context, str], Awaitable[None]]


def stages(answers: dict[str, Any]) -> list[Stage]:
    """What restores the snapshot of the answers, in order."""
    stage = functools.partial(_stage, answers["cluster"])
    return [
        stage("Check Snapshot", _check, inputs="the snapshot, the agents of members and control plane nodes"),
        stage("Unpack Snapshot On Members", _fetch, _drop, effects="a folder beside the data of each member"),
        stage("Halt API Servers", _halt, _go_on, effects="the manifest of each API server"),
        stage("Replace Etcd Data", _replace, _put_back, effects="the data of each member; the former one is kept"),
        stage("Start API Servers", _go_on, _halt_again, effects="the manifest of each API server"),
        stage("Wait For API Server", _ready, inputs="the API server"),
        stage("Remove Unpacked Snapshot", _drop, _nothing, effects="that folder of each member"),
    ]


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
    await _ask(context, _members(context, cluster), cluster, "drop")


async def _halt(context: Context, cluster: str) -> None:
    await _ask(context, _planes(context, cluster), cluster, "halt")


async def _halt_again(context: Context, cluster: str) -> None:
    await _halt(context, cluster)


async def _go_on(context: Context, cluster: str) -> None:
    await _ask(context, _planes(context, cluster), cluster, "go-on")


async def _replace(context: Context, cluster: str) -> None:
    await _ask(context, _members(context, cluster), cluster, "replace")


async def _put_back(context: Context, cluster: str) -> None:
    await _ask(context, _members(context, cluster), cluster, "put-back")


async def _ready(context: Context, cluster: str) -> None:
    end_s = context.clock.monotonic() + _READY_S
    async with clusters.connected(folder_of(context), cluster) as client:
        while True:
            try:
                await client.request("GET", "/readyz", accept="text/plain")
                break
            except errors.BedplateError as err:
                if context.clock.monotonic() > end_s:
                    raise errors.Unavailable(
                        f"the API server is not ready after {_READY_S:g} s: {err}",
                        hint="--undo puts the former data back; --resume waits again",
                    ) from err
            await context.clock.sleep(_POLL_S)
    context.say("The API server answers with the restored data")


async def _nothing(context: Context, cluster: str) -> None:
    context.say("The snapshot is unpacked again when it is needed")
