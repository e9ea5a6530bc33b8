"""Kinds that credentials come from: ServiceAccounts with `token`, CertificateSigningRequests with `approval`.

In: TokenRequests; writes of signing requests and of their approval. Out: the TokenRequest with a signed token, bound
to a Pod, Secret or Node when asked; the signing request with its asker and its conditions. Default accounts and token
Secrets are made by `controllers/access`. Nothing here signs certificates: that is done by whoever watches for approved
requests (kube-controller-manager, cert-manager).
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from bedplate.apiserver import hooks, parts, status
from bedplate.apiserver.access import identity, tokens
from bedplate.core import clock as clocks

__all__ = ["AccountBehaviour", "SigningRequestBehaviour"]

SHORTEST_S, LONGEST_S, DEFAULT_S = 600, 1 << 32, 3600
GROUP, RESOURCE = "certificates.k8s.io", "certificatesigningrequests"
VERDICTS = ("Approved", "Denied")


class AccountBehaviour(hooks.Behaviour):
    """What a ServiceAccount does beyond being stored."""

    def __init__(self, signer: tokens.Signer) -> None:
        self._signer = signer

    @property
    def subresources(self) -> dict[str, hooks.SubresourceHandler]:
        return {"token": self._token}

    async def _token(self, call: hooks.Call) -> tuple[int, hooks.Object]:
        account = call.existing()
        body: dict[str, Any] = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", **(call.body or {})}
        spec = dict(parts.mapping(body, "spec"))
        seconds = parts.number(spec, "expirationSeconds") or DEFAULT_S
        problems = _problems(seconds)
        if problems:
            raise _refusal(problems)
        audiences = tuple(parts.texts(spec, "audiences") or (tokens.DEFAULT_AUDIENCE,))
        expires = call.services.clock.now() + timedelta(seconds=seconds)
        claims = tokens.Claims(
            call.namespace,
            call.name,
            account["metadata"]["uid"],
            audiences,
            int(expires.timestamp()),
            str(uuid.uuid4()),
            _bound(call, parts.mapping(spec, "boundObjectRef")),
        )
        body["spec"] = spec | {"audiences": list(audiences), "expirationSeconds": seconds}
        until = datetime.fromtimestamp(claims.expires, UTC)
        body["status"] = {"token": self._signer.sign(claims), "expirationTimestamp": clocks.rfc3339(until)}
        moment = clocks.rfc3339(call.services.clock.now())
        body["metadata"] = {"name": call.name, "namespace": call.namespace, "creationTimestamp": moment}
        return 201, body


def _problems(seconds: int) -> list[status.FieldProblem]:
    where = "spec.expirationSeconds"
    if seconds < SHORTEST_S:
        return [status.FieldProblem.invalid(where, seconds, "may not specify a duration less than 10 minutes")]
    if seconds > LONGEST_S:
        return [status.FieldProblem.invalid(where, seconds, "may not specify a duration larger than 2^32 seconds")]
    return []


def _refusal(problems: list[status.FieldProblem]) -> status.StatusError:
    causes = [{"reason": problem.reason, "message": problem.message, "field": problem.field} for problem in problems]
    details = {"group": "authentication.k8s.io", "kind": "TokenRequest", "causes": causes}
    text = f'TokenRequest.authentication.k8s.io "" is invalid: {problems[0]}'
    return status.StatusError(422, "Invalid", text, details=details)


def _bound(call: hooks.Call, ref: dict[str, Any] | None) -> tuple[str, str, str] | None:
    if not ref:
        return None
    kind = ref.get("kind", "")
    if kind not in ("Pod", "Secret", "Node"):
        raise status.bad_request(
            f"cannot bind token for serviceaccount to object of type {ref.get('apiVersion')}, Kind={kind}"
        )
    namespace = "" if kind == "Node" else call.namespace
    holder = call.services.client.get("", kind.lower() + "s", namespace, ref.get("name", ""))
    if holder is None:
        details = {"name": ref.get("name", ""), "kind": kind.lower() + "s"}
        raise status.StatusError(404, "NotFound", f'{kind.lower()}s "{ref.get("name", "")}" not found', details=details)
    if ref.get("uid") and ref["uid"] != holder["metadata"]["uid"]:
        why = f"the UID in the bound object reference ({ref['uid']}) does not match the UID in record"
        raise status.conflict(call.resource, call.name, why)
    return kind, ref["name"], holder["metadata"]["uid"]


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
        current = call.existing()
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
