"""Applies manifests to one API server: server-side apply, under a field manager of the application's own.

In: manifests, what the server serves. Out: the object as the server has it now, its metadata alone. The fields that
others set on the object stay theirs; those of the manifest are taken. Nothing is written unless the guard agrees, which
raises where another head is the active one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bedplate.api import meta, names
from bedplate.api.resources import CRDS
from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.head.applications.kinds import Kinds, Served
from bedplate.head.applications.manifests import Manifest
from bedplate.head.applications.planning import Key
from bedplate.kube import errors as kube_errors
from bedplate.kube.options import PatchType

if TYPE_CHECKING:
    from bedplate.kube.client import Client

__all__ = ["LABEL", "MANAGER", "Applier", "NotServed", "is_away", "label_of", "manager_of"]

MANAGER = "bedplate-app"
LABEL = "bedplate.dev/application"
"""What every applied object is labelled with, so that a watch sees all of them and nothing else."""
_ESTABLISH_S, _LOOK_S = 30.0, 0.2
_LONGEST_MANAGER = 128
_SERVERS_OWN = frozenset({"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"})
"""Metadata that only the server sets; it is in manifests that were read from a server."""


class NotServed(errors.Retryable):
    """The server does not serve the kind; a definition of it may come later."""


def manager_of(key: Key) -> str:
    """The field manager of an application."""
    text = f"{MANAGER}:{key}"
    return text if len(text) <= _LONGEST_MANAGER and text.isprintable() else f"{MANAGER}:{_digest(key)}"


def label_of(key: Key) -> str:
    """The value of the label of an application's objects."""
    text = f"{key.group}.{key.name}"
    return text if not names.label_value_problems(text) else _digest(key)


def _digest(key: Key) -> str:
    return hashlib.sha256(str(key).encode()).hexdigest()[:32]


def is_away(error: BaseException) -> bool:
    """Whether an error says that the server cannot be asked at all, and nothing about an object."""
    gone = (kube_errors.ConnectionFailed, kube_errors.Interrupted, kube_errors.CredentialsFailed)
    busy = (kube_errors.ServiceUnavailable, kube_errors.TooManyRequests, kube_errors.Unauthorized)
    return isinstance(error, (*gone, *busy))


class Applier:
    """Writes the objects of one application."""

    def __init__(self, client: Client, kinds: Kinds, key: Key, guard: Callable[[], None], clock: Clock) -> None:
        self._client = client
        self._kinds = kinds
        self._manager = manager_of(key)
        self._label = label_of(key)
        self._guard = guard
        self._clock = clock

    async def served(self, manifest: Manifest) -> Served:
        """How the server serves the kind. Raises `NotServed`."""
        served = await self._kinds.find(manifest.group, manifest.kind, manifest.version)
        if served is None:
            self._kinds.forget()
            version = f"{manifest.group}/{manifest.version}".lstrip("/")
            raise NotServed(
                f"the API server does not serve {manifest.kind} in {version}",
                hint="install its CustomResourceDefinition, or use a version that kubectl api-resources lists",
            )
        return served

    async def apply(self, manifest: Manifest, served: Served, *, dry_run: bool = False) -> meta.PartialObject:
        """Apply one object; what the server has now, or with `dry_run` would have."""
        self._guard()
        namespace = (manifest.namespace or "default") if served.ref.namespaced else None
        return await self._client.patch(
            served.ref.partial(),
            manifest.name,
            self._body(manifest, namespace),
            namespace,
            type=PatchType.APPLY,
            field_manager=self._manager,
            force=True,
            dry_run=dry_run,
            field_validation="Strict",
        )

    def _body(self, manifest: Manifest, namespace: str | None) -> dict[str, Any]:
        given = manifest.body["metadata"]
        metadata = {name: value for name, value in given.items() if name not in {*_SERVERS_OWN, "namespace"}}
        metadata["labels"] = {**(given.get("labels") or {}), LABEL: self._label}
        if namespace is not None:
            metadata["namespace"] = namespace
        return {**manifest.body, "metadata": metadata}

    async def established(self, name: str) -> None:
        """Wait until a definition is in force. Raises `NotServed`."""
        until = self._clock.monotonic() + _ESTABLISH_S
        while True:
            crd = await self._client.get(CRDS, name)
            conditions = {condition.get("type"): condition for condition in crd.get("status", {}).get("conditions", [])}
            if conditions.get("Established", {}).get("status") == "True":
                self._kinds.forget()
                return
            if self._clock.monotonic() >= until:
                message = conditions.get("NamesAccepted", {}).get("message", "")
                why = f": {message}" if message else ""
                raise NotServed(f"CustomResourceDefinition {name} is not established{why}")
            await self._clock.sleep(_LOOK_S)
