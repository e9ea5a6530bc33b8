"""What should be there for a custom resource, given all others and the cluster.

In: a custom resource, the other ones, the namespaces. Out: the objects to apply in order, or why not. Pure. It adds to
`objects` what only the whole picture shows: a namespace that several resources share, names that are taken, namespaces
that are absent or being deleted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from bedplate.api import meta, permissions
from bedplate.api.permissions import Permission, PermissionUser
from bedplate.api.resources import RawObject
from bedplate.operators.permissions import grants, helm, objects
from bedplate.operators.permissions.objects import ClusterFacts
from bedplate.operators.permissions.rules import NamespaceRules

__all__ = ["Picture", "Reason", "digest", "merged_namespace", "reason_against", "wanted"]

_ORDER = [ref.kind for ref in permissions.KINDS]


class Reason(msgspec.Struct, frozen=True):
    """Why nothing is made: the condition's reason and message."""

    reason: str
    message: str


class Picture(msgspec.Struct, frozen=True):
    """What a decision about one resource depends on."""

    facts: ClusterFacts
    neighbours: tuple[Permission, ...]
    """The other custom resources of the same namespace, user or name, each with its kind."""
    namespace: meta.PartialObject | None
    """The namespace as it is; None when there is none."""
    is_guarded: bool = True
    """The webhook is registered with the API server, so that rules hold."""


def reason_against(resource: Permission, picture: Picture) -> Reason | None:
    """Why nothing is made, if so."""
    problems = objects.problems(resource)
    if problems:
        return Reason("Invalid", "; ".join(problems))
    spec = resource.spec
    if _is_cluster_wide(resource):
        return None
    older = _older_twin(resource, picture.neighbours)
    if older is not None:
        message = f"{older.name} already gives {spec.username} rights in the namespace {spec.namespace!r}"
        return Reason("Duplicate", message)
    if isinstance(resource, PermissionUser) and not picture.is_guarded:
        message = "the webhook configuration is missing: apply the output of `bedplate permissions manifests`"
        return Reason("NotGuarded", message)
    may_create = isinstance(resource, PermissionUser) and resource.spec.create_namespace
    if picture.namespace is None and not may_create:
        return Reason("NamespaceNotFound", f"the namespace {spec.namespace!r} does not exist: create it first")
    if picture.namespace is not None and picture.namespace.metadata.is_deleting:
        return Reason("NamespaceTerminating", f"the namespace {spec.namespace!r} is being deleted")
    return None


def wanted(resource: Permission, picture: Picture) -> list[RawObject]:
    """The objects, the Helm release included, in the order in which they are applied."""
    own = objects.objects(resource, picture.facts)
    return [
        helm.release(resource, own, release_of(resource, picture.neighbours)),
        *(_merged(each, resource, picture) for each in own),
    ]


def _merged(each: RawObject, resource: Permission, picture: Picture) -> RawObject:
    """An object that several resources share, with what all of them want of it."""
    if each["kind"] == "Namespace":
        return merged_namespace(each, _users(resource, picture), picture)
    if permissions.LABEL_USER not in each["metadata"]["labels"] or "subjects" not in each:
        return each
    subjects = list(each["subjects"])
    for other in picture.neighbours:
        if isinstance(other, PermissionUser) and other.spec.username == resource.spec.username:
            theirs = objects.objects(other, picture.facts) if not objects.problems(other) else []
            same = [obj for obj in theirs if objects.identity(obj) == objects.identity(each)]
            subjects += [subject for binding in same for subject in binding["subjects"] if subject not in subjects]
    ordered = sorted(subjects, key=lambda subject: (subject["kind"] != "User", subject.get("namespace", "")))
    return {**each, "subjects": ordered}


def merged_namespace(namespace: RawObject, users: Iterable[PermissionUser], picture: Picture) -> RawObject:
    """The namespace with the rules of all users who have rights in it."""
    annotations = NamespaceRules.of(users).annotations()
    if picture.namespace is None or permissions.ANNOTATION_CREATED in picture.namespace.metadata.annotations:
        annotations[permissions.ANNOTATION_CREATED] = permissions.FIELD_MANAGER
    return {**namespace, "metadata": {**namespace["metadata"], "annotations": annotations}}


def release_of(resource: Permission, neighbours: Sequence[Permission]) -> str:
    """The Helm release: the resource's name, which the first of the kinds has that use it."""
    taken = any(
        each.name == resource.name and _ORDER.index(each.kind) < _ORDER.index(resource.kind) for each in neighbours
    )
    return f"{resource.name}-{grants.OPERATOR[resource.kind].name}" if taken else resource.name


def digest(resource: Permission, facts: ClusterFacts) -> str:
    """Of the objects of a resource: another digest means that they were meant to change."""
    text = msgspec.json.encode(objects.objects(resource, facts), order="deterministic")
    return hashlib.sha256(text).hexdigest()[:16]


def _users(resource: Permission, picture: Picture) -> list[PermissionUser]:
    users = [each for each in (resource, *picture.neighbours) if isinstance(each, PermissionUser)]
    return [each for each in users if each.spec.namespace == resource.spec.namespace and not objects.problems(each)]


def _is_cluster_wide(resource: Permission) -> bool:
    return isinstance(resource, PermissionUser) and resource.spec.is_cluster_wide


def _older_twin(resource: Permission, neighbours: Iterable[Permission]) -> Permission | None:
    """One of the same kind for the same user and namespace: both would make the same objects, and each repair what the
    other one wrote."""
    twins = (
        each
        for each in neighbours
        if each.kind == resource.kind
        and (each.spec.username, each.spec.namespace) == (resource.spec.username, resource.spec.namespace)
        and not _is_cluster_wide(each)
        and not each.metadata.is_deleting
    )
    return next((each for each in twins if _age(each) < _age(resource)), None)


def _age(resource: Permission) -> tuple[str, str]:
    created = resource.metadata.creation_timestamp
    return (created.isoformat() if created is not None else "", resource.name)
