"""Taking away what a custom resource made: bindings first, the rules of the namespace last.

In: names of objects, the other custom resources. Out: deletions. What another resource needs stays. A namespace is
deleted only if the manager created it and nobody else has rights in it; one that was there before loses the rules and
keeps everything else. It does not lose them while its user has rights by a binding that was made since, nor while a
workload is there that was made or changed since and would run what the rules refuse: whoever may create either could
otherwise wait for the end of the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bedplate.api import permissions
from bedplate.api.permissions import Binding, Permission, PermissionUser, Subject
from bedplate.api.resources import RawObject
from bedplate.core import errors
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client
from bedplate.operators.permissions import desired, leftovers, live, objects
from bedplate.operators.permissions.decision import Claims
from bedplate.operators.permissions.desired import Picture
from bedplate.operators.permissions.live import Live
from bedplate.operators.permissions.rules import NamespaceRules
from bedplate.operators.permissions.writing import Writer

__all__ = ["Held", "LeftBehind", "Removal", "StillBound", "later_bindings"]

_ORDER = (
    "RoleBinding",
    "ClusterRoleBinding",
    "Role",
    "ClusterRole",
    "ServiceAccount",
    "ClusterPolicy",
    "Secret",
    "Namespace",
)

_SHOWN = 5
_BINDING_ROLES = frozenset({"admin", "cluster-admin"})


class Held(errors.Invalid):
    """The rules of a user cannot go yet."""

    reason = ""
    """Of the condition."""


class StillBound(Held):
    """A user whose rules should go has rights by bindings of others."""

    reason = permissions.STILL_BOUND


class LeftBehind(Held):
    """Workloads of a namespace whose rules should go would run what the rules refuse."""

    reason = permissions.LEFT_BEHIND


def later_bindings(resource: Permission, namespace: str, bindings: Iterable[Binding]) -> list[str]:
    """The names of bindings since the resource was created that give its user rights. Those of the namespace's accounts
    count only for a user who may bind roles: who else has them, an administrator decided."""
    groups = {"system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{namespace}"}
    may_bind = isinstance(resource, PermissionUser) and resource.spec.role in _BINDING_ROLES

    def is_theirs(subject: Subject) -> bool:
        if subject.kind == "User":
            return subject.name == resource.spec.username
        if subject.kind == "ServiceAccount":
            return may_bind and subject.namespace in ("", namespace)
        return may_bind and subject.name in groups

    since = resource.metadata.creation_timestamp
    return [
        each.metadata.name
        for each in bindings
        if any(map(is_theirs, each.subjects or ()))
        and (since is None or each.metadata.creation_timestamp is None or each.metadata.creation_timestamp >= since)
    ]


@dataclass(frozen=True, slots=True)
class Removal:
    """The removal of objects of one custom resource."""

    writer: Writer
    client: Client
    live: Live
    resource: Permission
    picture: Picture
    users_of: Callable[[str], Sequence[PermissionUser]]
    """All users with rights in a namespace."""
    claims_of: Callable[[str, RawObject], Claims] = lambda namespace, pod: {}
    """What is known of the claims of a pod."""

    async def remove(self, names: Sequence[str]) -> None:
        """Remove objects by their identities, those that others need excepted."""
        if not names:
            return
        needed = self._needed()
        for name in sorted(names, key=_rank):
            kind, *place = name.split("/")
            if kind == "Namespace":
                await self._leave(place[0])
            elif name not in needed and kind in _ORDER:
                await self.writer.remove(kind, place[0] if len(place) == 2 else "", place[-1])

    def _needed(self) -> set[str]:
        """What the other resources of the same user, namespace or name have made or will make."""
        needed: set[str] = set()
        for each in self.picture.neighbours:
            if not each.metadata.is_deleting and not objects.problems(each):
                needed |= {objects.identity(obj) for obj in desired.wanted(each, self.picture)}
        return needed

    async def _refuse_bound(self, name: str) -> None:
        """Raise `StillBound` where the user would keep rights without rules."""
        near = [each for each in self.picture.neighbours if not objects.problems(each)]
        known = {objects.identity(obj) for each in near for obj in desired.wanted(each, self.picture)}
        bindings = (await self.client.list(permissions.ROLE_BINDINGS, name)).items
        others = [each for each in bindings if f"RoleBinding/{name}/{each.name}" not in known]
        bound = later_bindings(self.resource, name, others)
        if bound:
            listed = ", ".join(f"RoleBinding {name}/{each}" for each in sorted(bound))
            raise StillBound(
                f"{listed} still gives {self.resource.spec.username} or an account of the namespace rights: delete it;"
                " the rules for pods hold until then"
            )

    async def _refuse_left(self, name: str, others: Sequence[PermissionUser], annotations: Mapping[str, str]) -> None:
        """Raise `LeftBehind` where a workload waits for the end of the rules."""
        before, after = NamespaceRules.parse(annotations), NamespaceRules.of(others)
        if not before.sets:
            return
        dangers: list[str] = []
        for ref in leftovers.WORKLOADS:
            workloads = (await self.client.list(ref, name)).items
            since = self.resource.metadata.creation_timestamp
            dangers += leftovers.dangers(ref, workloads, before, after, since, lambda pod: self.claims_of(name, pod))
        if dangers:
            more = f" and {len(dangers) - _SHOWN} more" if len(dangers) > _SHOWN else ""
            raise LeftBehind(
                f"in the namespace {name!r} the rules refuse the pods of {'; '.join(dangers[:_SHOWN])}{more}: delete or"
                " correct it; the rules for pods hold until then"
            )

    async def _leave(self, name: str) -> None:
        """Take the rules of this resource off a namespace, or delete it."""
        others = [
            each
            for each in self.users_of(name)
            if each.name != self.resource.name and not each.spec.is_cluster_wide and not objects.problems(each)
        ]
        namespace = self.live.namespaces.get(name)
        if namespace is None or namespace.metadata.is_deleting:
            return
        is_deleted = not others and permissions.ANNOTATION_CREATED in namespace.metadata.annotations
        keeps = self.resource.metadata.annotations.get(permissions.ANNOTATION_KEEP_BINDINGS) == "true"
        if not is_deleted and not keeps:
            await self._refuse_bound(name)
            await self._refuse_left(name, others, namespace.metadata.annotations)
        if others:
            facts = self.picture.facts
            shared = objects.objects(others[0], facts)[0]
            await self.writer.ensure(
                desired.merged_namespace(shared, others, Picture(facts, (), namespace, is_guarded=True))
            )
        elif is_deleted:
            try:
                await self.client.delete(live.ref_of("Namespace"), name, uid=namespace.metadata.uid)
            except kube_errors.NotFound:
                return
        else:
            await self.writer.release(name)


def _rank(name: str) -> int:
    kind = name.split("/", 1)[0]
    return _ORDER.index(kind) if kind in _ORDER else len(_ORDER)
