"""Deployments: one ReplicaSet per revision of the template, the newest scaled up as the others go down.

In: Deployments, their ReplicaSets and pods' readiness as the ReplicaSets report it. Out: ReplicaSets created and
scaled, revision annotations that `kubectl rollout history` and `undo` read, status and conditions that `kubectl
rollout status` waits for. `plan` is pure. Rolling updates keep to maxSurge and maxUnavailable; Recreate empties the
old sets first.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from bedplate.apiserver import hooks, services
from bedplate.apiserver.access import subjects
from bedplate.apiserver.controllers.loop import Loop, absent_is_fine, own_key
from bedplate.apiserver.controllers.replicasets import claim, controlled_by, owned, owner_keys, portion
from bedplate.core import clock as clocks

__all__ = ["Plan", "plan", "run", "template_hash"]

REVISION = "deployment.kubernetes.io/revision"
HASH = "pod-template-hash"


class Plan(NamedTuple):
    """What to do for one Deployment: a set to create, sizes to set by name, sets to delete, annotation, status."""

    create: hooks.Object | None
    scale: dict[str, int]
    delete: list[str]
    revision: int
    status: dict[str, Any]


async def run(parts: services.Services) -> None:
    """Run until cancelled."""
    client = parts.client.acting_as(subjects.LOOPBACK, "deployment-controller")

    async def reconcile(key: tuple[str, str]) -> None:
        namespace, name = key
        deployment = client.get("apps", "deployments", namespace, name)
        if deployment is None or deployment["metadata"].get("deletionTimestamp"):
            return
        sets = client.list("apps", "replicasets", namespace)
        if await claim(client, deployment, ("apps/v1", "Deployment"), ("apps", "replicasets"), sets):
            sets = client.list("apps", "replicasets", namespace)
        sets = owned(deployment, sets)
        todo = plan(deployment, sets, clocks.rfc3339(parts.clock.now()))
        await _carry_out(client, deployment, sets, todo)

    loop: Loop[tuple[str, str]] = Loop("deployments", client, reconcile)
    await loop.run(
        ("apps", "deployments", own_key), ("apps", "replicasets", lambda change: owner_keys(change, "Deployment"))
    )


async def _carry_out(client: hooks.Client, deployment: hooks.Object, sets: list[hooks.Object], todo: Plan) -> None:
    namespace, name = deployment["metadata"]["namespace"], deployment["metadata"]["name"]
    if todo.create is not None:
        await client.create("apps", "replicasets", todo.create)
    current = next((replica_set for replica_set in sets if _hash_of(replica_set) == template_hash(deployment)), None)
    if current is not None and (current["metadata"].get("annotations") or {}).get(REVISION) != str(todo.revision):
        notes = {"metadata": {"annotations": {REVISION: str(todo.revision)}}}
        await client.patch("apps", "replicasets", namespace, current["metadata"]["name"], notes)
    for set_name, size in todo.scale.items():
        await absent_is_fine(client.patch("apps", "replicasets", namespace, set_name, {"spec": {"replicas": size}}))
    for set_name in todo.delete:
        await absent_is_fine(client.delete("apps", "replicasets", namespace, set_name))
    if (deployment["metadata"].get("annotations") or {}).get(REVISION) != str(todo.revision):
        change = {"metadata": {"annotations": {REVISION: str(todo.revision)}}}
        await absent_is_fine(client.patch("apps", "deployments", namespace, name, change))
    if (deployment.get("status") or {}) != todo.status:
        patch = {"status": dict.fromkeys(deployment.get("status") or {}) | todo.status}
        await absent_is_fine(client.patch("apps", "deployments", namespace, name, patch, subresource="status"))


def template_hash(deployment: hooks.Object) -> str:
    """A short name for a pod template: equal templates have equal names."""
    text = msgspec.json.encode(deployment["spec"]["template"], order="sorted")
    return hashlib.sha256(text).hexdigest()[:10]


def _hash_of(replicas: hooks.Object) -> str:
    return str((replicas["metadata"].get("labels") or {}).get(HASH, ""))


def _revision(replicas: hooks.Object) -> int:
    text = (replicas["metadata"].get("annotations") or {}).get(REVISION, "0")
    return int(text) if text.isdigit() else 0


def _size(replicas: hooks.Object) -> int:
    return int(replicas["spec"].get("replicas", 1))


def _count(replicas: hooks.Object, field: str) -> int:
    return int((replicas.get("status") or {}).get(field, 0))


def plan(deployment: hooks.Object, sets: list[hooks.Object], now: str) -> Plan:
    """The next step towards the wanted state."""
    spec = deployment["spec"]
    replicas, mark = int(spec.get("replicas", 1)), template_hash(deployment)
    current = next((replica_set for replica_set in sets if _hash_of(replica_set) == mark), None)
    old = [replica_set for replica_set in sets if replica_set is not current]
    highest = max((_revision(replica_set) for replica_set in old), default=0)
    known = 0 if current is None else _revision(current)
    revision = known if known > highest else highest + 1
    scale: dict[str, int] = {}
    create = None
    if not spec.get("paused"):
        if current is None:
            create = _replica_set(deployment, mark, revision, min(replicas, _first_size(spec, replicas, old)))
        else:
            scale = _steps(spec, replicas, current, old)
    keep = int(spec.get("revisionHistoryLimit", 10))
    idle = sorted(
        (replica_set for replica_set in old if not _size(replica_set) and not _count(replica_set, "replicas")),
        key=_revision,
    )
    delete = [str(replica_set["metadata"]["name"]) for replica_set in idle[: max(0, len(idle) - keep)]]
    return Plan(create, scale, delete, revision, _status(deployment, sets, current, replicas, now))


def _first_size(spec: dict[str, Any], replicas: int, old: list[hooks.Object]) -> int:
    if not old or (spec.get("strategy") or {}).get("type") == "Recreate":
        return 0 if any(_count(replica_set, "replicas") for replica_set in old) else replicas
    surge, _ = _margins(spec, replicas)
    return max(0, replicas + surge - sum(map(_size, old)))


def _margins(spec: dict[str, Any], replicas: int) -> tuple[int, int]:
    rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
    surge = portion(rolling.get("maxSurge", "25%"), replicas)
    unavailable = portion(rolling.get("maxUnavailable", "25%"), replicas, math.floor)
    return surge, (unavailable if surge or unavailable else 1)


def _steps(spec: dict[str, Any], replicas: int, current: hooks.Object, old: list[hooks.Object]) -> dict[str, int]:
    steps: dict[str, int] = {}
    if (spec.get("strategy") or {}).get("type") == "Recreate":
        steps = {str(replica_set["metadata"]["name"]): 0 for replica_set in old if _size(replica_set)}
        if not any(_count(replica_set, "replicas") for replica_set in old) and _size(current) != replicas:
            steps[current["metadata"]["name"]] = replicas
        return steps
    surge, unavailable = _margins(spec, replicas)
    total = _size(current) + sum(map(_size, old))
    if _size(current) > replicas:
        steps[current["metadata"]["name"]] = replicas
    elif _size(current) < replicas and total < replicas + surge:
        steps[current["metadata"]["name"]] = min(replicas, _size(current) + replicas + surge - total)
    spare = (
        _count(current, "availableReplicas")
        + sum(_count(replica_set, "availableReplicas") for replica_set in old)
        - (replicas - unavailable)
    )
    for replica_set in sorted(old, key=_revision):
        # Pods that are not available can go at once; available ones only as far as the margin allows.
        dead = _size(replica_set) - _count(replica_set, "availableReplicas")
        less = max(0, dead) + max(0, min(spare, _count(replica_set, "availableReplicas")))
        spare -= max(0, min(spare, _count(replica_set, "availableReplicas")))
        if less > 0 and _size(replica_set):
            steps[str(replica_set["metadata"]["name"])] = max(0, _size(replica_set) - less)
    return steps


def _replica_set(deployment: hooks.Object, mark: str, revision: int, size: int) -> hooks.Object:
    meta, spec = deployment["metadata"], deployment["spec"]
    template = msgspec.json.decode(msgspec.json.encode(spec["template"]))
    labels = ((template.setdefault("metadata", {}) or {}).get("labels") or {}) | {HASH: mark}
    template["metadata"] = (template["metadata"] or {}) | {"labels": labels}
    selector = dict(spec["selector"])
    selector["matchLabels"] = (selector.get("matchLabels") or {}) | {HASH: mark}
    notes = {
        key: value
        for key, value in (meta.get("annotations") or {}).items()
        if not key.startswith("kubectl.kubernetes.io/last")
    }
    return {
        "metadata": {
            "name": f"{meta['name']}-{mark}",
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": notes | {REVISION: str(revision)},
            "ownerReferences": [controlled_by("apps/v1", "Deployment", deployment)],
        },
        "spec": {"replicas": size, "selector": selector, "template": template},
    }


def _status(
    deployment: hooks.Object, sets: Iterable[hooks.Object], current: hooks.Object | None, replicas: int, now: str
) -> dict[str, Any]:
    every = list(sets)
    total, ready = (sum(_count(replica_set, field) for replica_set in every) for field in ("replicas", "readyReplicas"))
    available = sum(_count(replica_set, "availableReplicas") for replica_set in every)
    updated = _count(current, "replicas") if current is not None else 0
    counts = {
        "replicas": total,
        "updatedReplicas": updated,
        "readyReplicas": ready,
        "availableReplicas": available,
        "unavailableReplicas": max(0, replicas - available),
    }
    state: dict[str, Any] = {field: count for field, count in counts.items() if count}
    if any("terminatingReplicas" in (replica_set.get("status") or {}) for replica_set in every):
        state["terminatingReplicas"] = sum(_count(replica_set, "terminatingReplicas") for replica_set in every)
    state["observedGeneration"] = deployment["metadata"].get("generation", 1)
    _, unavailable = _margins(deployment["spec"], replicas)
    is_available = available >= replicas - unavailable
    is_done = updated == replicas and total == replicas and available >= replicas and current is not None
    name = current["metadata"]["name"] if current is not None else ""
    states = [
        (
            "Available",
            "True" if is_available else "False",
            "MinimumReplicasAvailable" if is_available else "MinimumReplicasUnavailable",
            "Deployment has minimum availability."
            if is_available
            else "Deployment does not have minimum availability.",
        ),
        (
            "Progressing",
            "True",
            "NewReplicaSetAvailable" if is_done else "ReplicaSetUpdated",
            f'ReplicaSet "{name}" has successfully progressed.' if is_done else f'ReplicaSet "{name}" is progressing.',
        ),
    ]
    before = {condition["type"]: condition for condition in (deployment.get("status") or {}).get("conditions") or ()}
    state["conditions"] = [
        _condition(before.get(kind), kind, value, reason, text, now) for kind, value, reason, text in states
    ]
    return state


def _condition(
    before: dict[str, Any] | None, kind: str, value: str, reason: str, text: str, now: str
) -> dict[str, Any]:
    condition = {"type": kind, "status": value, "reason": reason, "message": text}
    if before is not None and all(before.get(key) == item for key, item in condition.items()):
        return before
    since = before["lastTransitionTime"] if before is not None and before["status"] == value else now
    return condition | {"lastTransitionTime": since, "lastUpdateTime": now}
