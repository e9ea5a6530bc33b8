"""What the parts of one running API server share.

`Services` is built once by `server.py` and handed to verbs, hooks and controllers. It knows the parts by their
interfaces (`hooks`); the in-process client, which stands on the verbs, is put in by `server.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bedplate.apiserver import hooks
from bedplate.apiserver.kinds import Kinds, Resource
from bedplate.apiserver.merge import managed
from bedplate.core import clock as clocks

if TYPE_CHECKING:
    from bedplate.apiserver.state import registry

__all__ = ["Services"]

_PLAIN = hooks.Behaviour()


@dataclass(slots=True)
class Services:
    """One server's parts. `client` is set once the rest stands, because it stands on all of it."""

    kinds: Kinds
    registry: registry.Registry
    clock: clocks.Clock
    rules: hooks.Rules
    admission: hooks.AdmissionChain
    authenticator: hooks.Authenticator
    authorizer: hooks.Authorizer
    behaviours: dict[tuple[str, str], hooks.Behaviour] = field(default_factory=dict)
    version: str = "1.35"
    client: hooks.Client = field(init=False)
    _second: tuple[int, str] = (0, "")
    _managers: dict[Resource, managed.FieldManager] = field(default_factory=dict)

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
        manager = self._managers.get(resource)
        if manager is None:
            if len(self._managers) > len(self.kinds):
                self._managers.clear()  # definitions have changed often: forget the kinds they replaced
            manager = self._managers[resource] = _field_manager(self.kinds, resource)
        return manager


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
