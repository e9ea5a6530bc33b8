"""Which type fits where: assignment with type variables.

In: types. Out: whether one can stand for another, and what that makes of the variables. One `Unifier` lives as long as
the check of one expression.
"""

from __future__ import annotations

from collections.abc import Sequence

from bedplate.apiserver.cel import types
from bedplate.apiserver.cel.types import Type

__all__ = ["Unifier"]

_NULLABLE = frozenset({"null", "object", "opaque", "timestamp", "duration"})


class Unifier:
    def __init__(self) -> None:
        self._bound: dict[str, Type] = {}
        self._count = 0

    def fresh(self) -> Type:
        self._count += 1
        return types.param(f"_var{self._count}")

    def instance(self, signature: Sequence[Type]) -> list[Type]:
        """The types of a signature with its variables replaced by new ones."""
        renamed: dict[str, Type] = {}

        def rename(kind: Type) -> Type:
            if kind.kind == "param":
                if kind.name not in renamed:
                    renamed[kind.name] = self.fresh()
                return renamed[kind.name]
            if not kind.params:
                return kind
            return Type(kind.kind, kind.name, tuple(rename(each) for each in kind.params))

        return [rename(kind) for kind in signature]

    def resolve(self, kind: Type, *, dyn_for_free: bool = False) -> Type:
        """The type with known variables filled in."""
        if kind.kind == "param":
            bound = self._bound.get(kind.name)
            if bound is None:
                return types.DYN if dyn_for_free else kind
            return self.resolve(bound, dyn_for_free=dyn_for_free)
        if not kind.params:
            return kind
        params = tuple(self.resolve(each, dyn_for_free=dyn_for_free) for each in kind.params)
        if all(new is old for new, old in zip(params, kind.params, strict=True)):
            return kind
        return Type(kind.kind, kind.name, params, list_type=kind.list_type, list_keys=kind.list_keys)

    def assign_all(self, sources: Sequence[Type], targets: Sequence[Type]) -> bool:
        """Assign pairwise; on failure nothing stays bound."""
        before = dict(self._bound)
        if len(sources) == len(targets) and all(map(self._assign, sources, targets)):
            return True
        self._bound = before
        return False

    def _assign(self, source: Type, target: Type) -> bool:
        if target.kind == "param":
            return self._bind(target, source, is_target=True)
        if source.kind == "param":
            return self._bind(source, target, is_target=False)
        if source.is_dyn or target.is_dyn:
            return True
        if source.kind == "null":
            return target.kind in _NULLABLE
        if target.kind == "null":
            return source.kind in _NULLABLE
        if source.kind != target.kind:
            return False
        if source.kind == "object":
            return source.name == target.name
        if source.kind == "type":
            return True
        if source.kind == "opaque" and source.name != target.name:
            return False
        return len(source.params) == len(target.params) and all(map(self._assign, source.params, target.params))

    def _bind(self, variable: Type, kind: Type, *, is_target: bool) -> bool:
        if kind.kind == "param" and kind.name == variable.name:
            return True
        bound = self._bound.get(variable.name)
        if bound is None:
            self._bound[variable.name] = kind
            return True
        fits = self._assign(kind, bound) if is_target else self._assign(bound, kind)
        # The more general of the two stays: a list with one dynamic element is dynamic.
        if fits and (kind.is_dyn or (bound.kind == "null" and kind.kind != "null")):
            self._bound[variable.name] = kind
        return fits
