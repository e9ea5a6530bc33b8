"""Empties a deleted namespace, then lets it go.

In: namespaces in phase Terminating, and all namespaced kinds. Out: deletions of everything in them, the conditions
that tell what is still in the way, and the `finalize` that removes the namespace when nothing is left.
"""

from __future__ import annotations

from bedplate.apiserver import hooks, kinds, services
from bedplate.apiserver.access import subjects
from bedplate.apiserver.controllers.loop import Loop, absent_is_fine
from bedplate.core import clock as clocks

__all__ = ["run"]

_AGAIN_S = 0.1
_AGAIN_AT_MOST_S = 5.0


async def run(parts: services.Services) -> None:
    """Run until cancelled."""
    client = parts.client.acting_as(subjects.LOOPBACK, "namespace-controller")
    rounds: dict[str, int] = {}

    async def reconcile(name: str) -> None:
        namespace = client.get("", "namespaces", "", name)
        if namespace is None or not namespace["metadata"].get("deletionTimestamp"):
            rounds.pop(name, None)
            return
        left = await _empty(parts, client, name)
        if not left and await _tell(parts, client, namespace, left):
            # A creation that was let in just before the deletion was seen may still have been on its way to the store;
            # it has been written before what was told now, so a second look finds it.
            left = await _empty(parts, client, name)
        if left:
            rounds[name] = rounds.get(name, 0) + 1
            await _tell(parts, client, namespace, left)
            loop.add_later(name, min(_AGAIN_S * 2 ** rounds[name], _AGAIN_AT_MOST_S))
            return
        rounds.pop(name, None)
        current = client.get("", "namespaces", "", name)
        if current is not None:
            left_over = [name for name in current["spec"].get("finalizers", []) if name != "kubernetes"]
            current["spec"] = {"finalizers": left_over}
            await absent_is_fine(client.update("", "namespaces", current, subresource="finalize"))

    loop: Loop[str] = Loop("namespaces", client, reconcile)
    await loop.run(("", "namespaces", lambda change: (change.name,)))


def stored_kinds(parts: services.Services, *, namespaced: bool | None = None) -> list[kinds.Resource]:
    """One resource per kind that has stored objects, in its storage version."""
    resources: dict[tuple[str, str], kinds.Resource] = {}
    for resource in parts.kinds:
        storage = parts.kinds.storage(resource)
        if (
            "list" in resource.verbs
            and "delete" in resource.verbs
            and (namespaced is None or resource.namespaced == namespaced)
        ):
            resources.setdefault((storage.group, storage.resource), storage)
    return list(resources.values())


async def _empty(parts: services.Services, client: hooks.Client, name: str) -> dict[str, list[str]]:
    """Delete what can be deleted; what is left, by resource, with the finalizers that hold it."""
    left: dict[str, list[str]] = {}
    for kind in stored_kinds(parts, namespaced=True):
        for obj in client.list(kind.group, kind.resource, name):
            meta = obj["metadata"]
            if not meta.get("deletionTimestamp"):
                options = {"propagationPolicy": "Background", "preconditions": {"uid": meta["uid"]}}
                await absent_is_fine(client.delete(kind.group, kind.resource, name, meta["name"], options))
            remaining = client.get(kind.group, kind.resource, name, meta["name"])
            if remaining is not None:
                left.setdefault(kind.group_resource, []).extend(remaining["metadata"].get("finalizers") or [""])
    return left


async def _tell(
    parts: services.Services, client: hooks.Client, namespace: hooks.Object, left: dict[str, list[str]]
) -> bool:
    """Write the conditions; whether there was anything new to write."""
    moment = clocks.rfc3339(parts.clock.now())
    holders: dict[str, int] = {}
    for finalizers in left.values():
        for finalizer in finalizers:
            if finalizer:
                holders[finalizer] = holders.get(finalizer, 0) + 1
    content = ", ".join(f"{kind} has {len(instances)} resource instances" for kind, instances in sorted(left.items()))
    finalizer_summary = ", ".join(
        f"{finalizer} in {count} resource instances" for finalizer, count in sorted(holders.items())
    )
    states = [
        ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", "All resources successfully discovered"),
        (
            "NamespaceDeletionContentFailure",
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        (
            "NamespaceContentRemaining",
            "True" if left else "False",
            "SomeResourcesRemain" if left else "ContentRemoved",
            f"Some resources are remaining: {content}" if left else "All content successfully removed",
        ),
        (
            "NamespaceFinalizersRemaining",
            "True" if finalizer_summary else "False",
            "SomeFinalizersRemain" if finalizer_summary else "ContentHasNoFinalizers",
            f"Some content in the namespace has finalizers remaining: {finalizer_summary}"
            if finalizer_summary
            else "All content-preserving finalizers finished",
        ),
    ]
    before = {condition["type"]: condition for condition in (namespace.get("status") or {}).get("conditions") or ()}
    conditions = []
    for kind, value, reason, message in states:
        since = moment
        if kind in before and before[kind]["status"] == value:
            since = before[kind].get("lastTransitionTime", moment)
        conditions.append(
            {"type": kind, "status": value, "lastTransitionTime": since, "reason": reason, "message": message}
        )
    if conditions == list(before.values()):
        return False
    patch = {"status": {"conditions": conditions}}
    await absent_is_fine(client.patch("", "namespaces", "", namespace["metadata"]["name"], patch, subresource="status"))
    return True
