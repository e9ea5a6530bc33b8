"""Empties a node: which of its pods are evicted, which stop it, and when it is empty.

In: the pods of a node. Out: `plan`, pure, and `drain`, which evicts. Disruption budgets are respected, as the API
server decides about every eviction. Pods of DaemonSets and static pods stay: they belong to the node. A pod without a
controller would be lost, so it stops the drain until somebody deletes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bedplate.api import core
from bedplate.api.resources import NODES, PODS
from bedplate.core import errors
from bedplate.kube import Client
from bedplate.kube import errors as kube_errors
from bedplate.kube.subresources import evict

__all__ = ["CORDONED", "Drain", "Waits", "cordon", "drain", "plan", "uncordon"]

CORDONED = "bedplate.dev/leaving"
"""The annotation of a node that the head cordoned."""
_MIRROR = "kubernetes.io/config.mirror"
_MANAGER = "bedplate-head"
_NAMED = 3


class Drain(NamedTuple):
    """Pods to evict, pods that are ending, and those that nobody would create again."""

    evicted: tuple[core.Pod, ...] = ()
    ending: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.evicted or self.ending or self.bare)


class Waits(NamedTuple):
    """What a node waits for, and whether somebody has to do something about it."""

    text: str
    is_stopped: bool = False


def plan(pods: Iterable[core.Pod]) -> Drain:
    """What the pods of a node mean for draining it. Pure."""
    evicted, ending, bare = [], [], []
    for pod in pods:
        owner = next((each for each in pod.metadata.owner_references if each.controller), None)
        if _MIRROR in pod.metadata.annotations or (owner is not None and owner.kind == "DaemonSet"):
            continue
        if pod.metadata.is_deleting:
            ending.append(_name(pod))
        elif owner is None and not pod.is_finished:
            bare.append(_name(pod))
        else:
            evicted.append(pod)
    return Drain(tuple(evicted), tuple(ending), tuple(bare))


def _name(pod: core.Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


async def drain(client: Client, node: str) -> Waits | None:
    """Evict what can be evicted now; what the node waits for, None once it is drained. Raises what the API raises."""
    steps = plan((await client.list(PODS, field_selector=f"spec.nodeName={node}")).items)
    if steps.is_empty:
        return None
    stopped = [f"{name} has no controller and would be lost: delete it" for name in steps.bare]
    going = list(steps.ending)
    for pod in steps.evicted:
        name = _name(pod)
        try:
            await evict(client, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid)
            going.append(name)
        except kube_errors.TooManyRequests as err:
            stopped.append(f"{name} cannot be evicted: {' '.join(err.status.message.split())}")
        except (errors.NotFound, errors.Conflict):
            continue
    if stopped:
        return Waits(_some(stopped), is_stopped=True)
    return Waits(f"its pods end: {_some(going)}" if going else "its pods end")


def _some(texts: list[str]) -> str:
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return "; ".join(texts[:_NAMED]) + more


async def cordon(client: Client, node: str) -> str:
    """Let no further pod be placed on a node; the UID of its Node, empty where it has none."""
    try:
        present = await client.get(NODES, node)
        if not present.spec.unschedulable:
            body = {"metadata": {"annotations": {CORDONED: "yes"}}, "spec": {"unschedulable": True}}
            await client.patch(NODES, node, body, field_manager=_MANAGER)
    except errors.NotFound:
        return ""
    return present.metadata.uid


async def uncordon(client: Client, node: str) -> None:
    """Take back what `cordon` did; a node that somebody else cordoned stays so."""
    try:
        present = await client.get(NODES, node)
        if CORDONED in present.metadata.annotations:
            body = {"metadata": {"annotations": {CORDONED: None}}, "spec": {"unschedulable": None}}
            await client.patch(NODES, node, body, field_manager=_MANAGER)
    except errors.NotFound:
        return
