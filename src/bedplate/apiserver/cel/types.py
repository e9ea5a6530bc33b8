"""Types of the Common Expression Language, as the checker and the evaluator share them.

In: nothing. Out: `Type` values and their texts. A type of a JSON schema knows how a JSON value of it becomes a CEL
value (`adapt`) and how large it can be (`limit`), which the estimate of a rule's cost needs. What `==` and `+` mean for
lists depends on whether they are ordinary ones, sets or maps by keys: `equality_of` and `list_sum`. Which type fits
where, with type variables: `Unifier`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bedplate.apiserver.cel.values import equals
from bedplate.apiserver.schema import gotext

__all__ = [
    "BOOL",
    "BYTES",
    "CIDR",
    "DOUBLE",
    "DURATION",
    "DYN",
    "ERROR",
    "FORMAT",
    "INT",
    "IP",
    "NULL",
    "QUANTITY",
    "SEMVER",
    "STRING",
    "TIMESTAMP",
    "UINT",
    "URL",
    "Field",
    "Type",
    "Unifier",
    "equality_of",
    "list_of",
    "list_sum",
    "map_of",
    "optional_of",
    "param",
    "type_of",
]

_PLAIN = frozenset({"int", "string", "bool", "double", "bytes", "timestamp", "duration"})
_NULLABLE = frozenset({"null", "object", "opaque", "timestamp", "duration"})


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A field of an object: its JSON name, which an escaped CEL name may hide, and its type."""

    json_name: str
    type: Type


@dataclass(frozen=True, slots=True, eq=False)
class Type:
    """One type. `kind` is a word of CEL, `object`, `opaque` or `param` (a variable of a signature)."""

    kind: str
    name: str = ""
    params: tuple[Type, ...] = ()
    fields: Mapping[str, Field] = field(default_factory=dict)
    adapt: Callable[[Any], Any] | None = None
    """JSON value to CEL value; None when they are the same."""
    limit: int = -1
    """most characters, items or entries; -1 when unknown."""
    min_size: int = 0
    """fewest bytes of JSON."""
    list_type: str = ""
    list_keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.kind in ("object", "param"):
            return self.name
        if self.kind == "opaque":
            return self.name + (f"({', '.join(map(str, self.params))})" if self.params else "")
        if self.kind == "error":
            return "!error!"
        if self.params:
            return f"{self.kind}({', '.join(map(str, self.params))})"
        return self.kind

    @property
    def is_dyn(self) -> bool:
        return self.kind in ("dyn", "error")

    @property
    def is_optional(self) -> bool:
        return self.kind == "opaque" and self.name == "optional_type"


BOOL, INT, UINT, DOUBLE = Type("bool"), Type("int"), Type("uint"), Type("double")
STRING, BYTES, NULL, DYN, ERROR = Type("string"), Type("bytes"), Type("null"), Type("dyn"), Type("error")
TIMESTAMP, DURATION = Type("timestamp"), Type("duration")
QUANTITY, IP, CIDR = Type("opaque", "kubernetes.Quantity"), Type("opaque", "net.IP"), Type("opaque", "net.CIDR")
URL, FORMAT, SEMVER = (
    Type("opaque", "kubernetes.URL"),
    Type("opaque", "kubernetes.NamedFormat"),
    Type("opaque", "kubernetes.Semver"),
)


def list_of(element: Type) -> Type:
    return Type("list", params=(element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", params=(key, value))


def optional_of(value: Type) -> Type:
    return Type("opaque", "optional_type", (value,))


def type_of(value: Type) -> Type:
    return Type("type", params=(value,))


def param(name: str) -> Type:
    return Type("param", name)


def equality_of(left: Type, right: Type) -> Callable[[Any, Any], bool]:
    """The comparison for two static types; lists that are sets or maps are equal in any order."""
    if left.kind == right.kind and left.kind in _PLAIN:
        return operator.eq
    special = left if left.list_type in ("set", "map") else right
    if special.list_type in ("set", "map"):
        return _list_equality(special)
    if left.kind == "object" and right.kind == "object" and _has_special(left):
        return _object_equality(left)
    if left.kind == "list" and right.kind == "list" and _has_special(left):
        same = equality_of(left.params[0], left.params[0])
        return lambda a, b: len(a) == len(b) and all(map(same, a, b))
    return equals


def _has_special(kind: Type) -> bool:
    if kind.list_type in ("set", "map"):
        return True
    return any(map(_has_special, kind.params)) or any(_has_special(each.type) for each in kind.fields.values())


def _object_equality(kind: Type) -> Callable[[Any, Any], bool]:
    members = {each.json_name: equality_of(each.type, each.type) for each in kind.fields.values()}

    def same(left: Any, right: Any) -> bool:
        if type(left) is not dict or type(right) is not dict or left.keys() != right.keys():
            return equals(left, right)
        return all(members.get(name, equals)(left[name], right[name]) for name in left)

    return same


def _key_of(item: Any, keys: Iterable[str]) -> tuple[Any, ...]:
    return tuple(gotext.marshal(item.get(key)) for key in keys)


def _list_equality(kind: Type) -> Callable[[Any, Any], bool]:
    same = equality_of(kind.params[0], kind.params[0])

    def same_set(left: list[Any], right: list[Any]) -> bool:
        return len(left) == len(right) and all(any(same(item, other) for other in right) for item in left)

    def same_map(left: list[Any], right: list[Any]) -> bool:
        others = {_key_of(item, kind.list_keys): item for item in right}
        if len(left) != len(right):
            return False
        pairs = [(item, others.get(_key_of(item, kind.list_keys))) for item in left]
        return all(other is not None and same(item, other) for item, other in pairs)

    return same_map if kind.list_type == "map" else same_set


def list_sum(kind: Type) -> Callable[[Any, Any], Any]:
    def union(left: list[Any], right: list[Any]) -> list[Any]:
        return left + [item for item in right if not any(equals(item, other) for other in left)]

    def merge(left: list[Any], right: list[Any]) -> list[Any]:
        merged = {_key_of(item, kind.list_keys): item for item in left}
        merged |= {_key_of(item, kind.list_keys): item for item in right}
        return list(merged.values())

    return union if kind.list_type == "set" else merge


class Unifier:
    """Assignments of types; lives as long as the check of one expression."""

    def __init__(self) -> None:
        self._bound: dict[str, Type] = {}
        self._count = 0

    def fresh(self) -> Type:
        self._count += 1
        return param(f"_var{self._count}")

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
                return DYN if dyn_for_free else kind
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
