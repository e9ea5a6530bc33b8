"""`/openapi/v2` as protobuf, the form in which kubectl asks for it: to check the items of a `List`, for one.

In: the document as JSON values. Out: bytes of the messages that gnostic defines for OpenAPI 2. Definitions are there
whole; paths are not, which tells a client to check objects by their definitions. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import msgspec

from bedplate.apiserver.protobuf.encoding import delimited, varint

__all__ = ["CONTENT_TYPE", "encode", "is_wanted"]

CONTENT_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_ASKED_AS = (CONTENT_TYPE, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")

_TEXTS = {"$ref": 1, "format": 2, "title": 3, "description": 4, "pattern": 13, "discriminator": 26}
_DOUBLES = {"multipleOf": 6, "maximum": 7, "minimum": 9}
_INTEGERS = {"maxLength": 11, "minLength": 12, "maxItems": 14, "minItems": 15, "maxProperties": 17, "minProperties": 18}
_BOOLEANS = {"exclusiveMaximum": 8, "exclusiveMinimum": 10, "uniqueItems": 16, "readOnly": 27}
_ANYTHING = {"default": 5, "example": 30}
_EXTENSION = 31


def is_wanted(accept: str) -> bool:
    """The client asks for protobuf before anything else."""
    return accept.partition(",")[0].partition(";")[0].strip() in _ASKED_AS


def encode(document: Mapping[str, Any]) -> bytes:
    """The document's version, title and definitions."""
    info = document["info"]
    definitions = b"".join(_named(name, schema) for name, schema in document["definitions"].items())
    return (
        _text(1, document["swagger"])
        + delimited(2, _text(1, info["title"]) + _text(2, info["version"]))
        + delimited(9, definitions)
    )


def _named(name: str, schema: Mapping[str, Any]) -> bytes:
    """An entry of definitions or properties."""
    return delimited(1, _text(1, name) + delimited(2, _schema(schema)))


def _schema(schema: Mapping[str, Any]) -> bytes:
    return b"".join(_part(name, value) for name, value in schema.items())


def _part(name: str, value: Any) -> bytes:
    if name in _TEXTS:
        return _text(_TEXTS[name], value)
    if name in _DOUBLES:
        return varint(_DOUBLES[name] << 3 | 1) + struct.pack("<d", value)
    if name in _INTEGERS:
        return varint(_INTEGERS[name] << 3) + varint(value)
    if name in _BOOLEANS:
        return varint(_BOOLEANS[name] << 3) + varint(int(value))
    if name in _ANYTHING:
        return delimited(_ANYTHING[name], _any(value))
    return _structure(name, value)


def _structure(name: str, value: Any) -> bytes:
    match name:
        case "required":
            return b"".join(_text(19, field) for field in value)
        case "enum":
            return b"".join(delimited(20, _any(option)) for option in value)
        case "additionalProperties":
            if isinstance(value, bool):
                return delimited(21, varint(2 << 3) + varint(int(value)))
            return delimited(21, delimited(1, _schema(value)))
        case "type":
            return delimited(22, b"".join(_text(1, kind) for kind in ([value] if isinstance(value, str) else value)))
        case "items":
            return delimited(23, delimited(1, _schema(value)))
        case "allOf":
            return b"".join(delimited(24, _schema(schema)) for schema in value)
        case "properties":
            return delimited(25, b"".join(_named(key, schema) for key, schema in value.items()))
    return delimited(_EXTENSION, _text(1, name) + delimited(2, _any(value))) if name.startswith("x-") else b""


def _any(value: Any) -> bytes:
    """A value of any kind travels as YAML, and JSON is YAML."""
    return delimited(2, msgspec.json.encode(value))


def _text(number: int, value: str) -> bytes:
    return delimited(number, value.encode())
