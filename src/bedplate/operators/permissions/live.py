"""The objects of the manager as they are on the server, and whether one is as it should be.

In: caches that follow the objects with the manager's label, and all namespaces. Out: look-ups by identity, and
`matches`. Comparing decides nothing about who changed an object, only whether it has to be written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bedplate.api import meta, permissions
from bedplate.api.core import Secret
from bedplate.api.permissions import Binding, Role
from bedplate.api.resources import NAMESPACES, SECRETS, SERVICE_ACCOUNTS, RawObject, ResourceRef, custom
from bedplate.runtime.cache import Cache

__all__ = ["CLUSTER_POLICIES", "REFS", "Live", "is_equal_roleref", "matches", "ref_of"]

CLUSTER_POLICIES = custom("kyverno.io", "v1", "clusterpolicies", "ClusterPolicy", False)
SELECTOR = f"app.kubernetes.io/managed-by={permissions.FIELD_MANAGER}"
REFS: dict[str, ResourceRef[Any]] = {
    ref.kind: ref
    for ref in (
        permissions.CLUSTER_ROLES,
        permissions.CLUSTER_ROLE_BINDINGS,
        permissions.ROLES_REF,
        permissions.ROLE_BINDINGS,
        SERVICE_ACCOUNTS.partial(),
        SECRETS,
    )
}
"""Kinds that are followed by their label, by kind."""


@dataclass(slots=True)
class Live:
    """What there is."""

    caches: Mapping[str, Cache[Any]]
    namespaces: Cache[meta.PartialObject]
    policies: dict[str, RawObject] = field(default_factory=dict)
    """Kyverno's, by name: looked at from time to time, for they may not be served."""

    def get(self, kind: str, namespace: str, name: str) -> Any:
        """An object with the manager's label, or a namespace; None when there is none."""
        if kind == "Namespace":
            return self.namespaces.get(name)
        if kind == "ClusterPolicy":
            return self.policies.get(name)
        return self.caches[kind].get(f"{namespace}/{name}" if namespace else name)


def ref_of(kind: str) -> ResourceRef[Any]:
    """The resource of a kind that the manager makes."""
    if kind == "Namespace":
        return NAMESPACES
    return CLUSTER_POLICIES if kind == "ClusterPolicy" else REFS[kind]


def matches(target: RawObject, live: Any) -> bool:
    """Whether a live object says everything that it should, and no more where more would be a right or a rule."""
    if isinstance(live, Mapping):
        return _covers(target, live)
    metadata = target["metadata"]
    labels: Mapping[str, str] = metadata.get("labels", {})
    if any(live.metadata.labels.get(key) != value for key, value in labels.items()):
        return False
    if target["kind"] == "Namespace":
        return _rules_match(metadata.get("annotations", {}), live.metadata.annotations)
    match live:
        case Role():
            return msgspec.convert(target["rules"], tuple[permissions.PolicyRule, ...]) == (live.rules or ())
        case Binding():
            expected = msgspec.convert(target, Binding)
            return (expected.subjects or ()) == (live.subjects or ()) and expected.role_ref == live.role_ref
        case Secret():
            return msgspec.convert(target, Secret).data == live.data
    return True


def is_equal_roleref(target: RawObject, live: Any) -> bool:
    """Whether a live binding can be changed into the target one: its role cannot be."""
    return not isinstance(live, Binding) or msgspec.convert(target, Binding).role_ref == live.role_ref


def _rules_match(target: Mapping[str, str], live: Mapping[str, str]) -> bool:
    ours = {key: value for key, value in live.items() if key.startswith(permissions.RULES_PREFIX)}
    rules = {key: value for key, value in target.items() if key.startswith(permissions.RULES_PREFIX)}
    created = permissions.ANNOTATION_CREATED
    return ours == rules and (created not in target or target[created] == live.get(created))


def _covers(target: Any, live: Any) -> bool:
    if isinstance(target, Mapping):
        return isinstance(live, Mapping) and all(_covers(value, live.get(key)) for key, value in target.items())
    if isinstance(target, list):
        return isinstance(live, list) and len(target) == len(live) and all(map(_covers, target, live))
    return bool(target == live)
