"""The server's own client: how controllers and behaviours read and write objects without HTTP.

Reads come from the registry's memory; writes go through the same verbs as a request (defaulting, validation,
admission, managedFields), without authentication and authorization. Resources are named by group and plural; objects
are in the storage version. Implements `hooks.Client`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bedplate.apiserver import hooks, services, status
from bedplate.apiserver.access import subjects
from bedplate.apiserver.kinds import Resource
from bedplate.apiserver.state import bodies
from bedplate.apiserver.verbs import delete, request, write
from bedplate.apiserver.verbs import patch as patching

__all__ = ["Client"]


class Client:
    """The server's own client. Refusals are `status.StatusError`, as a remote client would see them."""

    def __init__(
        self, parts: services.Services, user: subjects.User = subjects.LOOPBACK, manager: str = "bedplate"
    ) -> None:
        self._services = parts
        self._user = user
        self._manager = manager

    def acting_as(self, user: subjects.User, manager: str) -> Client:
        """The same client under another name (managedFields show `manager`)."""
        return Client(self._services, user, manager)

    def resource(self, group: str, resource: str) -> Resource:
        """The storage version of a resource; NotFound when it is not served."""
        for version in self._services.kinds.versions(group, resource):
            return self._services.kinds.storage(version)
        raise status.StatusError(404, "NotFound", "the server could not find the requested resource")

    def get(self, group: str, resource: str, namespace: str, name: str) -> hooks.Object | None:
        """A fresh copy of the object, None when it is absent. `namespace` is empty for cluster-scoped kinds."""
        stored = self._services.registry.get((group, resource), namespace, name)
        return None if stored is None else stored.decode()

    def list(self, group: str, resource: str, namespace: str = "") -> list[hooks.Object]:
        """Fresh copies of all objects (of one namespace), in key order."""
        return [stored.decode() for stored in self._services.registry.items((group, resource), namespace)]

    async def create(self, group: str, resource: str, obj: hooks.Object, *, dry_run: bool = False) -> hooks.Object:
        """Create; the namespace is read from the object."""
        target = self.resource(group, resource)
        namespace = (obj.get("metadata") or {}).get("namespace", "")
        return await write.create(self._call(target, "create", namespace, "", dry_run), obj)

    async def update(self, group: str, resource: str, obj: hooks.Object, *, subresource: str = "") -> hooks.Object:
        """Replace; a resourceVersion in the object makes it conditional."""
        metadata = obj["metadata"]
        target = self.resource(group, resource)
        call = self._call(target, "update", metadata.get("namespace", ""), metadata["name"], subresource=subresource)
        return await write.update(call, obj)

    async def patch(
        self, group: str, resource: str, namespace: str, name: str, patch: Mapping[str, Any], *, subresource: str = ""
    ) -> hooks.Object:
        """A JSON merge patch, tried again on conflict unless it carries a resourceVersion."""
        call = self._call(self.resource(group, resource), "patch", namespace, name, subresource=subresource)
        return await patching.merge(call, patch)

    async def delete(
        self, group: str, resource: str, namespace: str, name: str, options: Mapping[str, Any] | None = None
    ) -> hooks.Object:
        """Delete with DeleteOptions (`propagationPolicy`, `preconditions`, `gracePeriodSeconds`)."""
        call = self._call(self.resource(group, resource), "delete", namespace, name)
        return (await delete.delete(call, dict(options or {})))[1]

    @contextmanager
    def watch(self, group: str, resource: str, *, existing: bool = True) -> Iterator[AsyncIterator[bodies.Change]]:
        """Changes in commit order, never lost; with `existing`, first an ADDED for each object there is."""
        feed = self._services.registry.feed((group, resource), existing=existing)
        try:
            yield feed
        finally:
            feed.close()

    def _call(
        self,
        resource: Resource,
        verb: str,
        namespace: str,
        name: str,
        dry_run: bool = False,
        subresource: str = "",
    ) -> request.Target:
        return request.Target(
            services=self._services,
            resource=resource,
            namespace=namespace,
            name=name,
            subresource=subresource,
            user=self._user,
            manager=self._manager,
            dry_run=dry_run,
        )
