"""Structural schemas as CEL types.

In: an `openAPIV3Schema`. Out: the type of `self`, with escaped field names, sizes for the cost estimate and the
conversion of JSON values (dates, durations, bytes, numbers). A part that CEL cannot see gives None.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any

from bedplate.apiserver.cel import lexer, types, values
from bedplate.apiserver.cel.types import Field, Type

__all__ = ["MAX_REQUEST", "declare", "escape"]

Schema = Mapping[str, Any]

MAX_REQUEST = 3 * 1024 * 1024
_RESERVED = lexer.RESERVED | {"true", "false", "null", "in"}
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}


def escape(name: str) -> str | None:
    """A property's name in CEL; None when it has none."""
    if not name or name[0].isdigit():
        return None
    if name in _RESERVED:
        return f"__{name}__"
    if not re.fullmatch(r"[A-Za-z0-9_./-]*", name):
        return None
    return re.sub(r"__|[./-]", lambda match: _ESCAPES[match.group()], name)


def declare(schema: Schema, name: str = "selfType", *, is_resource: bool = False) -> Type | None:
    if schema.get("x-kubernetes-int-or-string"):
        longest = schema.get("maxLength")
        return Type("dyn", limit=longest * 4 if longest is not None else MAX_REQUEST - 2, min_size=1)
    if is_resource:
        schema = with_metadata(schema)
    kind = schema.get("type")
    if kind == "array":
        return _declare_list(schema, name)
    if kind == "object":
        extra = schema.get("additionalProperties")
        return _declare_map(schema, extra, name) if isinstance(extra, Mapping) else _declare_object(schema, name)
    if kind == "string":
        return _declare_string(schema)
    if kind == "boolean":
        return Type("bool", min_size=4)
    if kind == "number":
        return Type("double", min_size=1, adapt=float)
    return Type("int", min_size=1, adapt=_whole) if kind == "integer" else None


def _whole(value: Any) -> int:
    if type(value) is int:
        return value
    raise values.CelError("invalid data, expected int, got float64")


def with_metadata(schema: Schema) -> Schema:
    """The root of a resource always has its kind, version and names."""
    text = {"type": "string"}
    metadata = {"type": "object", "properties": {"name": text, "generateName": text}}
    properties = {**(schema.get("properties") or {}), "kind": text, "apiVersion": text, "metadata": metadata}
    return {**schema, "type": schema.get("type", "object"), "properties": properties}


def _is_resource(schema: Schema) -> bool:
    return bool(schema.get("x-kubernetes-embedded-resource"))


def _declare_list(schema: Schema, name: str) -> Type | None:
    items = schema.get("items")
    element = declare(items, f"{name}.@idx", is_resource=_is_resource(items)) if isinstance(items, Mapping) else None
    if element is None:
        return None
    limit = schema.get("maxItems")
    return Type(
        "list",
        params=(element,),
        adapt=_each_item(element.adapt),
        limit=max(limit, 0) if limit is not None else (MAX_REQUEST - 2) // (element.min_size + 1),
        min_size=2,
        list_type=schema.get("x-kubernetes-list-type") or "",
        list_keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()),
    )


def _each_item(adapt: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    if adapt is None or adapt is _whole:
        return None
    return lambda items: [item if item is None else adapt(item) for item in items]


def _declare_map(schema: Schema, extra: Schema, name: str) -> Type | None:
    element = declare(extra, f"{name}.@elem", is_resource=_is_resource(extra))
    if element is None:
        return None
    limit = schema.get("maxProperties")
    adapt = element.adapt
    convert = None
    if adapt is not None and adapt is not _whole:
        convert = lambda entries: {key: item if item is None else adapt(item) for key, item in entries.items()}  # noqa: E731
    return Type(
        "map",
        params=(types.STRING, element),
        adapt=convert,
        limit=max(limit, 0) if limit is not None else (MAX_REQUEST - 2) // (element.min_size + 6),
        min_size=2,
    )


def _declare_object(schema: Schema, name: str) -> Type:
    required = set(schema.get("required") or ())
    fields: dict[str, Field] = {}
    size = 2
    for key, sub in (schema.get("properties") or {}).items():
        escaped = escape(key)
        kind = declare(sub, f"{name}.{escaped or key}", is_resource=_is_resource(sub))
        if kind is None:
            continue
        if escaped is not None:
            fields[escaped] = Field(key, kind)
            if key in lexer.RESERVED:
                fields[key] = Field(key, kind)
        if key in required and sub.get("default") is None:
            size += len(key) + kind.min_size + 4
    return Type("object", name, fields=fields, min_size=size)


def _to_duration(text: str) -> values.Duration:
    try:
        return values.parse_duration(text)
    except ValueError as error:
        raise values.CelError(f"Invalid duration {text}: {error}") from None


def _to_timestamp(text: str) -> values.Timestamp:
    try:
        return values.parse_timestamp(text)
    except ValueError as error:
        raise values.CelError(f"Invalid date-time formatted string {text}: {error}") from None


def _declare_string(schema: Schema) -> Type:
    longest, form = schema.get("maxLength"), schema.get("format")
    if form == "byte":
        limit = max(longest, 0) if longest is not None else MAX_REQUEST - 2
        return Type("bytes", adapt=base64.b64decode, limit=limit, min_size=2)
    if form == "duration":
        return Type("duration", adapt=_to_duration, limit=32, min_size=4)
    if form == "date":
        return Type("timestamp", adapt=values.parse_date, limit=12, min_size=12)
    if form == "date-time":
        return Type("timestamp", adapt=_to_timestamp, limit=35, min_size=22)
    if longest is not None:
        limit = max(longest, 0) * 4
    elif schema.get("enum"):
        limit = max((len(option) for option in schema["enum"] if isinstance(option, str)), default=0)
    else:
        limit = MAX_REQUEST - 2
    return Type("string", limit=limit, min_size=2)
