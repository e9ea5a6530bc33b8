"""The controller: every custom resource becomes its objects, and nothing else does.

In: caches of the four kinds, of what was made, of namespaces. Out: objects, finalizers, statuses, Events. A pass reads
the caches, decides with `desired`, and writes with a `Writer` what is not as it should be. The order is the one of
`objects`: rules before bindings; and for a deletion bindings before rules.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from bedplate.api import identity, meta, permissions
from bedplate.api.permissions import Permission, PermissionUser
from bedplate.api.resources import RawObject, ResourceRef
from bedplate.core import clock, logging
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client
from bedplate.operators.permissions import desired, live, objects, statuses
from bedplate.operators.permissions.decision import Claims
from bedplate.operators.permissions.desired import Picture
from bedplate.operators.permissions.objects import ClusterFacts
from bedplate.operators.permissions.removal import Held, Removal
from bedplate.operators.permissions.writing import Foreign, Writer
from bedplate.runtime import events
from bedplate.runtime.cache import Cache, Change
from bedplate.runtime.controller import Controller, Result

__all__ = ["BY_NAMESPACE", "BY_USER", "INDEXES", "PermissionController"]

log = logging.get_logger("permissions")
WORKERS = 16
TIMEOUT_S = 120.0
DRIFT_REPAIRED, NOT_MADE = "DriftRepaired", "NotMade"
BY_NAMESPACE, BY_USER = "namespace", "user"
_RETRY_S = 15.0
"""How soon a resource is looked at again whose obstacle no watch shows."""


def _by_namespace(resource: Permission) -> Iterable[str]:
    return (resource.spec.namespace,)


def _by_user(resource: Permission) -> Iterable[str]:
    return (_user_of(resource),)


INDEXES = {BY_NAMESPACE: _by_namespace, BY_USER: _by_user}


@dataclass(slots=True)
class PermissionController:
    """One controller for all four kinds. A key is `kind/name`."""

    client: Client
    resources: Mapping[str, Cache[Any]]
    """By kind, with `INDEXES`."""
    live: live.Live
    writer: Writer
    recorder: Any
    facts: ClusterFacts = field(default_factory=ClusterFacts)
    is_guarded: Callable[[], bool] = lambda: True
    claims_of: Callable[[str, RawObject], Claims] = lambda namespace, pod: {}
    time: clock.Clock = field(default_factory=clock.SystemClock)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    loop: Controller = field(init=False)
    _refs: dict[str, ResourceRef[Any]] = field(init=False)

    def __post_init__(self) -> None:
        self._refs = {ref.kind: ref for ref in permissions.KINDS}
        self.loop = Controller(
            "permissions",
            self.reconcile,
            workers=WORKERS,
            timeout_s=TIMEOUT_S,
            time=self.time,
            registry=self.registry,
        )
        for kind, cache in self.resources.items():
            self.loop.watches(cache, self._resource_changed(kind))
        for kind, cache in self.live.caches.items():
            self.loop.watches(cache, self._object_changed(kind))
        self.loop.watches(self.live.namespaces, self._namespace_changed)

    # What concerns whom

    def _resource_changed(self, kind: str) -> Callable[[Change[Any]], Iterable[str]]:
        def keys(change: Change[Any]) -> Iterable[str]:
            old, new = change.old, change.new
            if old is not None and new is not None and _is_same(old.metadata, new.metadata):
                return ()
            own = [f"{kind}/{identity.name_of(new or old)}"]
            # Resources of one namespace or one user share objects, and a twin may have waited for this one to go.
            for each in (old, new):
                if each is not None:
                    own += self._in(each.spec.namespace) + self._owners({permissions.LABEL_USER: _user_of(each)})
            return own

        return keys

    def _object_changed(self, kind: str) -> Callable[[Change[Any]], Iterable[str]]:
        def keys(change: Change[Any]) -> Iterable[str]:
            if self._is_echo(f"{kind}/{change.key}", change):
                return ()
            known: Any = change.old if change.old is not None else change.new
            return self._owners(known.metadata.labels)

        return keys

    def _namespace_changed(self, change: Change[Any]) -> Iterable[str]:
        return () if self._is_echo(f"Namespace/{change.key}", change) else self._in(change.key)

    def _is_echo(self, name: str, change: Change[Any]) -> bool:
        if change.new is None:
            self.writer.forget(name)
            return False
        return self.writer.is_echo(name, change.new.metadata.resource_version)

    def _owners(self, labels: Mapping[str, str]) -> list[str]:
        release, user = labels.get(permissions.LABEL_RELEASE), labels.get(permissions.LABEL_USER)
        keys = []
        for kind, cache in self.resources.items():
            if release is not None and f"{permissions.NAMESPACE}/{release}" in cache:
                keys.append(f"{kind}/{release}")
            if user is not None:
                keys += [f"{kind}/{each.name}" for each in cache.by_index(BY_USER, user)]
        return keys

    def _in(self, namespace: str) -> list[str]:
        keys = []
        for kind, cache in self.resources.items():
            keys += [f"{kind}/{each.name}" for each in cache.by_index(BY_NAMESPACE, namespace)]
        return keys

    def look_again(self, release: str | None = None) -> None:
        """Queue everything, or what has this name."""
        for kind, cache in self.resources.items():
            for resource in cache:
                if release is None or resource.name == release:
                    self.loop.queue.add(f"{kind}/{resource.name}")

    def use(self, facts: ClusterFacts) -> None:
        """The cluster has more, or less, than before."""
        if facts != self.facts:
            self.facts = facts
            self.look_again()

    # One pass

    async def reconcile(self, key: str) -> Result | None:
        """Bring one custom resource up to date."""
        kind, _, name = key.partition("/")
        cached: Permission | None = self.resources[kind].get(f"{permissions.NAMESPACE}/{name}")
        if cached is None:
            return None
        resource: Permission = msgspec.structs.replace(cached, kind=kind)
        picture = await self._picture(resource)
        try:
            if resource.metadata.is_deleting:
                await self._remove(resource, picture)
                return None
            reason = desired.reason_against(resource, picture)
            if reason is None:
                await self._make(resource, picture)
                return None
        except Foreign as err:
            reason = desired.Reason("Conflict", str(err))
        except Held as err:
            reason = desired.Reason(err.reason, str(err))
        await self._report(resource, reason.reason, reason.message)
        return Result(_RETRY_S)

    async def _picture(self, resource: Permission) -> Picture:
        name = resource.spec.namespace
        namespace = self.live.namespaces.get(name) if name else None
        if namespace is None and name and not objects.problems(resource):
            namespace = await self._look_for(name)
        return Picture(self.facts, tuple(self._neighbours(resource)), namespace, self.is_guarded())

    async def _look_for(self, namespace: str) -> meta.PartialObject | None:
        """A namespace that the cache does not show: made a moment ago, or absent. The difference decides whether it may
        be deleted one day."""
        try:
            return await self.client.get(live.ref_of("Namespace").partial(), namespace)
        except kube_errors.NotFound:
            return None

    def _neighbours(self, resource: Permission) -> Iterable[Permission]:
        spec = resource.spec
        for kind, cache in self.resources.items():
            near = {each.name: each for each in cache.by_index(BY_NAMESPACE, spec.namespace)}
            near |= {each.name: each for each in cache.by_index(BY_USER, permissions.user_part(spec.username))}
            same = cache.get(f"{permissions.NAMESPACE}/{resource.name}")
            if same is not None:
                near[same.name] = same
            for name, each in near.items():
                if (kind, name) != (resource.kind, resource.name):
                    yield msgspec.structs.replace(each, kind=kind)

    async def _make(self, resource: Permission, picture: Picture) -> None:
        await self._add_finalizer(resource)
        targets = desired.wanted(resource, picture)
        names = [objects.identity(each) for each in targets]
        digest = desired.digest(resource, picture.facts)
        was_same = resource.status.digest == digest
        obsolete = [name for name in resource.status.objects if name not in names]
        # What is no longer wanted goes first: a right must not outlast the wish.
        await self._removal(resource, picture).remove(obsolete)
        for each in targets:
            before = self.live.get(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"])
            was_made = objects.identity(each) in resource.status.objects
            is_written = await self.writer.ensure(each, was_made=was_made)
            # It was made as it is meant to be now; what differs, another client changed.
            if is_written and was_made and was_same and _is_drift(resource, each, before):
                self._tell_drift(resource, each, before)
        message = f"{len(targets)} objects"
        if isinstance(resource, PermissionUser) and resource.spec.psp_spec_override:
            message += "; psp_spec_override has no effect on this cluster"
        status = statuses.following(resource, statuses.MADE, message, names, digest, self.time.now())
        if status is not None:
            await statuses.write(self.client, self._refs[resource.kind], resource, status)

    async def _add_finalizer(self, resource: Permission) -> None:
        if permissions.FINALIZER in resource.metadata.finalizers:
            return
        finalizers = [*resource.metadata.finalizers, permissions.FINALIZER]
        await self._write_finalizers(resource, finalizers)

    async def _write_finalizers(self, resource: Permission, finalizers: list[str]) -> None:
        metadata = {"finalizers": finalizers, "resourceVersion": resource.metadata.resource_version}
        ref = self._refs[resource.kind].partial()
        await self.client.patch(ref, resource.name, {"metadata": metadata}, resource.namespace)

    async def _remove(self, resource: Permission, picture: Picture) -> None:
        if permissions.FINALIZER not in resource.metadata.finalizers:
            return
        names = list(resource.status.objects)
        if not objects.problems(resource):
            identities = [objects.identity(each) for each in desired.wanted(resource, picture)]
            names += [name for name in identities if name not in names]
        await self._removal(resource, picture).remove(names)
        finalizers = [each for each in resource.metadata.finalizers if each != permissions.FINALIZER]
        with contextlib.suppress(kube_errors.NotFound):
            # It is gone already: the cache has not heard of it yet.
            await self._write_finalizers(resource, finalizers)
        log.info("permission.removed", kind=resource.kind, name=resource.name, objects=len(names))

    def _removal(self, resource: Permission, picture: Picture) -> Removal:
        return Removal(self.writer, self.client, self.live, resource, picture, self._users_of, self.claims_of)

    def _users_of(self, namespace: str) -> list[PermissionUser]:
        return list(self.resources[permissions.USERS.kind].by_index(BY_NAMESPACE, namespace))

    # What people see

    async def _report(self, resource: Permission, reason: str, message: str) -> None:
        before = resource.status
        status = statuses.following(resource, reason, message, before.objects, before.digest, self.time.now())
        if status is None:
            return
        log.warning("permission.not_made", kind=resource.kind, name=resource.name, reason=reason, message=message)
        await statuses.write(self.client, self._refs[resource.kind], resource, status)
        about = events.reference(self._refs[resource.kind], resource)
        self.recorder.event(about, events.WARNING, NOT_MADE, message)

    def tell_repaired(self, target: RawObject, was_deleted: bool) -> None:
        """Tell of an object that all users share, and that no custom resource stands for."""
        what = "was deleted" if was_deleted else "was changed"
        metadata = target["metadata"]
        about = meta.ObjectReference(api_version=target["apiVersion"], kind=target["kind"], name=metadata["name"])
        self.recorder.event(about, events.WARNING, DRIFT_REPAIRED, f"{objects.identity(target)} {what} and is restored")

    def _tell_drift(self, resource: Permission, target: RawObject, before: Any) -> None:
        what = "was deleted or lost its labels" if before is None else "was changed"
        message = f"{objects.identity(target)} {what} and is restored"
        log.warning("permission.drift_repaired", name=resource.name, object=objects.identity(target), what=what)
        about = events.reference(self._refs[resource.kind], resource)
        self.recorder.event(about, events.WARNING, DRIFT_REPAIRED, message)


def _user_of(resource: Permission) -> str:
    return permissions.user_part(resource.spec.username)


def _person(resource: Permission) -> permissions.Subject:
    return permissions.Subject("User", "rbac.authorization.k8s.io", resource.spec.username)


def _is_same(old: meta.ObjectMeta, new: meta.ObjectMeta) -> bool:
    """Nothing changed but the status, a finalizer that is not ours, or an annotation that we do not read."""
    is_held, word = permissions.FINALIZER in new.finalizers, permissions.ANNOTATION_KEEP_BINDINGS
    return (
        (old.uid, old.generation, old.is_deleting) == (new.uid, new.generation, new.is_deleting)
        and old.annotations.get(word) == new.annotations.get(word)
        and is_held
        and old.resource_version != new.resource_version
    )


def _is_drift(resource: Permission, target: RawObject, before: Any) -> bool:
    """Rules of a further user in the namespace, or a further account of the same user, do not count as drift."""
    if before is None:
        return True
    if target["kind"] == "ClusterRoleBinding":
        return [each for each in before.subjects or () if each.kind != "ServiceAccount"] != [_person(resource)]
    if target["kind"] != "Namespace":
        return True
    key, metadata = permissions.RULES_PREFIX + resource.name, target["metadata"]
    has_label = before.metadata.labels.get(permissions.LABEL_POD_RULES) is not None
    return not has_label or before.metadata.annotations.get(key) != metadata["annotations"].get(key)
