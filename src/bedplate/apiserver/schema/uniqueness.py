"""Lists that are sets or maps hold every element or key once; embedded resources say what they are.

In: an `openAPIV3Schema` and an object. Out: causes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bedplate.apiserver.schema import causes, formats, gotext
from bedplate.apiserver.schema.causes import Cause, key_path

__all__ = ["check_embedded", "check_lists", "needs_embedded_check", "needs_list_check"]

Schema = Mapping[str, Any]


def _holds(schema: Any, predicate: Callable[[Schema], bool]) -> bool:
    if not isinstance(schema, Mapping):
        return False
    subs = [*(schema.get("properties") or {}).values(), schema.get("additionalProperties"), schema.get("items")]
    return predicate(schema) or any(_holds(sub, predicate) for sub in subs)


def needs_list_check(schema: Schema) -> bool:
    return _holds(schema, lambda sub: sub.get("x-kubernetes-list-type") in ("set", "map"))


def needs_embedded_check(schema: Schema) -> bool:
    return _holds(schema, lambda sub: bool(sub.get("x-kubernetes-embedded-resource")))


def _members(schema: Schema, value: Any, path: str) -> Iterator[tuple[Schema, Any, str]]:
    """The parts of a value that have a schema, with their paths."""
    if isinstance(value, dict):
        properties: Schema = schema.get("properties") or {}
        extra = schema.get("additionalProperties")
        for name, member in value.items():
            if name in properties:
                yield properties[name], member, f"{path}.{name}" if path else name
            elif isinstance(extra, Mapping):
                yield extra, member, key_path(path, name)
    elif isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        for index, item in enumerate(value):
            yield schema["items"], item, f"{path}[{index}]"


def check_lists(schema: Schema, value: Any, path: str = "") -> list[Cause]:
    faults: list[Cause] = []
    if isinstance(value, list):
        if schema.get("x-kubernetes-list-type") == "set":
            faults += [causes.duplicate(f"{path}[{index}]", value[index]) for index in _repeated(value)]
        elif schema.get("x-kubernetes-list-type") == "map":
            faults += _check_map(value, schema.get("x-kubernetes-list-map-keys") or (), path)
    for sub, member, where in _members(schema, value, path):
        if isinstance(member, list | dict):
            faults += check_lists(sub, member, where)
    return faults


def _check_map(value: Sequence[Any], keys: Sequence[str], path: str) -> list[Cause]:
    for index, item in enumerate(value):
        if item is not None and not isinstance(item, dict):
            return [causes.invalid(f"{path}[{index}]", item, "must be an object for an array of list-type map")]
    key_values = [{key: item[key] for key in keys if key in item} if item else {} for item in value]
    return [causes.duplicate(f"{path}[{index}]", key_values[index]) for index in _repeated(key_values)]


def _repeated(items: Sequence[Any]) -> list[int]:
    """Where an element appears for the second time."""
    seen: dict[str, int] = {}
    repeated = []
    for index, item in enumerate(items):
        text = type(item).__name__ + gotext.marshal(item)
        seen[text] = seen.get(text, 0) + 1
        if seen[text] == 2:
            repeated.append(index)
    return repeated


def check_embedded(schema: Schema, value: Any, path: str = "") -> list[Cause]:
    faults: list[Cause] = []
    if isinstance(value, dict) and schema.get("x-kubernetes-embedded-resource"):
        faults += _check_resource(value, path)
    for sub, member, where in _members(schema, value, path):
        if isinstance(member, list | dict):
            faults += check_embedded(sub, member, where)
    return faults


def _check_resource(value: Mapping[str, Any], path: str) -> Iterator[Cause]:
    for name in ("apiVersion", "kind"):
        where = f"{path}.{name}" if path else name
        if name not in value:
            yield causes.required(where)
        elif not isinstance(value[name], str):
            yield causes.invalid(where, value[name], "must be a string")
        elif not value[name]:
            yield causes.invalid(where, "", "must not be empty")
        elif name == "apiVersion" and value[name].count("/") > 1:
            yield causes.invalid(where, value[name], f"unexpected GroupVersion string: {value[name]}")
        elif name == "kind" and (faults := formats.dns1035_label(value[name].lower())):
            detail = "may have mixed case, but should otherwise match: " + ",".join(faults)
            yield causes.invalid(where, value[name], detail)
