"""What a custom resource becomes: Kubernetes objects, in the order in which they are applied.

In: a custom resource with its kind, what the cluster has. Out: whole objects in raw form, or the reasons why there are
none. Pure. The order matters: the namespace with its rules first, bindings last, so that nobody has a right before the
rules hold. Deletion goes the other way round. Objects with the user's name alone (`john-nodes`) are shared by all
custom resources of that user and carry the user's label; all others carry the label of their custom resource.
"""

from __future__ import annotations

from typing import Any

import msgspec

from bedplate.api import names, permissions
from bedplate.api.permissions import Permission, PermissionUser
from bedplate.api.resources import RawObject
from bedplate.operators.permissions import grants, kyverno, rules
from bedplate.operators.permissions.rules import RuleSet

__all__ = ["ClusterFacts", "identity", "objects", "problems"]

RBAC_GROUP = "rbac.authorization.k8s.io"
RBAC = f"{RBAC_GROUP}/v1"
MANAGED_BY = {"app.kubernetes.io/managed-by": permissions.FIELD_MANAGER}
_LONGEST_RELEASE = 63


class ClusterFacts(msgspec.Struct, frozen=True):
    """What the objects depend on besides the custom resource."""

    has_kyverno: bool = False
    has_policies: bool = False
    """ValidatingAdmissionPolicies are served, and the manager uses them."""
    has_strict_groups: bool = True
    """Pods have `supplementalGroupsPolicy`."""


def problems(resource: Permission) -> list[str]:
    """Why nothing can be made of a custom resource, as far as it says so itself."""
    spec = resource.spec
    reasons = permissions.username_problems(spec.username)
    if len(resource.name) > _LONGEST_RELEASE:
        reasons.append(f"the name {resource.name!r} is longer than {_LONGEST_RELEASE} characters")
    if isinstance(resource, PermissionUser):
        reasons += [text for path in resource.spec.user_paths for text in rules.path_problems(path)]
        if resource.spec.role not in permissions.ROLES:
            reasons.append(f"the role {resource.spec.role!r} is not one of {', '.join(permissions.ROLES)}")
        if resource.spec.is_cluster_wide:
            return reasons
    if not spec.namespace:
        reasons.append("the namespace is empty")
    elif permissions.is_protected(spec.namespace):
        reasons.append(f"the namespace {spec.namespace!r} is protected: it belongs to the cluster itself")
    else:
        reasons += [f"the namespace {text}" for text in names.dns_label_problems(spec.namespace)]
    return reasons


def objects(resource: Permission, facts: ClusterFacts) -> list[RawObject]:
    """The objects, in order. The Namespace carries the rules of this custom resource alone."""
    if isinstance(resource, PermissionUser):
        return _for_user(resource, facts)
    return _for_operator(resource)


def identity(obj: RawObject) -> str:
    """`Kind/name`, or `Kind/namespace/name`."""
    metadata = obj["metadata"]
    return "/".join(part for part in (obj["kind"], metadata.get("namespace", ""), metadata["name"]) if part)


def _for_user(resource: PermissionUser, facts: ClusterFacts) -> list[RawObject]:
    spec = resource.spec
    user = permissions.user_part(spec.username)
    shared = {**MANAGED_BY, permissions.LABEL_USER: user}
    person = _user(spec.username)
    nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}
    reading = _role("ClusterRole", f"{user}-nodes", "", shared, [nodes])
    if spec.is_cluster_wide:
        readers = _binding(f"{user}-nodes", "", shared, ("ClusterRole", f"{user}-nodes"), [person])
        everything = _binding(f"{user}-cluster-admin", "", shared, ("ClusterRole", "cluster-admin"), [person])
        return [reading, readers, everything]
    own = {**MANAGED_BY, permissions.LABEL_RELEASE: resource.name}
    account = [_account(user, spec.namespace, own)] if spec.create_service_account else []
    subjects = [person, *([_service_account(user, spec.namespace)] if account else [])]
    readers = _binding(f"{user}-nodes", "", shared, ("ClusterRole", f"{user}-nodes"), subjects)
    name = f"{user}-restricted"
    policies = kyverno.policies(RuleSet.of(resource), spec.namespace, own) if facts.has_kyverno else []
    return [
        _namespace(resource, facts),
        *policies,
        *account,
        reading,
        _role("Role", name, spec.namespace, own, grants.NAMESPACE_RIGHTS),
        readers,
        _binding(f"{name}-own", spec.namespace, own, ("Role", name), subjects),
        _binding(name, spec.namespace, own, ("ClusterRole", spec.role), subjects),
    ]


def _for_operator(resource: Permission) -> list[RawObject]:
    """Rights of the user on the operator's kinds, and of the operator on what it makes there."""
    spec, grant = resource.spec, grants.OPERATOR[resource.kind]
    own = {**MANAGED_BY, permissions.LABEL_RELEASE: resource.name}
    user = permissions.user_part(spec.username)
    name = f"{user}-{grant.name}"
    subjects = [_user(spec.username), _service_account(user, spec.namespace)]
    operators = [_service_account(grant.account, namespace) for namespace in grant.namespaces]
    return [
        _role("Role", name, spec.namespace, own, grant.user_rules),
        _role("Role", f"{name}-operator", spec.namespace, own, grant.operator_rules),
        _binding(name, spec.namespace, own, ("Role", name), subjects),
        _binding(f"{name}-operator", spec.namespace, own, ("Role", f"{name}-operator"), operators),
    ]


def _namespace(resource: PermissionUser, facts: ClusterFacts) -> RawObject:
    checked = permissions.BY_POLICY if facts.has_policies else permissions.BY_WEBHOOK
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": resource.spec.namespace,
            "labels": {permissions.LABEL_POD_RULES: checked},
            "annotations": {permissions.RULES_PREFIX + resource.name: RuleSet.of(resource).text()},
        },
    }


def _account(name: str, namespace: str, labels: dict[str, str]) -> RawObject:
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def _role(kind: str, name: str, namespace: str, labels: dict[str, str], rights: list[dict[str, Any]]) -> RawObject:
    return {"apiVersion": RBAC, "kind": kind, "metadata": _metadata(name, namespace, labels), "rules": rights}


def _binding(
    name: str, namespace: str, labels: dict[str, str], role: tuple[str, str], subjects: list[dict[str, Any]]
) -> RawObject:
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    ref = {"apiGroup": RBAC_GROUP, "kind": role[0], "name": role[1]}
    metadata = _metadata(name, namespace, labels)
    return {"apiVersion": RBAC, "kind": kind, "metadata": metadata, "subjects": subjects, "roleRef": ref}


def _metadata(name: str, namespace: str, labels: dict[str, str]) -> dict[str, Any]:
    return {"name": name, **({"namespace": namespace} if namespace else {}), "labels": dict(labels)}


def _user(name: str) -> dict[str, Any]:
    return {"kind": "User", "apiGroup": RBAC_GROUP, "name": name}


def _service_account(name: str, namespace: str) -> dict[str, Any]:
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}
