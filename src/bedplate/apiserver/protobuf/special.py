"""Protobuf messages whose JSON is not an object of the same fields: times, quantities, raw JSON, unions, the envelope.

Each function takes the buffer and the bounds of one message and returns the JSON value. Used by `decoding` only.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import msgspec

__all__ = ["FUNCTIONS", "SCHEMA_TYPE", "UNIONS", "Malformed", "Union", "envelope", "read_varint", "skip", "string_list"]

Schema = Callable[[int, int], dict[str, Any]]
Union = Callable[[bytes, int, int, Schema], Any]


class Malformed(ValueError):
    """The bytes are not what they claim to be."""


def read_varint(data: bytes, pos: int, end: int) -> tuple[int, int]:
    result = shift = 0
    while pos < end:
        byte = data[pos]
        pos += 1
        result |= (byte & 0x7F) << shift
        if byte < 128:
            return result & 0xFFFFFFFFFFFFFFFF, pos
        shift += 7
        if shift > 63:
            raise Malformed("a number has more than ten bytes")
    raise Malformed("the message ends early")


def skip(data: bytes, pos: int, end: int, tag: int) -> int:
    """The position after a field nobody asked for."""
    wire = tag & 7
    if tag >> 3 == 0:
        raise Malformed("a field has the number 0")
    if wire == 0:
        return read_varint(data, pos, end)[1]
    if wire == 1:
        pos += 8
    elif wire == 2:
        size, pos = read_varint(data, pos, end)
        pos += size
    elif wire == 5:
        pos += 4
    else:
        raise Malformed(f"field {tag >> 3} has the unknown wire type {wire}")
    if pos > end:
        raise Malformed(f"field {tag >> 3} is longer than its message")
    return pos


def _fields(data: bytes, pos: int, end: int) -> list[tuple[int, int, int, int]]:
    """(number, varint value, start, end) of each varint or length-delimited field of a small message."""
    fields = []
    while pos < end:
        tag, pos = read_varint(data, pos, end)
        if tag & 7 == 0:
            value, pos = read_varint(data, pos, end)
            fields.append((tag >> 3, value, pos, pos))
        elif tag & 7 == 2:
            size, start = read_varint(data, pos, end)
            pos = start + size
            if pos > end:
                raise Malformed(f"field {tag >> 3} is longer than its message")
            fields.append((tag >> 3, 0, start, pos))
        else:
            pos = skip(data, pos, end, tag)
    return fields


def envelope(data: bytes, pos: int) -> tuple[str, str, bytes, str]:
    """apiVersion, kind, raw message and content type of a `runtime.Unknown`."""
    api_version = kind = content_type = ""
    raw = b""
    for number, _, start, stop in _fields(data, pos, len(data)):
        if number == 1:
            for inner, _, first, last in _fields(data, start, stop):
                if inner == 1:
                    api_version = data[first:last].decode()
                elif inner == 2:
                    kind = data[first:last].decode()
        elif number == 2:
            raw = data[start:stop]
        elif number == 4:
            content_type = data[start:stop].decode()
    return api_version, kind, raw, content_type


def string_list(data: bytes, pos: int, end: int) -> list[str]:
    return [data[start:stop].decode() for number, _, start, stop in _fields(data, pos, end) if number == 1]


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _timestamp(data: bytes, pos: int, end: int) -> tuple[datetime.datetime, int] | None:
    if pos == end:
        return None
    seconds = nanos = 0
    for number, value, _, _ in _fields(data, pos, end):
        if number == 1:
            seconds = _signed(value)
        elif number == 2:
            nanos = _signed(value)
    try:
        return datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds), nanos
    except OverflowError:
        raise Malformed("a time is out of range") from None


def _time(data: bytes, pos: int, end: int) -> str | None:
    moment = _timestamp(data, pos, end)
    return None if moment is None else moment[0].isoformat() + "Z"


def _micro_time(data: bytes, pos: int, end: int) -> str | None:
    moment = _timestamp(data, pos, end)
    if moment is None:
        return None
    return f"{moment[0].isoformat()}.{max(0, min(moment[1], 999_999_999)) // 1000:06d}Z"


def _quantity(data: bytes, pos: int, end: int) -> str:
    text = ""
    for number, _, start, stop in _fields(data, pos, end):
        if number == 1:
            text = data[start:stop].decode()
    return text or "0"


def _int_or_string(data: bytes, pos: int, end: int) -> int | str:
    kind = whole = 0
    text = ""
    for number, value, start, stop in _fields(data, pos, end):
        if number == 1:
            kind = value
        elif number == 2:
            whole = _signed(value)
        elif number == 3:
            text = data[start:stop].decode()
    return text if kind == 1 else whole


def _raw_json(data: bytes, pos: int, end: int) -> Any:
    for number, _, start, stop in _fields(data, pos, end):
        if number == 1 and stop > start:
            if data[start : start + 4] == b"k8s\x00":
                raise Malformed("an embedded object is protobuf, not JSON")
            return msgspec.json.decode(data[start:stop])
    return None


def _schema_or_bool(data: bytes, pos: int, end: int, schema: Schema) -> Any:
    allows = False
    for number, value, start, stop in _fields(data, pos, end):
        if number == 2:
            return schema(start, stop)
        allows = allows or (number == 1 and bool(value))
    return allows


def _schema_or_list(data: bytes, pos: int, end: int, schema: Schema) -> Any:
    single, several = None, []
    for number, _, start, stop in _fields(data, pos, end):
        if number == 1:
            single = schema(start, stop)
        elif number == 2:
            several.append(schema(start, stop))
    return several or single


def _schema_or_strings(data: bytes, pos: int, end: int, schema: Schema) -> Any:
    single, several = None, []
    for number, _, start, stop in _fields(data, pos, end):
        if number == 1:
            single = schema(start, stop)
        elif number == 2:
            several.append(data[start:stop].decode())
    return several or single


_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_EXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
SCHEMA_TYPE = _EXTENSIONS + "JSONSchemaProps"

FUNCTIONS: dict[str, Callable[[bytes, int, int], Any]] = {
    _META + "Time": _time,
    _META + "MicroTime": _micro_time,
    _META + "FieldsV1": _raw_json,
    _EXTENSIONS + "JSON": _raw_json,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": _raw_json,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": _quantity,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
}
UNIONS: dict[str, Union] = {
    _EXTENSIONS + "JSONSchemaPropsOrBool": _schema_or_bool,
    _EXTENSIONS + "JSONSchemaPropsOrArray": _schema_or_list,
    _EXTENSIONS + "JSONSchemaPropsOrStringArray": _schema_or_strings,
}
