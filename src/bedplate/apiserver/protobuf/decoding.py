"""Kubernetes protobuf to the JSON the same object would be: one decoder, driven by the facts.

Typed Go clients write built-in kinds as `k8s\\0` plus a `runtime.Unknown` envelope that names the kind and holds its
message. `Decoder.decode` gives apiVersion, kind and the plain value that Go's JSON encoder would give after Go's
protobuf decoder: a zero in a field that JSON omits when empty is dropped, one behind a pointer is kept, a field that
JSON always writes is filled in. Anything malformed raises `Invalid`. There is no encoder: every client reads JSON.

Each type is compiled once into a `_Plan`: wire tag to what to do with the field. Sub-messages are plans too; types with
a JSON form of their own are functions (`special`).
"""

from __future__ import annotations

import base64
import struct
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from bedplate.apiserver.facts import Facts, GoField
from bedplate.apiserver.protobuf import special
from bedplate.apiserver.protobuf.special import Malformed, read_varint, skip
from bedplate.core import errors

__all__ = ["MAGIC", "Decoded", "Decoder"]

MAGIC = b"k8s\x00"

_VARINT, _FIXED64, _BYTES = 0, 1, 2

# What to do with a field; ordered by how often it happens.
_STRING, _MESSAGE, _LIST, _INT, _BOOL, _MAP, _SPECIAL, _INLINE, _RAW, _NUMBERS, _FLOAT = range(11)

_SIGN = 1 << 63
_WRAP = 1 << 64


class Decoded(NamedTuple):
    api_version: str
    kind: str
    object: dict[str, Any]


class _Field(NamedTuple):
    action: int
    name: str
    is_dropped_when_zero: bool
    inner: Any
    """the plan of a message, the field of list elements or map values, the function of a special type."""


class _Plan:
    """How to read one message. `table` is None until the type is first met."""

    __slots__ = ("always", "table", "type_name")

    def __init__(self, type_name: str) -> None:
        self.type_name = type_name
        self.table: dict[int, _Field] | None = None
        self.always: tuple[tuple[str, Callable[[], Any]], ...] = ()


class Decoder:
    """Decodes the kinds of one version. Holds compiled plans; safe to share within an event loop."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._plans: dict[str, _Plan] = {}

    def decode(self, data: bytes) -> Decoded:
        """The object in an envelope, with its apiVersion and kind in place."""
        if not data.startswith(MAGIC):
            raise errors.Invalid("the body is not Kubernetes protobuf: it does not begin with the four magic bytes")
        try:
            api_version, kind, raw, content_type = special.envelope(data, len(MAGIC))
            if content_type.endswith("json"):
                body = msgspec.json.decode(raw)
            else:
                body = self._message(self._plan_of(api_version, kind), raw, 0, len(raw))
        except (Malformed, UnicodeDecodeError, struct.error, msgspec.DecodeError, RecursionError) as fault:
            raise errors.Invalid(f"the body is not valid Kubernetes protobuf: {_why(fault)}") from fault
        if not isinstance(body, dict):
            raise errors.Invalid("the body is not valid Kubernetes protobuf: it holds no object")
        return Decoded(api_version, kind, {"kind": kind, "apiVersion": api_version} | body)

    def decode_message(self, type_name: str, raw: bytes) -> dict[str, Any]:
        """One bare message of a named type."""
        try:
            return self._message(self._plan(type_name), raw, 0, len(raw))
        except (Malformed, UnicodeDecodeError, struct.error, msgspec.DecodeError, RecursionError) as fault:
            raise errors.Invalid(f"not a valid message of type {type_name}: {_why(fault)}") from fault

    def _plan_of(self, api_version: str, kind: str) -> _Plan:
        type_name = self._facts.type_name(api_version, kind)
        if type_name is None or not self._facts.go_fields(type_name):
            raise errors.Invalid(f'no kind "{kind}" is registered for version "{api_version}"')
        return self._plan(type_name)

    def _plan(self, type_name: str) -> _Plan:
        plan = self._plans.get(type_name)
        if plan is None:
            plan = self._plans[type_name] = _Plan(type_name)
        return plan

    def _compile(self, plan: _Plan) -> dict[int, _Field]:
        plan.table = table = {}
        always: list[tuple[str, Callable[[], Any]]] = []
        for go_field in self._facts.go_fields(plan.type_name):
            if not go_field.number:  # TypeMeta: the envelope has it
                continue
            field = self._field(go_field)
            table[go_field.number << 3 | _WIRE_TYPES.get(field.action, _BYTES)] = field
            if field.action == _NUMBERS:  # one by one, or packed
                table[go_field.number << 3 | _BYTES] = field
            if field.action == _INLINE:
                self._compile(field.inner)
                always += field.inner.always
            elif not field.is_dropped_when_zero and not (go_field.type.startswith("*") and "e" in go_field.flags):
                always.append((field.name, self._zero(go_field)))
        plan.always = tuple(always)
        return table

    def _field(self, go_field: GoField) -> _Field:
        expression = go_field.type.removeprefix("*")
        if "i" in go_field.flags:
            return _Field(_INLINE, "", False, self._plan(expression))
        action, inner = self._action(expression)
        # Go's `omitempty` never drops a struct; `omitzero` does.
        is_struct = action in (_MESSAGE, _SPECIAL) and inner is not special.string_list
        is_omitted = "z" in go_field.flags or ("e" in go_field.flags and not is_struct)
        return _Field(action, sys.intern(go_field.name), is_omitted and not go_field.type.startswith("*"), inner)

    def _action(self, expression: str) -> tuple[int, Any]:
        if expression in ("[]int32", "[]int64"):
            return _NUMBERS, None
        if expression.startswith("[]"):
            action, inner = self._action(expression[2:].removeprefix("*"))
            return _LIST, _Field(action, "", False, inner)
        if expression.startswith("{}"):
            action, inner = self._action(expression[2:].removeprefix("*"))
            return _MAP, _Field(action, "", False, inner)
        if expression.startswith("M[]"):
            return _SPECIAL, special.string_list
        if expression in _SCALAR_ACTIONS:
            return _SCALAR_ACTIONS[expression], None
        function = special.FUNCTIONS.get(expression)
        if function is not None:
            return _SPECIAL, function
        union = special.UNIONS.get(expression)
        if union is not None:
            return _SPECIAL, self._union(union)
        return _MESSAGE, self._plan(expression)

    def _union(self, join: special.Union) -> Callable[[bytes, int, int], Any]:
        plan = self._plan(special.SCHEMA_TYPE)
        return lambda data, pos, end: join(data, pos, end, lambda start, stop: self._message(plan, data, start, stop))

    def _zero(self, go_field: GoField) -> Callable[[], Any]:
        if go_field.type.startswith(("*", "[]", "{}", "M[]")) or go_field.type == "bytes":
            return lambda: None
        if go_field.type in _ZEROS:
            value = _ZEROS[go_field.type]
            return lambda: value
        if go_field.type in special.FUNCTIONS or go_field.type in special.UNIONS:
            function = self._action(go_field.type)[1]
            return lambda: function(b"", 0, 0)
        plan = self._plan(go_field.type)
        return lambda: self._message(plan, b"", 0, 0)

    def _message(self, plan: _Plan, data: bytes, pos: int, end: int) -> dict[str, Any]:
        # One long loop on purpose: a call per field would double the time.
        table = plan.table if plan.table is not None else self._compile(plan)
        out: dict[str, Any] = {}
        while pos < end:
            tag = data[pos]
            pos += 1
            if tag > 127:
                tag, pos = read_varint(data, pos - 1, end)
            field = table.get(tag)
            if field is None:
                pos = skip(data, pos, end, tag)
                continue
            action, name, is_dropped, inner = field
            wire = tag & 7
            if wire == _BYTES:
                if pos >= end:
                    raise Malformed("the message ends early")
                size = data[pos]
                pos += 1
                if size > 127:
                    size, pos = read_varint(data, pos - 1, end)
                start = pos
                pos += size
                if pos > end:
                    raise Malformed(f"field {name or tag >> 3} is longer than its message")
                if action == _STRING:
                    if size or not is_dropped:
                        out[name] = data[start:pos].decode()
                elif action == _MESSAGE:
                    out[name] = self._message(inner, data, start, pos)
                elif action == _LIST:
                    self._append(out, name, inner, data, start, pos)
                elif action == _MAP:
                    self._put(out, name, inner, data, start, pos)
                elif action == _SPECIAL:
                    value = inner(data, start, pos)
                    if value or not is_dropped:
                        out[name] = value
                elif action == _INLINE:
                    out.update(self._message(inner, data, start, pos))
                elif action == _NUMBERS:
                    out.setdefault(name, []).extend(_packed(data, start, pos))
                elif size or not is_dropped:
                    out[name] = base64.b64encode(data[start:pos]).decode()
            elif wire == _VARINT:
                number, pos = read_varint(data, pos, end)
                if action == _NUMBERS:
                    out.setdefault(name, []).append(_signed(number))
                elif number or not is_dropped:
                    out[name] = bool(number) if action == _BOOL else _signed(number)
            else:
                if pos + 8 > end:
                    raise Malformed("the message ends early")
                out[name] = _plain_float(struct.unpack_from("<d", data, pos)[0])
                pos += 8
        for name, zero in plan.always:
            if name not in out:
                out[name] = zero()
        return out

    def _append(self, out: dict[str, Any], name: str, inner: _Field, data: bytes, start: int, end: int) -> None:
        items = out.get(name)
        if items is None:
            items = out[name] = []
        items.append(self._value(inner, data, start, end))

    def _put(self, out: dict[str, Any], name: str, inner: _Field, data: bytes, pos: int, end: int) -> None:
        """One entry of a map: a message with the key as field 1 and the value as field 2."""
        key, value = "", None
        while pos < end:
            tag, pos = read_varint(data, pos, end)
            if tag & 7 != _BYTES:
                pos = skip(data, pos, end, tag)
                continue
            size, start = read_varint(data, pos, end)
            pos = start + size
            if pos > end:
                raise Malformed(f"an entry of {name} is longer than its message")
            if tag >> 3 == 1:
                key = data[start:pos].decode()
            elif tag >> 3 == 2:
                value = self._value(inner, data, start, pos)
        if value is None:
            value = self._value(inner, b"", 0, 0)
        entries = out.get(name)
        if entries is None:
            entries = out[name] = {}
        entries[key] = value

    def _value(self, field: _Field, data: bytes, start: int, end: int) -> Any:
        """A list element or map value that comes with a length."""
        if field.action == _STRING:
            return data[start:end].decode()
        if field.action == _MESSAGE:
            return self._message(field.inner, data, start, end)
        if field.action == _SPECIAL:
            return field.inner(data, start, end)
        return base64.b64encode(data[start:end]).decode()


_SCALAR_ACTIONS = {"string": _STRING, "int32": _INT, "int64": _INT, "bool": _BOOL, "float64": _FLOAT, "bytes": _RAW}
_WIRE_TYPES = {_INT: _VARINT, _BOOL: _VARINT, _NUMBERS: _VARINT, _FLOAT: _FIXED64}
_ZEROS: dict[str, Any] = {"string": "", "int32": 0, "int64": 0, "bool": False, "float64": 0}


def _signed(number: int) -> int:
    return number - _WRAP if number >= _SIGN else number


def _packed(data: bytes, pos: int, end: int) -> list[int]:
    numbers = []
    while pos < end:
        number, pos = read_varint(data, pos, end)
        numbers.append(_signed(number))
    return numbers


def _plain_float(value: float) -> float | int:
    """Go writes whole floats without a fraction."""
    return int(value) if value.is_integer() and abs(value) < 1e21 else value


def _why(fault: BaseException) -> str:
    return "too deeply nested" if isinstance(fault, RecursionError) else str(fault) or type(fault).__name__
