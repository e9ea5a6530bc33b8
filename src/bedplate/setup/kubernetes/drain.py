"""Draining a node: no new pods, and those that can run elsewhere leave it through the eviction API.

In: the pods of a node, as the API has them, and what may be lost (`Consent`). Out: `plan`, which is pure: which pods
are evicted, which stay, and which keep the node from being drained, each with the flag that continues. `drain` carries
a plan out: a refusal comes before anything is changed. Pods of DaemonSets and static pods stay, as they would be made
again at once. A budget that does not let a pod go is waited for, then reported with the pod.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bedplate.api.resources import NODES, PODS, RawObject
from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.kube import Client
from bedplate.kube import errors as kube_errors

__all__ = [
    "MIRROR",
    "NOTHING",
    "Consent",
    "Drain",
    "Refusal",
    "cordon",
    "drain",
    "is_evictable",
    "name_of",
    "plan",
    "uncordon",
]

MIRROR = "kubernetes.io/config.mirror"
_MANAGER = "cm-kubernetes-setup"
_POLL_S = 0.5
_TIMEOUT_S = 300.0
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


@dataclass(frozen=True, slots=True)
class Refusal:
    """A pod that keeps its node from being drained, why, and the flag that continues."""

    pod: str
    why: str
    flag: str

    def __str__(self) -> str:
        return f"pod {self.pod} {self.why} ({self.flag} continues)"


@dataclass(frozen=True, slots=True)
class Drain:
    """What happens to the pods of a node."""

    evicted: tuple[RawObject, ...] = ()
    ignored: tuple[str, ...] = ()
    refused: tuple[Refusal, ...] = field(default_factory=tuple)


def name_of(pod: Mapping[str, Any]) -> str:
    """`namespace/name`."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def is_evictable(pod: Mapping[str, Any]) -> bool:
    """Whether a pod leaves the node when that is drained: not a static one, nor one of a DaemonSet. Pure."""
    owner = _controller(pod)
    is_mirror = MIRROR in pod["metadata"].get("annotations", {})
    return not is_mirror and (owner is None or owner.get("kind") != "DaemonSet" or _is_finished(pod))


def plan(pods: Iterable[RawObject], consent: Consent = NOTHING) -> Drain:
    """What becomes of each pod. Pure."""
    evicted, ignored, refused = [], [], []
    for pod in sorted(pods, key=name_of):
        if not is_evictable(pod):
            ignored.append(name_of(pod))
            continue
        if not _is_finished(pod):
            if _controller(pod) is None and not consent.unmanaged:
                why = "has no controller, and would not be made again"
                refused.append(Refusal(name_of(pod), why, "--delete-unmanaged-pods"))
            volumes = [each["name"] for each in pod.get("spec", {}).get("volumes") or () if "emptyDir" in each]
            if volumes and not consent.emptydir:
                why = f"loses the content of its emptyDir {', '.join(volumes)}"
                refused.append(Refusal(name_of(pod), why, "--delete-emptydir-data"))
        evicted.append(pod)
    return Drain(tuple(evicted), tuple(ignored), tuple(refused))


def _controller(pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    owners: Iterable[Mapping[str, Any]] = pod["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def _is_finished(pod: Mapping[str, Any]) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


async def cordon(client: Client, node: str) -> None:
    """Let no new pods come to a node."""
    await client.patch(NODES, node, {"spec": {"unschedulable": True}}, field_manager=_MANAGER)


async def uncordon(client: Client, node: str) -> None:
    """Let pods come to a node again."""
    await client.patch(NODES, node, {"spec": {"unschedulable": None}}, field_manager=_MANAGER)


async def pods_of(client: Client, node: str) -> list[RawObject]:
    """The pods of a node, as the API has them."""
    return (await client.list(_PODS, field_selector=f"spec.nodeName={node}")).items


async def drain(
    client: Client,
    node: str,
    clock: Clock,
    *,
    consent: Consent = NOTHING,
    timeout_s: float = _TIMEOUT_S,
    say: Callable[[str], None] = lambda text: None,
) -> Drain:
    """Cordon a node, and have its pods leave it; returns when they are gone. Raises `Invalid` for pods that must not be
    lost, before anything is changed, and `Unavailable` with the pods that are still there when the time is over."""
    going = plan(await pods_of(client, node), consent)
    if going.refused:
        flags = sorted({each.flag for each in going.refused})
        raise errors.Invalid(
            f"{node} cannot be drained, and was left as it is",
            hint=f"move what the pods keep elsewhere, or give {' and '.join(flags)}",
            problems=[str(each) for each in going.refused],
        )
    await cordon(client, node)
    # What came between the look and the cordon leaves as well, or refuses.
    going = plan(await pods_of(client, node), consent)
    if going.refused:
        raise errors.Invalid(
            f"{node} cannot be drained: pods came to it meanwhile",
            hint="try again",
            problems=[str(each) for each in going.refused],
        )
    for name in going.ignored:
        say(f"{node}: {name} stays")
    left = {pod["metadata"]["uid"]: pod for pod in going.evicted}
    waits: dict[str, str] = {}
    asked: set[str] = set()
    end_s = clock.monotonic() + timeout_s
    while left:
        for uid, pod in list(left.items()):
            if uid not in asked:
                why = await _evict(client, pod, consent)
                if why:
                    waits[uid] = why
                else:
                    asked.add(uid)
                    waits.pop(uid, None)
                    say(f"{node}: {name_of(pod)} is {'deleted' if consent.budgets else 'evicted'}")
        there = {pod["metadata"]["uid"] for pod in await pods_of(client, node)}
        left = {uid: pod for uid, pod in left.items() if uid in there}
        if left and clock.monotonic() > end_s:
            raise _late(node, left, waits, timeout_s)
        if left:
            await clock.sleep(_POLL_S)
    return going


async def _evict(client: Client, pod: RawObject, consent: Consent) -> str:
    """Ask a pod to leave; why it may not do so yet."""
    metadata = pod["metadata"]
    name, namespace, uid = metadata["name"], metadata["namespace"], metadata["uid"]
    with contextlib.suppress(errors.NotFound):
        if consent.budgets:
            with contextlib.suppress(kube_errors.Conflict):  # another pod of that name
                await client.delete(_PODS, name, namespace, uid=uid)
            return ""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        try:
            await client.subresource("POST", _PODS, name, "eviction", namespace, model=dict, body=body)
        except kube_errors.Conflict:
            return ""
        except kube_errors.TooManyRequests as err:
            return "; ".join(err.problems) or err.status.message
        except kube_errors.InternalError as err:
            # Several budgets for one pod: the server does not evict it, ever.
            return err.status.message
    return ""


def _late(node: str, left: Mapping[str, RawObject], waits: Mapping[str, str], timeout_s: float) -> errors.BedplateError:
    told = [f"pod {name_of(pod)}: {waits.get(uid, 'was asked to end, and has not ended')}" for uid, pod in left.items()]
    is_budget = any(uid in waits for uid in left)
    hint = "see kubectl get poddisruptionbudgets -A and have more pods of that kind run, or give --disable-eviction"
    return errors.Unavailable(
        f"{node} is not drained after {timeout_s:g} s, and stays cordoned: {'; '.join(told)}",
        hint=f"{hint}; then resume" if is_budget else "see kubectl describe pod, then resume",
    )
