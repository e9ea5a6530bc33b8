"""Defaults and pruning by a structural schema, compiled into functions.

In: an `openAPIV3Schema` and a decoded object. Out: the object changed in place: missing values filled in, nulls that
are not allowed dropped, unknown fields removed and their paths returned. Nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Defaulter", "Pruner", "compile_defaults", "compile_pruning"]

Defaulter = Callable[[Any], None]
Pruner = Callable[[Any, str, list[str]], None]

_META = frozenset({"apiVersion", "kind", "metadata"})


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value


def compile_defaults(schema: Mapping[str, Any]) -> Defaulter | None:
    """What fills in defaults below a value; None where the schema has none to fill in and no null to drop."""
    if schema.get("type") == "array":
        return _list_defaults(schema)
    properties: Mapping[str, Any] = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    below = {name: defaulter for name, sub in properties.items() if (defaulter := compile_defaults(sub)) is not None}
    values = {name: sub["default"] for name, sub in properties.items() if sub.get("default") is not None}
    not_null = frozenset(name for name, sub in properties.items() if not sub.get("nullable"))
    fill_extra = _extra_defaults(extra, frozenset(properties)) if isinstance(extra, Mapping) else None
    if not properties and fill_extra is None:
        return None

    def fill(value: Any) -> None:
        if type(value) is not dict:
            return
        for name, default in values.items():
            if name not in value or (value[name] is None and name in not_null):
                value[name] = _copy(default)
        for name in [name for name, member in value.items() if member is None and name in not_null]:
            del value[name]
        for name, fill_member in below.items():
            if name in value:
                fill_member(value[name])
        if fill_extra is not None:
            fill_extra(value)

    return fill


def _extra_defaults(extra: Mapping[str, Any], named: frozenset[str]) -> Defaulter | None:
    """Defaults of the members of a map."""
    below = compile_defaults(extra)
    default = extra.get("default")
    if below is None and extra.get("nullable"):
        return None

    def fill(value: dict[str, Any]) -> None:
        for name in [name for name in value if name not in named]:
            if value[name] is None and not extra.get("nullable"):
                if default is None:
                    del value[name]
                    continue
                value[name] = _copy(default)
            if below is not None:
                below(value[name])

    return fill


def _list_defaults(schema: Mapping[str, Any]) -> Defaulter | None:
    items: Mapping[str, Any] = schema.get("items") or {}
    below = compile_defaults(items)
    default = items.get("default") if not items.get("nullable") else None
    if below is None and default is None:
        return None

    def fill(value: Any) -> None:
        if type(value) is not list:
            return
        for index, item in enumerate(value):
            if item is None and default is not None:
                value[index] = _copy(default)
            if below is not None:
                below(value[index])

    return fill


def compile_pruning(schema: Mapping[str, Any] | None, *, is_resource: bool = False) -> Pruner:
    """What removes unknown fields below a value: prune(value, path, dropped paths)."""
    if schema is None:
        return _drop_all
    preserves = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    embedded = is_resource or bool(schema.get("x-kubernetes-embedded-resource"))
    fields = {name: compile_pruning(sub) for name, sub in (schema.get("properties") or {}).items()}
    extra = schema.get("additionalProperties")
    prune_extra: Pruner | None = None
    if extra is not None:
        prune_extra = compile_pruning(extra if isinstance(extra, Mapping) else None)
    items = schema.get("items")
    # Below a list that preserves unknown fields nothing is known of items without a schema of their own.
    prune_item = compile_pruning(items) if items or not preserves else None

    def prune(value: Any, path: str, dropped: list[str]) -> None:
        if type(value) is dict:
            unknown: list[str] = []
            for name, member in value.items():
                if embedded and name in _META:
                    continue
                prune_member = fields.get(name) or prune_extra
                if prune_member is not None:
                    prune_member(member, f"{path}.{name}" if path else name, dropped)
                elif not preserves:
                    unknown.append(name)
            for name in unknown:
                dropped.append(f"{path}.{name}" if path else name)
                del value[name]
        elif type(value) is list and prune_item is not None:
            for index, item in enumerate(value):
                prune_item(item, f"{path}[{index}]", dropped)

    return prune


def _drop_all(value: Any, path: str, dropped: list[str]) -> None:
    """Below a place without a schema no object may have members."""
    if type(value) is dict:
        dropped += [f"{path}.{name}" for name in value]
        value.clear()
    elif type(value) is list:
        for index, item in enumerate(value):
            _drop_all(item, f"{path}[{index}]", dropped)
