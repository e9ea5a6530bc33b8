"""Whether a decoded object fits the Go types of a built-in kind: unknown fields are dropped, wrong types refused.

In: an object and the `TypeNode` of its kind. Out: the object without unknown fields and their paths; 400 with the real
server's text where a value could not be read into its Go field. Runs on JSON and YAML bodies; protobuf cannot be wrong
in these ways.
"""

from __future__ import annotations

import binascii
import re
from typing import Any

from bedplate.apiserver import status
from bedplate.apiserver.shape import typegraph

__all__ = ["fit"]

_JSON_KINDS: dict[type, str] = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
}
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)\Z")
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)\Z")
_GO_TYPES = {"string": "string", "boolean": "bool", "number": "float64", "bytes": "[]uint8"}
_EMPTY: dict[str, Any] = {
    "string": "",
    "bytes": "",
    "boolean": False,
    "integer": 0,
    "number": 0,
    "int-or-string": 0,
    "quantity": "0",
}


class _Misfit(Exception):
    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


def fit(obj: dict[str, Any], node: typegraph.TypeNode, kind: str, version: str) -> list[str]:
    """Prune in place; the paths of what was dropped, in order."""
    unknown: list[str] = []
    try:
        _members(obj, node, "", unknown)
    except _Misfit as err:
        text = f'{kind} in version "{version}" cannot be handled as a {kind}: {err}'
        raise status.bad_request(text) from None
    return unknown


def fit_metadata(obj: dict[str, Any], node: typegraph.TypeNode, kind: str, version: str) -> list[str]:
    """The same for the metadata of a custom object; the rest is its schema's part."""
    within = node.fields.get("metadata")
    if within is None:
        return []
    return fit(
        {"metadata": obj["metadata"]}, typegraph.TypeNode(shape="struct", fields={"metadata": within}), kind, version
    )


def _members(obj: dict[str, Any], node: typegraph.TypeNode, path: str, unknown: list[str]) -> None:
    fields = node.fields
    dropped = []
    for key, value in obj.items():
        field = fields.get(key)
        where = f"{path}.{key}" if path else key
        if field is None:
            if not node.preserve_unknown:
                dropped.append(key)
                unknown.append(where)
        elif value is not None:
            _value(value, field, where, unknown)
    for key in dropped:
        del obj[key]


def _value(value: Any, node: typegraph.TypeNode, path: str, unknown: list[str]) -> None:
    shape = node.shape
    if shape == "scalar":
        if not _fits(value, node):
            raise _wrong(value, node, path)
    elif shape == "struct":
        if type(value) is not dict:
            raise _wrong(value, node, path)
        _members(value, node, path, unknown)
    elif shape == "list":
        if type(value) is not list:
            raise _wrong(value, node, path)
        element = node.element
        if element is not None and element.shape != "any":
            for index, item in enumerate(value):
                if item is not None:
                    _value(item, element, f"{path}[{index}]", unknown)
                else:
                    value[index] = _empty(element)
    elif shape == "map":
        if type(value) is not dict:
            raise _wrong(value, node, path)
        element = node.element
        if element is not None and element.shape != "any":
            for key, item in value.items():
                if item is not None:
                    _value(item, element, f"{path}.{key}", unknown)
                else:
                    value[key] = _empty(element)


def _empty(node: typegraph.TypeNode) -> Any:
    """What Go reads null into, inside a list or a map; nobody after this has to think of it."""
    if node.shape != "scalar":
        return [] if node.shape == "list" else {}
    return _EMPTY.get(node.scalar)


def _fits(value: Any, node: typegraph.TypeNode) -> bool:
    kind = type(value)
    match node.scalar:
        case "string":
            return kind is str
        case "bytes":
            return kind is str and _is_base64(value)
        case "time":
            return kind is str and _TIME.match(value) is not None
        case "microtime":
            return kind is str and _MICRO_TIME.match(value) is not None
        case "boolean":
            return kind is bool
        case "integer":
            return kind is int or (kind is float and value.is_integer())
        case "number":
            return kind is int or kind is float
        case "int-or-string" | "quantity":
            return kind is int or kind is str or kind is float
    return True


def _is_base64(value: str) -> bool:
    try:
        binascii.a2b_base64(value.replace("\n", "").replace("\r", ""), strict_mode=True)
    except ValueError:
        return False
    return True


def _wrong(value: Any, node: typegraph.TypeNode, path: str) -> _Misfit:
    json_kind = _JSON_KINDS.get(type(value), "value")
    if json_kind == "string" and node.scalar in ("time", "microtime"):
        layout = "2006-01-02T15:04:05Z07:00" if node.scalar == "time" else "2006-01-02T15:04:05.000000Z07:00"
        return _Misfit(path, f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"')
    if json_kind == "number" and node.scalar == "integer":
        json_kind = f"number {value}"
    if json_kind == "string" and node.scalar == "bytes":
        return _Misfit(path, f"{path}: illegal base64 data")
    go_type = _GO_TYPES.get(node.scalar, "")
    if node.scalar == "integer":
        go_type = node.format or "int64"
    elif not go_type:
        name = node.name.rpartition(".")[2]
        go_type = f"v1.{name}" if name else {"list": "[]", "map": "map[string]string"}.get(node.shape, "struct")
    return _Misfit(path, f"json: cannot unmarshal {json_kind} into Go struct field {_go_path(path)} of type {go_type}")


def _go_path(path: str) -> str:
    """Go names the struct and then the JSON path; the path is what people look for."""
    return "." + path if "." not in path else path
