"""What the parts of one running API server share, and the way its own controllers use it.

`Services` is built once by `server.py` and handed to verbs, hooks and controllers. `Client` is the in-process client:
reads come from the registry's memory, writes go through the same verbs as a request over HTTP (defaulting, validation,
admission, managedFields), without HTTP, authentication and authorization. Resources are named by group and plural;
objects are in the storage version.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bedplate.apiserver import hooks, status
from bedplate.apiserver.kinds import Kinds, Resource
from bedplate.apiserver.merge import managed
from bedplate.core import clock as clocks

if TYPE_CHECKING:
    from bedplate.apiserver.state import registry

__all__ = ["Client", "Services"]

_PLAIN = hooks.Behaviour()


@dataclass(slots=True)
class Services:
    """One server's parts. `client` is set by `__post_init__`."""

    kinds: Kinds
    registry: registry.Registry
    clock: clocks.Clock
    rules: hooks.Rules
    admission: hooks.AdmissionChain
    authenticator: hooks.Authenticator
    authorizer: hooks.Authorizer
    behaviours: dict[tuple[str, str], hooks.Behaviour] = field(default_factory=dict)
    version: str = "1.35"
    client: Client = field(init=False)
    _second: tuple[int, str] = (0, "")
    _managers: dict[Resource, managed.FieldManager] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.client = Client(self)

    def now_text(self) -> str:
        """The time as Kubernetes writes it; formatted once a second, because every write needs it."""
        now = self.clock.now()
        second = int(now.timestamp())
        if second != self._second[0]:
            self._second = (second, clocks.rfc3339(now))
        return self._second[1]

    def behaviour(self, resource: Resource) -> hooks.Behaviour:
        return self.behaviours.get((resource.group, resource.resource), _PLAIN)

    def field_manager(self, resource: Resource) -> managed.FieldManager:
        """Who keeps managedFields of this version of a kind."""
        found = self._managers.get(resource)
        if found is None:
            if len(self._managers) > len(self.kinds):
                self._managers.clear()  # definitions have changed often: forget the kinds they replaced
            found = self._managers[resource] = _field_manager(self.kinds, resource)
        return found


def _field_manager(live: Kinds, resource: Resource) -> managed.FieldManager:
    has_status = "status" in resource.subresources
    reset = {
        name: managed.reset_fields(resource.group, resource.resource, name, has_status=has_status)
        for name in ("", *resource.subresources)
    }
    versions = {}
    for other in live:
        if other.stored_at == resource.stored_at and other is not resource:
            back = {kept: name for name, kept in resource.renames.items()}
            versions[other.api_version] = {**other.renames, **back}
    return managed.FieldManager(
        resource.type,
        api_version=resource.api_version,
        kind=resource.kind,
        is_custom=resource.is_custom,
        reset=reset,
        versions=versions,
    )


class Client:
    """The API server's own client. Refusals are `status.StatusError`, as a remote client would see them."""

    def __init__(self, services: Services, user: hooks.User = hooks.LOOPBACK, manager: str = "bedplate") -> None:
        self._services = services
        self._user = user
        self._manager = manager

    def acting_as(self, user: hooks.User, manager: str) -> Client:
        """The same client under another name (managedFields show `manager`)."""
        return Client(self._services, user, manager)

    def resource(self, group: str, resource: str) -> Resource:
        """The storage version of a resource; NotFound when it is not served."""
        for found in self._services.kinds.versions(group, resource):
            return self._services.kinds.storage(found)
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
        from bedplate.apiserver.verbs import write

        target = self.resource(group, resource)
        namespace = (obj.get("metadata") or {}).get("namespace", "")
        return await write.create(self._call(target, "create", namespace, "", dry_run), obj)

    async def update(self, group: str, resource: str, obj: hooks.Object, *, subresource: str = "") -> hooks.Object:
        """Replace; a resourceVersion in the object makes it conditional."""
        from bedplate.apiserver.verbs import write

        metadata = obj["metadata"]
        target = self.resource(group, resource)
        call = self._call(target, "update", metadata.get("namespace", ""), metadata["name"], subresource=subresource)
        return await write.update(call, obj)

    async def patch(
        self, group: str, resource: str, namespace: str, name: str, patch: Mapping[str, Any], *, subresource: str = ""
    ) -> hooks.Object:
        """A JSON merge patch, tried again on conflict unless it carries a resourceVersion."""
        from bedplate.apiserver.verbs import patch as patching

        call = self._call(self.resource(group, resource), "patch", namespace, name, subresource=subresource)
        return await patching.merge(call, patch)

    async def delete(
        self, group: str, resource: str, namespace: str, name: str, options: Mapping[str, Any] | None = None
    ) -> hooks.Object:
        """Delete with DeleteOptions (`propagationPolicy`, `preconditions`, `gracePeriodSeconds`)."""
        from bedplate.apiserver.verbs import delete

        call = self._call(self.resource(group, resource), "delete", namespace, name)
        return (await delete.delete(call, dict(options or {})))[1]

    @contextmanager
    def watch(self, group: str, resource: str, *, existing: bool = True) -> Iterator[AsyncIterator[hooks.Change]]:
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
    ) -> Any:
        from bedplate.apiserver.verbs import request

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
