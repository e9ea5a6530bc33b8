"""CertificateSigningRequests: who asks is written down, and the `approval` subresource says yes or no.

In: writes of the kind and of its approval. Out: the request with its asker and its conditions. Nothing here signs:
that is done by whoever watches for approved requests (kube-controller-manager, cert-manager).
"""

from __future__ import annotations

from typing import Any

from bedplate.apiserver import hooks, parts, status
from bedplate.apiserver.access import identity
from bedplate.core import clock as clocks

__all__ = ["SigningRequestBehaviour"]

GROUP, RESOURCE = "certificates.k8s.io", "certificatesigningrequests"
VERDICTS = ("Approved", "Denied")


class SigningRequestBehaviour(hooks.Behaviour):
    """What a CertificateSigningRequest does beyond being stored."""

    @property
    def subresources(self) -> dict[str, hooks.SubresourceHandler]:
        return {"approval": self._approval}

    def prepare_create(self, write: hooks.Write) -> None:
        asker = identity.info(write.user)
        spec = write.object.get("spec")
        if isinstance(spec, dict):
            for field in ("username", "uid", "groups", "extra"):
                spec.pop(field, None)
            write.object["spec"] = spec | asker
        write.object["status"] = {}

    def prepare_update(self, write: hooks.Write) -> None:
        # What was asked for stays as it was asked; a status leaves the verdict to `approval`.
        write.object["spec"] = (write.old or {}).get("spec", {})

    async def _approval(self, call: hooks.Call) -> tuple[int, hooks.Object]:
        client = call.services.client.acting_as(call.user, "approval")
        current = client.get(GROUP, RESOURCE, "", call.name)
        if current is None:
            raise status.not_found(call.resource, call.name)
        if call.verb == "get":
            return 200, current
        if call.verb not in ("update", "patch") or call.body is None:
            raise status.method_not_supported(call.resource, call.verb)
        version = parts.text(parts.mapping(call.body, "metadata"), "resourceVersion")
        if version:
            current["metadata"]["resourceVersion"] = version
        given = parts.mapping(call.body, "status").get("conditions") or []
        conditions = _conditions(given, clocks.rfc3339(call.services.clock.now()))
        if {condition["type"] for condition in conditions} >= set(VERDICTS):
            detail = "Approved and Denied conditions are mutually exclusive"
            problem = status.FieldProblem.invalid("status.conditions", given, detail)
            raise status.invalid(call.resource, call.name, [problem])
        current["status"] = (current.get("status") or {}) | {"conditions": conditions}
        return 200, await client.update(GROUP, RESOURCE, current, subresource="status")


def _conditions(given: Any, now: str) -> list[dict[str, Any]]:
    if not isinstance(given, list) or not all(
        isinstance(condition, dict) and condition.get("type") for condition in given
    ):
        raise status.bad_request("status.conditions must be a list of conditions, each with a type")
    times = {"lastUpdateTime": now, "lastTransitionTime": now}
    return [
        {"status": "True", **times, **{key: value for key, value in condition.items() if value}} for condition in given
    ]
