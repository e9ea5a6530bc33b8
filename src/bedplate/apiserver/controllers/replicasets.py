"""ReplicaSets: as many pods as asked for.

In: ReplicaSets and the pods they own. Out: pods created or deleted, and the status. `plan` is pure. Pods get their
state from kubelets, real or simulated (`sim`); without any, they stay Pending.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from bedplate.apiserver import hooks, selectors, services
from bedplate.apiserver.access import subjects
from bedplate.apiserver.controllers.loop import Loop, absent_is_fine, own_key
from bedplate.apiserver.state import bodies

__all__ = ["Plan", "claim", "controlled_by", "is_ready", "owned", "owner_keys", "plan", "portion", "run"]

_AT_ONCE = 100


class Plan(NamedTuple):
    """What to do for one ReplicaSet."""

    create: int
    delete: list[str]
    status: dict[str, Any]


async def run(parts: services.Services) -> None:
    """Run until cancelled."""
    client = parts.client.acting_as(subjects.LOOPBACK, "replicaset-controller")

    async def reconcile(key: tuple[str, str]) -> None:
        namespace, name = key
        replicas = client.get("apps", "replicasets", namespace, name)
        if replicas is None:
            return
        pods = client.list("", "pods", namespace)
        if await claim(client, replicas, ("apps/v1", "ReplicaSet"), ("", "pods"), pods):
            pods = client.list("", "pods", namespace)
        todo = plan(replicas, pods, counts_terminating=parts.version != "1.34")
        if not replicas["metadata"].get("deletionTimestamp"):
            for _ in range(min(todo.create, _AT_ONCE)):
                await client.create("", "pods", _pod(replicas))
            for pod in todo.delete[:_AT_ONCE]:
                await absent_is_fine(client.delete("", "pods", namespace, pod))
        if (replicas.get("status") or {}) != todo.status:
            await absent_is_fine(
                client.update("apps", "replicasets", replicas | {"status": todo.status}, subresource="status")
            )

    loop: Loop[tuple[str, str]] = Loop("replicasets", client, reconcile)
    await loop.run(("apps", "replicasets", own_key), ("", "pods", lambda change: owner_keys(change, "ReplicaSet")))


def owner_keys(change: bodies.Change, kind: str) -> Iterable[tuple[str, str]]:
    """The controller of a changed object, if it is of that kind."""
    if b'"ownerReferences"' not in change.body:
        return ()
    owners = change.object["metadata"].get("ownerReferences") or ()
    return [
        (change.namespace, reference["name"])
        for reference in owners
        if reference.get("controller") and reference.get("kind") == kind
    ]


def owned(owner: hooks.Object, objects: Iterable[hooks.Object]) -> list[hooks.Object]:
    """Those objects whose controller is `owner`."""
    uid = owner["metadata"]["uid"]
    return [
        obj
        for obj in objects
        if any(
            reference.get("uid") == uid and reference.get("controller")
            for reference in obj["metadata"].get("ownerReferences") or ()
        )
    ]


def controlled_by(api_version: str, kind: str, owner: hooks.Object) -> dict[str, Any]:
    """The owner reference of what a controller makes for `owner`."""
    names = {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    return {"apiVersion": api_version, "kind": kind, **names, "controller": True, "blockOwnerDeletion": True}


def portion(value: int | str, whole: int, rounding: Callable[[float], int] = math.ceil) -> int:
    """A number of pods: `3`, or as in `25%` a part of the whole."""
    return rounding(whole * int(value.rstrip("%")) / 100) if isinstance(value, str) else int(value)


async def claim(
    client: hooks.Client,
    owner: hooks.Object,
    kind: tuple[str, str],
    resource: tuple[str, str],
    candidates: Iterable[hooks.Object],
) -> bool:
    """Adopt objects that the selector matches and that have no controller; release those it no longer matches.

    Returns whether anything was changed.
    """
    meta = owner["metadata"]
    if meta.get("deletionTimestamp"):
        return False
    selects = selectors.of_label_selector(owner["spec"]["selector"])
    is_changed = False
    for obj in candidates:
        metadata = obj["metadata"]
        owners = metadata.get("ownerReferences") or []
        holder = next((reference for reference in owners if reference.get("controller")), None)
        is_wanted = selects(metadata.get("labels") or {})
        if holder is None and is_wanted and not metadata.get("deletionTimestamp") and not _is_over(obj):
            references = [*owners, controlled_by(*kind, owner)]
        elif holder is not None and holder.get("uid") == meta["uid"] and not is_wanted:
            references = [reference for reference in owners if reference is not holder]
        else:
            continue
        same = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        change = {"metadata": same | {"ownerReferences": references or None}}
        await absent_is_fine(client.patch(*resource, meta["namespace"], metadata["name"], change))
        is_changed = True
    return is_changed


def _is_over(obj: hooks.Object) -> bool:
    return (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_ready(pod: hooks.Object) -> bool:
    """Whether the pod's Ready condition is true."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def plan(replicas: hooks.Object, pods: Iterable[hooks.Object], *, counts_terminating: bool = True) -> Plan:
    """Compare wanted with existing pods. `counts_terminating`: since 1.35 the status says how many are going."""
    mine = [pod for pod in owned(replicas, pods) if not _is_over(pod)]
    active = [pod for pod in mine if not pod["metadata"].get("deletionTimestamp")]
    desired = int(replicas["spec"].get("replicas", 1))
    # The first to go are those that do least: not scheduled, then not ready, then the youngest.
    active.sort(key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True)
    active.sort(key=lambda pod: (bool(pod["spec"].get("nodeName")), is_ready(pod)))
    ready = sum(map(is_ready, active))
    labels = replicas["spec"]["template"].get("metadata", {}).get("labels") or {}
    fully = sum(labels.items() <= (pod["metadata"].get("labels") or {}).items() for pod in active)
    state: dict[str, Any] = {"replicas": len(active), "observedGeneration": replicas["metadata"].get("generation", 1)}
    counts = {"fullyLabeledReplicas": fully, "readyReplicas": ready, "availableReplicas": ready}
    state |= {field: count for field, count in counts.items() if count}
    if counts_terminating:
        state["terminatingReplicas"] = len(mine) - len(active)
    surplus = [str(pod["metadata"]["name"]) for pod in active[: max(0, len(active) - desired)]]
    return Plan(max(0, desired - len(active)), surplus, state)


def _pod(replicas: hooks.Object) -> hooks.Object:
    meta = replicas["metadata"]
    template = replicas["spec"]["template"]
    metadata = {
        key: value
        for key, value in (template.get("metadata") or {}).items()
        if key in ("labels", "annotations") and value
    }
    return {
        "metadata": metadata
        | {
            "generateName": f"{meta['name']}-",
            "namespace": meta["namespace"],
            "ownerReferences": [controlled_by("apps/v1", "ReplicaSet", replicas)],
        },
        "spec": template["spec"],
    }
