"""The cluster as the user management sees it: what is there, and the one place that changes it.

In: a client and the changes of a plan. Out: the objects as they are, and changes carried out, waited for, and taken
back when the permission manager refuses them. It decides nothing about users.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from bedplate.api import permissions
from bedplate.api.resources import CRDS, NAMESPACES, PODS, RawObject, ResourceRef
from bedplate.core import clock, errors
from bedplate.core.tasks import TaskGroup
from bedplate.kube import Client
from bedplate.people import grants
from bedplate.people.grants import Observed
from bedplate.people.plan import Change

__all__ = ["Cluster", "Key"]

FIELD_MANAGER = "cm-kubernetes-setup"
STEP_S = 0.2
# A controller may report that it is not ready while it works; it means it when the report stays.
REFUSAL_S = 3.0
# These pass: a namespace that goes, or that the manager is about to make for another object of the same call.
PASSING = ("NamespaceTerminating", "NamespaceNotFound")
AT_ONCE = 16
Key = tuple[str, str]
"""The plural and the name of a permission object."""
_NOT_INSTALLED = "install it: bedplate permissions manifests | kubectl apply --server-side -f -"
_NOT_RUNNING = "start it: permissions-manager --kubeconfig FILE; or look at the pods of cmkpm-system"


class Cluster:
    """One cluster, for as long as one request takes."""

    def __init__(self, client: Client, time: clock.Clock, timeout_s: float, field_manager: str = FIELD_MANAGER) -> None:
        self.client = client
        self.time = time
        self.timeout_s = timeout_s
        self._manager = field_manager

    async def observe(self) -> Observed:
        """All permission objects and namespaces. Raises where the kinds are not served."""
        objects = {}
        for ref in grants.KINDS:
            try:
                objects[ref.plural] = tuple((await self.client.list(ref, permissions.NAMESPACE)).items)
            except (errors.NotFound, errors.Unavailable) as err:
                await self._check_installed(ref, err)
                raise
        namespaces = await self.client.list(NAMESPACES.partial())
        return Observed(objects, frozenset(item.name for item in namespaces.items))

    async def _check_installed(self, ref: ResourceRef[RawObject], err: errors.BedplateError) -> None:
        """A server answers in many ways for kinds that it does not have; their definitions say it plainly."""
        try:
            await self.client.get(CRDS, ref.qualified)
        except errors.NotFound:
            raise errors.NotFound(
                "the permission manager is not installed on this cluster", hint=_NOT_INSTALLED
            ) from err
        except errors.BedplateError:
            return

    async def running_pods(self, namespaces: Iterable[str]) -> list[str]:
        """`namespace/name` of pods that have not ended."""
        running: list[str] = []
        for namespace in namespaces:
            pods = (await self.client.list(PODS, namespace)).items
            running += [f"{namespace}/{pod.name}" for pod in pods if not pod.is_finished]
        return sorted(running)

    async def bindings_of(self, user: str, namespace: str | None = None) -> list[str]:
        """The bindings of one namespace, or of all and of the cluster, that give a user rights by name: `Kind name` or
        `Kind namespace/name`."""
        narrow = (await self.client.list(permissions.ROLE_BINDINGS, namespace)).items
        bindings = [("RoleBinding", each) for each in narrow]
        if namespace is None:
            wide = (await self.client.list(permissions.CLUSTER_ROLE_BINDINGS)).items
            bindings += [("ClusterRoleBinding", each) for each in wide]
        return sorted(
            f"{kind} {each.namespace}/{each.name}" if each.namespace else f"{kind} {each.name}"
            for kind, each in bindings
            if any((subject.kind, subject.name) == ("User", user) for subject in each.subjects or ())
        )

    async def carry_out(self, changes: Sequence[Change], *, keeps_bindings: bool = False) -> None:
        """Make the changes and wait until they hold. What the manager refuses, or nobody takes up, is taken back.

        `keeps_bindings`: users whose objects are deleted may keep rights by bindings that others made.
        """
        done: list[Change] = []
        try:
            for change in changes:
                if keeps_bindings and change.after is None and change.ref == grants.USERS:
                    await self.annotate(change.name, {permissions.ANNOTATION_KEEP_BINDINGS: "true"})
                await self.write(change)
                done.append(change)
            await self.wait([change for change in changes if change.after is not None])
        except errors.BedplateError as err:
            await self._take_back(done, err)
            raise
        await self._wait_gone([change for change in changes if change.after is None], keeps_bindings=keeps_bindings)

    async def _take_back(self, done: Sequence[Change], err: errors.BedplateError) -> None:
        # A deleted object is on its way out, and cannot be kept by writing it again.
        for change in reversed([change for change in done if change.after is not None]):
            try:
                await self.write(Change(change.ref, change.name, change.after, change.before))
            except errors.BedplateError as fault:
                raise errors.Terminal(
                    f"{err}; and {change.ref.kind} {change.name} could not be taken back: {fault}",
                    hint=f"look at it: kubectl -n {permissions.NAMESPACE} get {change.ref.plural} {change.name}",
                ) from err

    async def write(self, change: Change) -> None:
        """Make one change, without waiting for what becomes of it."""
        ref, name = change.ref, change.name
        if change.after is None:
            try:
                await self.client.delete(ref, name, permissions.NAMESPACE)
            except errors.NotFound:
                return
        elif change.before is None:
            try:
                await self.client.create(ref, change.after, permissions.NAMESPACE, field_manager=self._manager)
            except errors.AlreadyExists as err:
                raise errors.AlreadyExists(
                    f"{ref.kind} {name} was created by another call at the same time",
                    hint="look at what it made (--get-user), then change that",
                ) from err
        else:
            old, new = change.before.get("spec") or {}, change.after.get("spec") or {}
            spec = {**dict.fromkeys(old), **new}
            labels = change.after["metadata"].get("labels")
            patch: dict[str, Any] = {"spec": spec, **({"metadata": {"labels": labels}} if labels else {})}
            await self.client.patch(ref, name, patch, permissions.NAMESPACE, field_manager=self._manager)

    async def wait(self, changes: Sequence[Change]) -> None:
        """Until every changed object is Ready. Raises with the manager's message, or that there is no manager."""
        waiting = {(change.ref.plural, change.name) for change in changes}
        deadline = self.time.monotonic() + self.timeout_s
        refused_at: dict[Key, float] = {}
        while waiting:
            objects = await self._objects({plural for plural, _ in waiting})
            for key in sorted(waiting):
                state = grants.state_of(objects.get(key))
                if state.is_ready:
                    waiting.discard(key)
                elif not state.is_reported or state.reason in PASSING:
                    refused_at.pop(key, None)
                elif self.time.monotonic() - refused_at.setdefault(key, self.time.monotonic()) >= REFUSAL_S:
                    raise errors.Terminal(f"the permission manager refused {key[1]}: {state.message}")
            if waiting and self.time.monotonic() >= deadline:
                key = min(waiting)
                raise self._unanswered(sorted(waiting), "is not Ready", grants.state_of(objects.get(key)).message)
            if waiting:
                await self.time.sleep(STEP_S)

    async def _wait_gone(self, changes: Sequence[Change], *, keeps_bindings: bool = False) -> None:
        waiting = {(change.ref.plural, change.name) for change in changes}
        deadline = self.time.monotonic() + self.timeout_s
        while waiting:
            objects = await self._objects({plural for plural, _ in waiting})
            waiting &= set(objects)
            for key in sorted(waiting):
                state = grants.state_of(objects[key])
                if state.reason in permissions.HELD and not keeps_bindings:
                    raise errors.Terminal(
                        f"{key[1]} cannot be removed yet: {state.message}",
                        hint="delete what is named, or repeat the command with --force",
                    )
            if waiting and self.time.monotonic() >= deadline:
                raise self._unanswered(sorted(waiting), "is still being removed")
            if waiting:
                await self.time.sleep(STEP_S)

    async def ending(self, namespaces: Iterable[str]) -> list[str]:
        """Wait until namespaces that are being deleted are gone; those that still are when the time is over."""
        waiting, deadline = set(namespaces), self.time.monotonic() + self.timeout_s
        while waiting:
            present = {item.name: item for item in (await self.client.list(NAMESPACES.partial())).items}
            waiting = {name for name in waiting if name in present and present[name].metadata.is_deleting}
            if not waiting or self.time.monotonic() >= deadline:
                break
            await self.time.sleep(STEP_S)
        return sorted(waiting)

    async def _objects(self, plurals: Iterable[str]) -> dict[Key, RawObject]:
        result = {}
        for ref in grants.KINDS:
            if ref.plural in plurals:
                for obj in (await self.client.list(ref, permissions.NAMESPACE)).items:
                    result[ref.plural, obj["metadata"]["name"]] = obj
        return result

    def _unanswered(self, keys: Sequence[Key], state: str, message: str = "") -> errors.Unavailable:
        more = f" (and {len(keys) - 1} more)" if len(keys) > 1 else ""
        if message:
            return errors.Unavailable(f"{keys[0][1]}{more} {state} after {self.timeout_s:.0f} s: {message}")
        return errors.Unavailable(
            f"no permission manager answered within {self.timeout_s:.0f} s: {keys[0][1]}{more} {state}",
            hint=_NOT_RUNNING,
        )

    async def annotate(self, name: str, annotations: dict[str, str]) -> None:
        """Write annotations on a user's object."""
        body = {"metadata": {"annotations": annotations}}
        await self.client.patch(grants.USERS, name, body, permissions.NAMESPACE, field_manager=self._manager)

    async def restore(self, changes: Sequence[Change]) -> None:
        """Write many objects, some at a time; what was written before an error stays, for it can be restored again."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def write(change: Change) -> None:
            async with turns:
                await self._replace(change)

        async with TaskGroup() as group:
            for change in changes:
                group.create_task(write(change))

    async def _replace(self, change: Change) -> None:
        """Metadata and spec as in the file, whatever they were."""
        assert change.after is not None, "a backup has objects only"
        if change.before is None:
            await self.client.create(change.ref, change.after, permissions.NAMESPACE, field_manager=self._manager)
            return
        patch: dict[str, Any] = {
            "metadata": {
                part: {**dict.fromkeys(change.before["metadata"].get(part) or {}), **(after.get(part) or {})}
                for after in (change.after["metadata"],)
                for part in ("labels", "annotations")
            },
            "spec": {**dict.fromkeys(change.before.get("spec") or {}), **(change.after.get("spec") or {})},
        }
        await self.client.patch(change.ref, change.name, patch, permissions.NAMESPACE, field_manager=self._manager)
