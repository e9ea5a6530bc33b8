"""Keeps nodes from joining and leaving a cluster while it is restored or upgraded.

In: the context of a stage, a cluster. Out: the cluster's extra `node_lifecycle`, which the head heeds at once:
`paused`, and `managed` again after that. A cluster whose nodes the head leaves alone anyway stays as it is. No node has
to apply such a revision, so that none is waited for: also with nodes down a restore can be taken back.
"""

from __future__ import annotations

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.head.clusters.membership import LIFECYCLE, MANAGED, PAUSED
from bedplate.setup.engine.stage import Context
from bedplate.setup.kubernetes import nodes

__all__ = ["EFFECTS", "PAUSE", "RESUME", "pause", "resume"]

PAUSE, RESUME = "Pause Node Changes", "Resume Node Changes"
EFFECTS = "whether the head joins and drains nodes of the cluster"
_POLL_S, _ENDS_S = 0.2, 300.0


async def pause(context: Context, cluster: str) -> None:
    """Have the head neither join nor drain nor reset a node of the cluster, and wait for what it has begun. Raises
    `Unavailable` where that does not end."""
    await _change(context, cluster, MANAGED, PAUSED, f"nobody joins or leaves {cluster} for now")
    end_s = context.clock.monotonic() + _ENDS_S
    while busy := await _busy(context, cluster):
        if context.clock.monotonic() > end_s:
            raise errors.Unavailable(f"kubeadm still runs: {busy}", hint="wait for its end, then retry")
        await context.clock.sleep(_POLL_S)


async def resume(context: Context, cluster: str) -> None:
    """Let it do so again. What a run that was lost has paused goes on as well; what people have set stays."""
    await _change(context, cluster, PAUSED, MANAGED, f"the head joins and drains nodes of {cluster} again")


async def _change(context: Context, cluster: str, before: str, after: str, message: str) -> None:
    head = nodes.head_of(context)
    present = await nodes.find(head, "kubernetes", cluster)
    if present is None or str(present.extras.get(LIFECYCLE) or "").strip().lower() != before:
        return
    whole = {**nodes.whole(present), "extras": {**present.extras, LIFECYCLE: after}}
    await head.commit([headapi.Edit(mode="kubernetes", key=cluster, base=present.revision, object=whole)], message)


async def _busy(context: Context, cluster: str) -> str:
    """The nodes that join or reset themselves just now, in words; one that is down is not waited for."""
    open_ = [
        item
        for item in await nodes.head_of(context).errands([])
        if item.kind == "kubeadm" and item.cluster == cluster and item.state in ("waiting", "accepted")
    ]
    away = {state.node for state in await nodes.down(context, sorted({item.node for item in open_}))}
    return ", ".join(f"{item.node} ({item.action})" for item in open_ if item.node not in away)
