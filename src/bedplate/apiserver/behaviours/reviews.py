"""Kinds that are answered and not stored: TokenReview, the access reviews, SelfSubjectReview.

In: a review as posted. Out: the same object with its status filled in. The deciding is done by `access`.
"""

from __future__ import annotations

from typing import Any

from bedplate.apiserver import hooks, status
from bedplate.apiserver.access import identity, rbac, subjects
from bedplate.core import errors

__all__ = ["reviews"]

AUTHENTICATION = "authentication.k8s.io"
AUTHORIZATION = "authorization.k8s.io"


class _Review(hooks.Behaviour):
    """A kind whose creation is a question."""

    @property
    def call(self) -> hooks.SubresourceHandler:
        return self.answer

    async def answer(self, call: hooks.Call) -> tuple[int, hooks.Object]:
        body = dict(call.body or {})
        spec = body.get("spec") or {}
        if not isinstance(spec, dict):
            raise status.bad_request("spec: expected an object")
        body["metadata"] = body.get("metadata") or {}
        body["status"] = self.review(call, spec)
        return 201, body

    def review(self, call: hooks.Call, spec: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError("every review answers")


class TokenReview(_Review):
    """Whose token is it?"""

    def __init__(self, identities: identity.Identities) -> None:
        self._identities = identities

    def review(self, call: hooks.Call, spec: dict[str, Any]) -> dict[str, Any]:
        token = spec.get("token") or ""
        if not token:
            raise status.bad_request("token is required for TokenReview in authentication: spec.token")
        try:
            user, audiences = self._identities.review(token, spec.get("audiences") or ())
        except errors.Denied as err:
            return {"user": {}, "error": f"[invalid bearer token, {err}]"}
        return {"authenticated": True, "user": identity.info(user), "audiences": audiences}


class AccessReview(_Review):
    """May that user (or the asker: `is_self`) do it?"""

    def __init__(self, authorizer: rbac.RoleAuthorizer, *, is_self: bool) -> None:
        self._authorizer = authorizer
        self._is_self = is_self

    def review(self, call: hooks.Call, spec: dict[str, Any]) -> dict[str, Any]:
        resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        problems: list[status.FieldProblem] = []
        if bool(resource) == bool(path):
            detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            problems.append(status.FieldProblem.invalid("spec.resourceAttributes", resource, detail))
        if not self._is_self and not spec.get("user") and not spec.get("groups"):
            problems.append(
                status.FieldProblem.invalid("spec.user", "", "at least one of user or group must be specified")
            )
        if call.resource.namespaced and (resource or {}).get("namespace", "") != call.namespace:
            where = "spec.resourceAttributes.namespace"
            problems.append(status.FieldProblem.invalid(where, "", "must match metadata.namespace"))
        if problems:
            raise status.invalid(call.resource, "", problems)
        user = call.user if self._is_self else _asked_user(spec)
        decision = self._authorizer.authorize(user, _attributes(resource, path))
        answer: dict[str, Any] = {"allowed": decision.allowed}
        if decision.reason:
            answer["reason"] = decision.reason
        return answer


def _asked_user(spec: dict[str, Any]) -> subjects.User:
    extra = tuple((key, tuple(values)) for key, values in (spec.get("extra") or {}).items())
    return subjects.User(spec.get("user", ""), spec.get("uid", ""), tuple(spec.get("groups") or ()), extra)


def _attributes(resource: dict[str, Any] | None, path: dict[str, Any] | None) -> subjects.Attributes:
    if path:
        return subjects.Attributes(path.get("verb", ""), path=path.get("path", ""))
    asked = resource or {}
    return subjects.Attributes(
        asked.get("verb", ""),
        asked.get("group", ""),
        asked.get("version", ""),
        asked.get("resource", ""),
        asked.get("subresource", ""),
        asked.get("namespace", ""),
        asked.get("name", ""),
    )


class RulesReview(_Review):
    """What may the asker do in a namespace?"""

    def __init__(self, authorizer: rbac.RoleAuthorizer) -> None:
        self._authorizer = authorizer

    def review(self, call: hooks.Call, spec: dict[str, Any]) -> dict[str, Any]:
        namespace = spec.get("namespace", "")
        if not namespace:
            raise status.bad_request("no namespace on request")
        rules = self._authorizer.policy.rules_for(call.user, namespace)
        resource = [
            {key: rule[key] for key in _RESOURCE_KEYS if rule.get(key)} for rule in rules if rule.get("resources")
        ]
        paths = [
            {key: rule[key] for key in _PATH_KEYS if rule.get(key)} for rule in rules if rule.get("nonResourceURLs")
        ]
        return {"resourceRules": resource, "nonResourceRules": paths, "incomplete": False}


_RESOURCE_KEYS = ("verbs", "apiGroups", "resources", "resourceNames")
_PATH_KEYS = ("verbs", "nonResourceURLs")


class SelfReview(_Review):
    """Who am I?"""

    def review(self, call: hooks.Call, spec: dict[str, Any]) -> dict[str, Any]:
        return {"userInfo": identity.info(call.user)}


def reviews(identities: identity.Identities, authorizer: rbac.RoleAuthorizer) -> dict[tuple[str, str], hooks.Behaviour]:
    """The behaviours of all review kinds, by group and resource."""
    return {
        (AUTHENTICATION, "tokenreviews"): TokenReview(identities),
        (AUTHENTICATION, "selfsubjectreviews"): SelfReview(),
        (AUTHORIZATION, "subjectaccessreviews"): AccessReview(authorizer, is_self=False),
        (AUTHORIZATION, "localsubjectaccessreviews"): AccessReview(authorizer, is_self=False),
        (AUTHORIZATION, "selfsubjectaccessreviews"): AccessReview(authorizer, is_self=True),
        (AUTHORIZATION, "selfsubjectrulesreviews"): RulesReview(authorizer),
    }
