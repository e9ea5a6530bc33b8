"""Empties a node: which of its pods are evicted, which stay, which stop it, and when it is empty.

In: the pods of a node, as the API has them, and what may be lost (`Consent`). Out: `plan`, pure, which the head and the
upgrade of a cluster share; `evict`, which asks one pod to leave; `drain`, one round for a node that leaves its cluster.
Disruption budgets are respected, as the API server decides about every eviction. Pods of DaemonSets and static pods
stay: they belong to the node. A pod without a controller would be lost, so it stops the drain until somebody deletes it
or consents.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from bedplate.api.resources import NODES, PODS, RawObject
from bedplate.core import errors
from bedplate.kube import Client, subresources
from bedplate.kube import errors as kube_errors

__all__ = [
    "CORDONED",
    "MIRROR",
    "NOTHING",
    "Consent",
    "Drain",
    "Refusal",
    "Waits",
    "cordon",
    "drain",
    "evict",
    "name_of",
    "plan",
    "pods_of",
    "uncordon",
]

CORDONED = "bedplate.dev/leaving"
"""The annotation of a node that the head cordoned."""
MIRROR = "kubernetes.io/config.mirror"
_MANAGER = "bedplate-head"
_NAMED = 3
_PODS = PODS.raw()


@dataclass(frozen=True, slots=True)
class Consent:
    """What whoever asked for it is ready to lose."""

    emptydir: bool = False
    """The content of emptyDir volumes (`--delete-emptydir-data`)."""
    unmanaged: bool = False
    """Pods that no controller makes again (`--delete-unmanaged-pods`)."""
    budgets: bool = False
    """Availability that disruption budgets promise (`--disable-eviction`): pods are deleted."""


NOTHING = Consent()
_LEAVING = Consent(emptydir=True)
"""Of a node that leaves its cluster: what belongs to it alone goes with it."""


class Refusal(NamedTuple):
    """A pod that keeps its node from being drained, why, and the flag that continues."""

    pod: str
    why: str
    flag: str

    def __str__(self) -> str:
        return f"pod {self.pod} {self.why} ({self.flag} continues)"


class Drain(NamedTuple):
    """Pods to evict, pods that are ending, pods that stay, and those that must not be lost."""

    evicted: tuple[RawObject, ...] = ()
    ending: tuple[RawObject, ...] = ()
    ignored: tuple[str, ...] = ()
    refused: tuple[Refusal, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no pod has to leave the node any more."""
        return not (self.evicted or self.ending or self.refused)


class Waits(NamedTuple):
    """What a node waits for, and whether somebody has to do something about it."""

    text: str
    is_stopped: bool = False


def name_of(pod: Mapping[str, Any]) -> str:
    """`namespace/name`."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def plan(pods: Iterable[RawObject], consent: Consent = NOTHING) -> Drain:
    """What becomes of each pod of a node when that is drained. Pure."""
    evicted, ending, ignored, refused = [], [], [], []
    for pod in sorted(pods, key=name_of):
        if _belongs_to_node(pod):
            ignored.append(name_of(pod))
        elif pod["metadata"].get("deletionTimestamp"):
            ending.append(pod)
        elif refusals := _refusals(pod, consent):
            refused += refusals
        else:
            evicted.append(pod)
    return Drain(tuple(evicted), tuple(ending), tuple(ignored), tuple(refused))


def _belongs_to_node(pod: RawObject) -> bool:
    """Static pods, and pods of DaemonSets while they run: they would be made again at once."""
    owner = _controller(pod)
    is_daemon = owner is not None and owner.get("kind") == "DaemonSet" and not _is_finished(pod)
    return is_daemon or MIRROR in (pod["metadata"].get("annotations") or ())


def _refusals(pod: RawObject, consent: Consent) -> list[Refusal]:
    if _is_finished(pod):
        return []
    refusals = []
    if _controller(pod) is None and not consent.unmanaged:
        refusals.append(Refusal(name_of(pod), "has no controller and would be lost", "--delete-unmanaged-pods"))
    volumes = [each["name"] for each in pod.get("spec", {}).get("volumes") or () if "emptyDir" in each]
    if volumes and not consent.emptydir:
        why = f"loses the content of its emptyDir {', '.join(volumes)}"
        refusals.append(Refusal(name_of(pod), why, "--delete-emptydir-data"))
    return refusals


def _controller(pod: RawObject) -> Mapping[str, Any] | None:
    owners: Iterable[Mapping[str, Any]] = pod["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def _is_finished(pod: RawObject) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


async def pods_of(client: Client, node: str) -> list[RawObject]:
    """The pods of a node, as the API has them."""
    return (await client.list(_PODS, field_selector=f"spec.nodeName={node}")).items


async def evict(client: Client, pod: RawObject, consent: Consent = NOTHING) -> str:
    """Ask a pod to leave; why it may not do so yet, empty where it goes. Another pod of its name is left alone."""
    metadata = pod["metadata"]
    name, namespace, uid = metadata["name"], metadata["namespace"], metadata["uid"]
    with contextlib.suppress(errors.NotFound, errors.Conflict):
        try:
            if consent.budgets:
                await client.delete(_PODS, name, namespace, uid=uid)
            else:
                await subresources.evict(client, name, namespace, uid=uid)
        except kube_errors.TooManyRequests as err:
            return "; ".join(err.problems) or err.status.message
        except kube_errors.InternalError as err:
            # Several budgets for one pod: the server does not evict it, ever.
            return err.status.message
    return ""


async def drain(client: Client, node: str) -> Waits | None:
    """Evict what can be evicted now; what the node waits for, None once it is drained. Raises what the API raises."""
    steps = plan(await pods_of(client, node), _LEAVING)
    if steps.is_empty:
        return None
    stopped = [f"{each.pod} {each.why}: delete it" for each in steps.refused]
    going = [name_of(pod) for pod in steps.ending]
    for pod in steps.evicted:
        why = await evict(client, pod)
        if why:
            stopped.append(f"{name_of(pod)} cannot be evicted: {' '.join(why.split())}")
        else:
            going.append(name_of(pod))
    if stopped:
        return Waits(_some(stopped), is_stopped=True)
    return Waits(f"its pods end: {_some(going)}")


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
