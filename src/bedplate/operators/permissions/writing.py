"""Writing objects: server-side apply under one field manager, and deletion of what is ours.

In: whole objects, and what is known of the live ones. Out: requests. An object that somebody else made is not taken
over: `Foreign` names it. An object is ours when it carries the manager's label, or its fields name the manager.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bedplate.api import identity, meta, permissions
from bedplate.api.resources import RawObject
from bedplate.core import clock, errors
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client
from bedplate.kube.options import PatchType
from bedplate.operators.permissions import live as live_objects
from bedplate.operators.permissions.live import Live
from bedplate.operators.permissions.objects import identity as identity_of

__all__ = ["Foreign", "Writer"]

_BEHIND_S = 10.0
"""After so long a cache that does not show a write is not behind: somebody undid it."""


class Foreign(errors.Invalid):
    """An object of this name exists, and another client made it."""


@dataclass(slots=True)
class Writer:
    """Writes for the controller, and remembers what it wrote: the echo of a write is not news, and a cache that does
    not show it yet is behind."""

    client: Client
    live: Live
    time: clock.Clock = field(default_factory=clock.SystemClock)
    _written: dict[str, tuple[str, float]] = field(default_factory=dict)
    """By identity: the version, and when it was written."""

    def is_echo(self, name: str, version: str) -> bool:
        """Whether a change is one of our own writes."""
        known = self._written.get(name)
        return known is not None and known[0] == version

    def forget(self, name: str) -> None:
        """The object is gone."""
        self._written.pop(name, None)

    async def ensure(self, target: RawObject, *, was_made: bool = False) -> bool:
        """Let an object be as target; whether it had to be written. `was_made`: it is known to be ours, whatever
        somebody left of it."""
        kind, metadata = target["kind"], target["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace", "")
        current = self.live.get(kind, namespace, name)
        if current is not None and live_objects.matches(target, current):
            return False
        if self._is_behind(identity_of(target), current) or await self._is_others_account(target, current):
            return False
        ref = live_objects.ref_of(kind)
        if current is not None and not live_objects.is_equal_roleref(target, current):
            await self.client.delete(ref, name, namespace or None, uid=identity.uid_of(current))
        is_ours = was_made or current is not None
        try:
            answer = await self._apply(target, force=is_ours)
        except kube_errors.Conflict:
            if is_ours or not await self._has_manager(kind, namespace, name):
                raise Foreign(
                    f"{identity_of(target)} exists and was made by another client: delete or rename it"
                ) from None
            answer = await self._apply(target, force=True)
        self._written[identity_of(target)] = (answer.metadata.resource_version, self.time.monotonic())
        return True

    def _is_behind(self, name: str, current: Any) -> bool:
        """Whether the cache does not show our last write yet. Versions that are not numbers say nothing."""
        version, at = self._written.get(name, ("", 0.0))
        if not version or self.time.monotonic() - at > _BEHIND_S:
            return False
        shown = identity.resource_version_of(current) if current is not None else "0"
        return version.isdigit() and shown.isdigit() and int(shown) < int(version)

    async def _is_others_account(self, target: RawObject, current: Any) -> bool:
        """A ServiceAccount that was in the namespace before is used as it is, and stays when the user goes."""
        namespace = self.live.namespaces.get(target["metadata"].get("namespace", ""))
        if target["kind"] != "ServiceAccount" or current is not None or namespace is None:
            return False
        if permissions.ANNOTATION_CREATED in namespace.metadata.annotations:
            return False
        place = (target["metadata"]["namespace"], target["metadata"]["name"])
        ref = live_objects.ref_of("ServiceAccount").partial()
        try:
            await self.client.get(ref, place[1], place[0])
        except kube_errors.NotFound:
            return False
        return not await self._has_manager("ServiceAccount", *place)

    async def remove(self, kind: str, namespace: str, name: str) -> None:
        """Delete an object of ours; one that is gone or somebody else's is left as it is."""
        current = self.live.get(kind, namespace, name)
        ref = live_objects.ref_of(kind)
        if current is None and not await self._has_manager(kind, namespace, name):
            return
        try:
            await self.client.delete(ref, name, namespace or None, uid=identity.uid_of(current) if current else "")
        except kube_errors.NotFound:
            return
        self.forget("/".join(part for part in (kind, namespace, name) if part))

    async def release(self, namespace: str) -> None:
        """Take our label and annotations off a namespace that was there before."""
        body: RawObject = {"metadata": {"name": namespace}}
        ref = live_objects.ref_of("Namespace").partial()
        if await self._exists(namespace):
            options: Any = {"type": PatchType.APPLY, "field_manager": permissions.FIELD_MANAGER, "force": True}
            await self.client.patch(ref, namespace, body, **options)

    async def _exists(self, namespace: str) -> bool:
        # An apply would create it again.
        try:
            await self.client.get(live_objects.ref_of("Namespace").partial(), namespace)
        except kube_errors.NotFound:
            return False
        return True

    async def _apply(self, target: RawObject, *, force: bool) -> meta.PartialObject:
        metadata = target["metadata"]
        ref = live_objects.ref_of(target["kind"]).with_model(meta.PartialObject)
        return await self.client.patch(
            ref,
            metadata["name"],
            target,
            metadata.get("namespace") or None,
            type=PatchType.APPLY,
            field_manager=permissions.FIELD_MANAGER,
            force=force,
        )

    async def _has_manager(self, kind: str, namespace: str, name: str) -> bool:
        """Whether the live object has fields that this manager applied; False when there is none."""
        try:
            current: RawObject = await self.client.get(live_objects.ref_of(kind).raw(), name, namespace or None)
        except kube_errors.NotFound:
            return False
        entries = (current.get("metadata") or {}).get("managedFields") or ()
        return any(entry.get("manager") == permissions.FIELD_MANAGER for entry in entries)
