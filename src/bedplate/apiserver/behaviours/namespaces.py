"""Namespaces: born active, emptied by a controller before they go.

In: writes of Namespace objects. Out: the phase, the `kubernetes` finalizer in spec (which keeps a deleted namespace
until `controllers/namespaces` has emptied it and calls `finalize`), and the refusal to delete the four that the
cluster needs.
"""

from __future__ import annotations

from typing import Any

from bedplate.apiserver import hooks, status
from bedplate.apiserver.shape import fitting

__all__ = ["NamespaceBehaviour"]

NAME_LABEL = "kubernetes.io/metadata.name"
PROTECTED = frozenset({"default", "kube-system", "kube-public"})


class NamespaceBehaviour(hooks.Behaviour):
    """What a Namespace does beyond being stored."""

    @property
    def subresources(self) -> dict[str, hooks.SubresourceHandler]:
        return {"finalize": self._finalize}

    def default(self, resource: Any, obj: hooks.Object) -> None:
        name = obj.get("metadata", {}).get("name")
        if name:
            labels = obj["metadata"].get("labels") or {}
            obj["metadata"]["labels"] = labels | {NAME_LABEL: name}

    def prepare_create(self, write: hooks.Write) -> None:
        spec = write.object.get("spec") or {}
        finalizers = [*(spec.get("finalizers") or [])]
        if "kubernetes" not in finalizers:
            finalizers.append("kubernetes")
        write.object["spec"] = spec | {"finalizers": finalizers}
        write.object["status"] = {"phase": "Active"}

    def prepare_update(self, write: hooks.Write) -> None:
        old = write.old or {}
        if write.subresource != "finalize":
            write.object["spec"] = old.get("spec", {})
        if not write.subresource:
            write.object["status"] = old.get("status", {})

    async def before_delete(self, write: hooks.Write) -> None:
        if write.name in PROTECTED:
            raise status.forbidden(write.resource, write.name, "this namespace may not be deleted")

    def is_held(self, obj: hooks.Object) -> bool:
        return bool((obj.get("spec") or {}).get("finalizers"))

    def mark_deleted(self, obj: hooks.Object) -> None:
        obj["status"] = (obj.get("status") or {}) | {"phase": "Terminating"}

    async def _finalize(self, call: hooks.Call) -> tuple[int, hooks.Object]:
        """PUT of the namespace with fewer spec.finalizers; without any, a deleted namespace goes."""
        if call.verb != "update" or call.body is None:
            raise status.method_not_supported(call.resource, call.verb)
        current = call.existing()
        fitting.fit(call.body, call.resource.type, call.resource.kind, call.resource.version)
        current["spec"] = {"finalizers": list((call.body.get("spec") or {}).get("finalizers") or [])}
        version = (call.body.get("metadata") or {}).get("resourceVersion")
        if version:
            current["metadata"]["resourceVersion"] = version
        client = call.services.client.acting_as(call.user, "finalize")
        return 200, await client.update("", "namespaces", current, subresource="finalize")
