"""Equality and sums that depend on what a list is: an ordinary one, a set, or a map by keys.

In: static types. Out: functions on values of these types.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

from bedplate.apiserver.cel.types import Type
from bedplate.apiserver.cel.values import equals
from bedplate.apiserver.schema import gotext

__all__ = ["equality_of", "list_sum"]

_PLAIN = frozenset({"int", "string", "bool", "double", "bytes", "timestamp", "duration"})


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
