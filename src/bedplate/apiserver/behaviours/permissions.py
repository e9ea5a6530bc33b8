"""Roles and bindings: nobody hands out more than they hold, and a binding keeps its role.

In: writes of the four RBAC kinds. Out: refusals as Kubernetes words them; every committed change renews the
authorizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bedplate.apiserver import hooks, selectors, status
from bedplate.apiserver.access import rbac, subjects
from bedplate.apiserver.state import bodies

__all__ = ["permissions"]


class _RbacKind(hooks.Behaviour):
    create_on_update = True

    def __init__(self, authorizer: rbac.RoleAuthorizer) -> None:
        self._authorizer = authorizer

    def after_commit(self, change: bodies.Change) -> None:
        self._authorizer.touch()

    def _may(self, write: hooks.Write, verb: str, resource: str, namespace: str, name: str) -> bool:
        wish = subjects.Attributes(verb, rbac.GROUP, "v1", resource, "", namespace, name)
        return self._authorizer.authorize(write.user, wish).allowed

    def _refuse(self, write: hooks.Write, missing: list[Mapping[str, Any]]) -> status.StatusError:
        groups = " ".join(f'"{group}"' for group in write.user.groups)
        rules = "\n".join(_rule_text(rule) for rule in missing)
        who = f'user "{write.user.name}" (groups=[{groups}])'
        why = f"{who} is attempting to grant RBAC permissions not currently held:\n{rules}"
        return status.forbidden(write.resource, write.name, why)


_EVERYTHING: list[Mapping[str, Any]] = [
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
]


class RoleBehaviour(_RbacKind):
    """A role may only hold what its writer holds, or the writer may `escalate`."""

    def validate(self, write: hooks.Write) -> list[status.FieldProblem]:
        problems = _rule_problems(write.object)
        gathered = (write.object.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()
        for index, selector in enumerate(gathered):
            where = f"aggregationRule.clusterRoleSelectors[{index}]"
            problems += selectors.label_selector_problems(selector, where)
        if problems:
            return problems
        rules = list(write.object.get("rules") or [])
        gathers = write.object.get("aggregationRule")
        is_old = write.old is not None and gathers == write.old.get("aggregationRule")
        if write.old is not None and is_old and rules == (write.old.get("rules") or []):
            return []
        if gathers and not is_old:
            # A user who chooses which roles are gathered could gather any, now or later: that needs every permission.
            rules += _EVERYTHING
        if self._may(write, "escalate", write.resource.resource, write.namespace, write.name):
            return []
        missing = self._authorizer.policy.escalation(write.user, rules, write.namespace)
        if missing:
            raise self._refuse(write, missing)
        return []


class BindingBehaviour(_RbacKind):
    """A binding may only give a role its writer holds, or may `bind`; its role never changes."""

    def default(self, resource: Any, obj: hooks.Object) -> None:
        ref = obj.get("roleRef")
        if isinstance(ref, dict):
            ref.setdefault("apiGroup", rbac.GROUP)
        for subject in obj.get("subjects") or ():
            if isinstance(subject, dict) and not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
                subject["apiGroup"] = rbac.GROUP

    def validate(self, write: hooks.Write) -> list[status.FieldProblem]:
        ref = write.object.get("roleRef") or {}
        problems = _reference_problems(write, ref)
        if problems:
            return problems
        if write.old is not None and write.old.get("subjects") == write.object.get("subjects"):
            return []
        kind = "clusterroles" if ref["kind"] == "ClusterRole" else "roles"
        if self._may(write, "bind", kind, write.namespace, ref["name"]):
            return []
        role = self._authorizer.policy.role(ref, write.namespace)
        if role is None:
            raise status.StatusError(
                404,
                "NotFound",
                f'{kind}.{rbac.GROUP} "{ref["name"]}" not found',
                details={"name": ref["name"], "group": rbac.GROUP, "kind": kind},
            )
        missing = self._authorizer.policy.escalation(write.user, role.get("rules") or [], write.namespace)
        if missing:
            raise self._refuse(write, missing)
        return []


def _reference_problems(write: hooks.Write, ref: dict[str, Any]) -> list[status.FieldProblem]:
    if write.old is not None and write.old.get("roleRef") != ref:
        return [status.FieldProblem.invalid("roleRef", ref, "cannot change roleRef")]
    allowed = ("ClusterRole", "Role") if write.resource.namespaced else ("ClusterRole",)
    problems = []
    if ref.get("kind") not in allowed:
        problems.append(status.FieldProblem.not_supported("roleRef.kind", ref.get("kind", ""), allowed))
    if not ref.get("name"):
        problems.append(status.FieldProblem.required("roleRef.name"))
    for index, subject in enumerate(write.object.get("subjects") or ()):
        if not subject.get("name"):
            problems.append(status.FieldProblem.required(f"subjects[{index}].name"))
        if subject.get("kind") not in ("User", "Group", "ServiceAccount"):
            kinds = ("ServiceAccount", "User", "Group")
            problems.append(
                status.FieldProblem.not_supported(f"subjects[{index}].kind", subject.get("kind", ""), kinds)
            )
    return problems


def _rule_problems(role: hooks.Object) -> list[status.FieldProblem]:
    problems = []
    for index, rule in enumerate(role.get("rules") or ()):
        where = f"rules[{index}]"
        if not rule.get("verbs"):
            problems.append(status.FieldProblem.required(f"{where}.verbs", "verbs must contain at least one value"))
        if rule.get("nonResourceURLs"):
            if role["metadata"].get("namespace"):
                detail = "namespaced rules cannot apply to non-resource URLs"
                problems.append(
                    status.FieldProblem.invalid(f"{where}.nonResourceURLs", rule["nonResourceURLs"], detail)
                )
            continue
        if not rule.get("apiGroups"):
            problems.append(
                status.FieldProblem.required(f"{where}.apiGroups", "resource rules must supply at least one api group")
            )
        if not rule.get("resources"):
            problems.append(
                status.FieldProblem.required(f"{where}.resources", "resource rules must supply at least one resource")
            )
    return problems


def _rule_text(rule: Mapping[str, Any]) -> str:
    parts = []
    for key, name in (("apiGroups", "APIGroups"), ("resources", "Resources"), ("resourceNames", "ResourceNames")):
        if rule.get(key):
            parts.append(f"{name}:[{', '.join(_quoted(rule[key]))}]")
    if rule.get("nonResourceURLs"):
        parts.append(f"NonResourceURLs:[{', '.join(_quoted(rule['nonResourceURLs']))}]")
    parts.append(f"Verbs:[{', '.join(_quoted(rule.get('verbs') or []))}]")
    return "{" + ", ".join(parts) + "}"


def _quoted(values: list[str]) -> list[str]:
    return [f'"{value}"' for value in values]


def permissions(authorizer: rbac.RoleAuthorizer) -> dict[tuple[str, str], hooks.Behaviour]:
    """The behaviours of the RBAC kinds, by group and resource."""
    role, binding = RoleBehaviour(authorizer), BindingBehaviour(authorizer)
    return {
        (rbac.GROUP, "roles"): role,
        (rbac.GROUP, "clusterroles"): role,
        (rbac.GROUP, "rolebindings"): binding,
        (rbac.GROUP, "clusterrolebindings"): binding,
    }
