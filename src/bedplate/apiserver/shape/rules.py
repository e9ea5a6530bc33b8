"""The rules that come from the shape of a kind: facts for built-in kinds, the definition's schema for custom ones.

In: a kind and an object. Out: defaults filled in, unknown fields dropped, problems. Implements `hooks.Rules` by asking
the part that knows the kind; custom kinds are added and removed by `crds`.
"""

from __future__ import annotations

from typing import Protocol

from bedplate.apiserver import hooks, kinds, status
from bedplate.apiserver.shape import defaults, fitting

__all__ = ["CustomRules", "ShapeRules"]


class CustomRules(Protocol):
    """What `crds` keeps for one served version of a custom kind."""

    def default(self, obj: hooks.Object) -> None: ...

    def prune(self, obj: hooks.Object) -> list[str]: ...

    def validate(self, obj: hooks.Object, old: hooks.Object | None, subresource: str) -> list[status.FieldProblem]: ...


class ShapeRules:
    """Dispatch by kind."""

    def __init__(self) -> None:
        self.custom: dict[tuple[str, str, str], CustomRules] = {}

    def default(self, resource: kinds.Resource, obj: hooks.Object) -> None:
        if resource.is_custom:
            custom = self.custom.get(resource.key)
            if custom is not None:
                custom.default(obj)
        else:
            defaults.apply_defaults(resource.type, obj)

    def prune(self, resource: kinds.Resource, obj: hooks.Object) -> list[str]:
        if resource.is_custom:
            custom = self.custom.get(resource.key)
            metadata = fitting.fit_metadata(obj, resource.type, resource.kind, resource.version)
            return metadata + (custom.prune(obj) if custom is not None else [])
        return fitting.fit(obj, resource.type, resource.kind, resource.version)

    def validate(
        self, resource: kinds.Resource, obj: hooks.Object, old: hooks.Object | None, subresource: str
    ) -> list[status.FieldProblem]:
        custom = self.custom.get(resource.key) if resource.is_custom else None
        return custom.validate(obj, old, subresource) if custom is not None else []
