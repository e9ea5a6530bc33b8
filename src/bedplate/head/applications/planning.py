"""What to do about an application: apply these objects in this order, then delete those.

In: the applications of a cluster as the tree has them, and what is recorded of one. Out: a `Plan`. Pure.

An object belongs to one application: where two have it, to the first by group and name. Only a namespace may be in
several, as long as all say the same of it. What left the manifests of one
application and is in another one's now is handed over, never deleted. Objects others need come first; they are deleted
in the reverse order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from bedplate.core import errors
from bedplate.head.applications import manifests
from bedplate.head.applications.manifests import Manifest
from bedplate.head.applications.records import Item
from bedplate.head.entities.kubernetes import AppGroup, Application
from bedplate.head.objects import Obj

__all__ = ["Key", "Plan", "Wanted", "is_first", "keys", "owners", "plan", "rank", "wanted"]

Claim = tuple[str, str, str, str]

_ORDER = (
    *("Namespace", "CustomResourceDefinition", "PriorityClass", "RuntimeClass", "StorageClass", "IngressClass"),
    *("ResourceQuota", "LimitRange", "NetworkPolicy", "ServiceAccount", "Secret", "ConfigMap"),
    *("PersistentVolume", "PersistentVolumeClaim", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    *("Service", "PodDisruptionBudget", "DaemonSet", "Pod", "ReplicaSet", "Deployment", "StatefulSet", "Job"),
    *("CronJob", "HorizontalPodAutoscaler", "Ingress", "APIService"),
)
_RANKS = {kind: number for number, kind in enumerate(_ORDER)}
_CUSTOM = len(_ORDER)
_LAST = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
"""Once these are there, nothing is created without what is behind them."""
_FIRST = frozenset({("", "Namespace"), ("apiextensions.k8s.io", "CustomResourceDefinition")})


class Key(NamedTuple):
    """An application of a cluster."""

    group: str
    name: str

    def __str__(self) -> str:
        return f"{self.group}/{self.name}"


class Wanted(NamedTuple):
    """An enabled application: its objects, names without a value, and what is wrong with its text."""

    objects: tuple[Manifest, ...]
    unknown: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class Plan(NamedTuple):
    """`first` are applied and ready before `rest`; then `delete`, in this order. `refused` belong to another
    application; `handed` are recorded here and belong to another one now."""

    first: tuple[Manifest, ...] = ()
    rest: tuple[Manifest, ...] = ()
    refused: tuple[tuple[Manifest, Key], ...] = ()
    delete: tuple[Item, ...] = ()
    handed: tuple[Item, ...] = ()


def keys(cluster: Obj) -> list[Key]:
    """All applications of a cluster, enabled or not, in their order."""
    return sorted(Key(group, name) for group, obj in cluster.below("app_groups").items()
                  for name in obj.below("applications"))  # fmt: skip


def wanted(cluster: Obj) -> dict[Key, Wanted]:
    """The applications that are enabled, as is their group, in their order."""
    enabled = {}
    for key in keys(cluster):
        group = cluster.below("app_groups")[key.group]
        application = group.below("applications")[key.name]
        if AppGroup.enabled.value(group) and Application.enabled.value(application):
            enabled[key] = _wanted(application)
    return enabled


def _wanted(application: Obj) -> Wanted:
    text = str(Application.config.value(application) or "")
    try:
        objects, unknown = manifests.render(text, Application.variables(application))
    except errors.Invalid as err:
        # A commit refuses such a text; one from before that rule may be there.
        return Wanted((), problems=err.problems or (err.message,))
    return Wanted(objects, unknown)


def owners(applications: Mapping[Key, Wanted]) -> dict[Claim, Key]:
    """Which application each object belongs to."""
    table: dict[Claim, Key] = {}
    for key, application in sorted(applications.items()):
        for manifest in application.objects:
            table.setdefault(manifest.claim, key)
    return table


def plan(key: Key, applications: Mapping[Key, Wanted], recorded: Iterable[Item]) -> Plan:
    """What to do about one application of a cluster; for one that is not enabled, to delete what it has."""
    table = owners(applications)
    own = applications.get(key, Wanted(()))
    mine = sorted((m for m in own.objects if table[m.claim] == key), key=lambda m: rank(m.group, m.kind))
    refused = tuple(
        (m, table[m.claim])
        for m in own.objects
        if table[m.claim] != key and not _is_shared(m, applications[table[m.claim]])
    )
    left = [item for item in recorded if table.get(item.claim) != key]
    # Of a text that cannot be read nobody knows what it no longer has.
    gone = [item for item in left if item.claim not in table] if not own.problems else []
    return Plan(
        tuple(m for m in mine if is_first(m.group, m.kind)),
        tuple(m for m in mine if not is_first(m.group, m.kind)),
        refused,
        tuple(sorted(gone, key=lambda item: rank(item.group, item.kind))[::-1]),
        tuple(item for item in left if item.claim in table),
    )


def _is_shared(manifest: Manifest, owner: Wanted) -> bool:
    """Whether it is a namespace that the application it belongs to has just the same."""
    is_namespace = (manifest.group, manifest.kind) == ("", "Namespace")
    same = (m for m in owner.objects if m.claim == manifest.claim)
    return is_namespace and any(_labelled(m.body) == _labelled(manifest.body) for m in same)


def _labelled(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """With the label that every server gives it, whether it is written down or not."""
    metadata = namespace.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata.get("name")}
    return {**namespace, "metadata": {**metadata, "labels": labels}}


def is_first(group: str, kind: str) -> bool:
    """Whether other objects need it before they can be there at all."""
    return (group, kind) in _FIRST


def rank(group: str, kind: str) -> int:
    """The place of a kind in the order of applying; custom resources come behind what is known to serve them."""
    if kind in _LAST:
        return _CUSTOM + 1 + _LAST.index(kind)
    known = _RANKS.get(kind, _CUSTOM)
    is_builtin = "." not in group or group.endswith(".k8s.io")
    return known if is_builtin else _CUSTOM
