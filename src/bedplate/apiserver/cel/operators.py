"""Operators and the functions every CEL has: arithmetic, order, conversion, size, times.

In: values. Out: values, or `CelError` in the server's words. Logic (`&&`, `||`, `?:`), equality, selection and macros
are the evaluator's.
"""

from __future__ import annotations

import math
import operator
import re
import zoneinfo
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

from bedplate.apiserver.cel import values
from bedplate.apiserver.cel.signatures import Registry
from bedplate.apiserver.cel.values import CelError, Duration, Timestamp, TypeValue, UInt, equals
from bedplate.apiserver.schema import gotext

__all__ = ["check_int", "install", "matches"]

_MAX_SPAN = 2**63


def check_int(value: int) -> int:
    if -_MAX_SPAN <= value < _MAX_SPAN:
        return value
    raise CelError("integer overflow")


def _check_uint(value: int) -> UInt:
    if 0 <= value <= values.MAX_UINT:
        return UInt(value)
    raise CelError("unsigned integer overflow")


def _duration(value: int) -> Duration:
    if -_MAX_SPAN <= value < _MAX_SPAN:
        return Duration(value)
    raise CelError("duration overflow")


def _timestamp(value: int) -> Timestamp:
    if -62135596800 * 10**9 <= value <= 253402300799999999999:
        return Timestamp(value)
    raise CelError("timestamp overflow")


def _divide(left: int, right: int) -> int:
    """Towards zero, as Go does."""
    if right == 0:
        raise CelError("division by zero")
    quotient = abs(left) // abs(right)
    return check_int(quotient if (left < 0) == (right < 0) else -quotient)


def _modulo(left: int, right: int) -> int:
    if right == 0:
        raise CelError("modulus by zero")
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def _divide_double(left: float, right: float) -> float:
    if right == 0:
        return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1, right)
    return left / right


def _concat(left: list[Any], right: list[Any]) -> list[Any]:
    return left + right


def _arithmetic(registry: Registry) -> None:
    add = registry.declare
    add("_+_", "(int, int) int", lambda a, b: check_int(a + b))
    add("_+_", "(uint, uint) uint", lambda a, b: _check_uint(a + b))
    add("_+_", "(double, double) double", operator.add)
    add("_+_", "(string, string) string", operator.add)
    add("_+_", "(bytes, bytes) bytes", operator.add)
    add("_+_", "(list(A), list(A)) list(A)", _concat)
    add("_+_", "(duration, duration) duration", lambda a, b: _duration(a.nanoseconds + b.nanoseconds))
    add("_+_", "(timestamp, duration) timestamp", lambda a, b: _timestamp(a.nanoseconds + b.nanoseconds))
    add("_+_", "(duration, timestamp) timestamp", lambda a, b: _timestamp(a.nanoseconds + b.nanoseconds))
    add("_-_", "(int, int) int", lambda a, b: check_int(a - b))
    add("_-_", "(uint, uint) uint", lambda a, b: _check_uint(a - b))
    add("_-_", "(double, double) double", operator.sub)
    add("_-_", "(duration, duration) duration", lambda a, b: _duration(a.nanoseconds - b.nanoseconds))
    add("_-_", "(timestamp, duration) timestamp", lambda a, b: _timestamp(a.nanoseconds - b.nanoseconds))
    add("_-_", "(timestamp, timestamp) duration", lambda a, b: _duration(a.nanoseconds - b.nanoseconds))
    add("_*_", "(int, int) int", lambda a, b: check_int(a * b))
    add("_*_", "(uint, uint) uint", lambda a, b: _check_uint(a * b))
    add("_*_", "(double, double) double", operator.mul)
    add("_/_", "(int, int) int", _divide)
    add("_/_", "(uint, uint) uint", lambda a, b: UInt(_divide(a, b)))
    add("_/_", "(double, double) double", _divide_double)
    add("_%_", "(int, int) int", _modulo)
    add("_%_", "(uint, uint) uint", lambda a, b: UInt(_modulo(a, b)))
    add("-_", "(int) int", lambda a: check_int(-a))
    add("-_", "(double) double", operator.neg)


def _ordering(registry: Registry) -> None:
    numbers = ("int", "uint", "double")
    pairs = [(left, right) for left in numbers for right in numbers]
    same = ("bool", "string", "bytes", "timestamp", "duration")
    relations: dict[str, Callable[[Any, Any], bool]] = {
        "_<_": operator.lt,
        "_<=_": operator.le,
        "_>_": operator.gt,
        "_>=_": operator.ge,
    }
    for name, run in relations.items():
        for left, right in pairs + [(kind, kind) for kind in same]:
            registry.declare(name, f"({left}, {right}) bool", run)


def _contains(item: Any, holder: Any) -> bool:
    if type(holder) is dict:
        return type(item) is not bool and item in holder
    return any(equals(item, other) for other in holder)


def matches(text: str, pattern: str) -> bool:
    try:
        return gotext.compile_pattern(pattern).search(text) is not None
    except gotext.PatternError as error:
        raise CelError(str(error)) from error


def _basics(registry: Registry) -> None:
    add = registry.declare
    add("@in", "(A, list(A)) bool", _contains)
    add("@in", "(A, map(A, B)) bool", _contains)
    for signature in ("(string) int", "(bytes) int", "(list(A)) int", "(map(A, B)) int"):
        add("size", signature, len)
        add("size", signature.replace("(", "", 1).replace(") int", ".() int"), len)
    add("matches", "string.(string) bool", matches)
    add("matches", "(string, string) bool", matches)
    add("contains", "string.(string) bool", lambda text, part: part in text)
    add("startsWith", "string.(string) bool", lambda text, part: text.startswith(part))
    add("endsWith", "string.(string) bool", lambda text, part: text.endswith(part))
    add("type", "(A) type(A)", lambda value: TypeValue(values.kind_of(value)))
    add("dyn", "(A) dyn", lambda value: value)


def _no_conversion(target: str, source: str = "string") -> CelError:
    return CelError(f"type conversion error from '{source}' to '{target}'")


def _to_int(value: Any) -> int:
    if type(value) is float:
        if not math.isfinite(value) or not -(2**63) < value < 2**63:
            raise CelError("integer overflow")
        return int(value)
    if type(value) is str:
        if not re.fullmatch(r"[+-]?\d+", value, re.ASCII) or not -(2**63) <= int(value) < 2**63:
            raise _no_conversion("int")
        return int(value)
    if type(value) is Timestamp:
        return int(value.nanoseconds // 10**9)
    if type(value) is Duration:
        return int(value.nanoseconds)
    return check_int(int(value))


def _to_uint(value: Any) -> UInt:
    if type(value) is str:
        if not re.fullmatch(r"\d+", value, re.ASCII):
            raise _no_conversion("uint")
        return _check_uint(int(value))
    if type(value) is float and not math.isfinite(value):
        raise CelError("unsigned integer overflow")
    return _check_uint(int(value))


def _to_double(value: Any) -> float:
    if type(value) is str and not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)", value.lower()):
        raise _no_conversion("double")
    return float(value)


def _to_string(value: Any) -> str:
    kind = type(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is float:
        return gotext.show_float(value)
    if kind is bytes:
        try:
            return str(value, "utf-8")
        except UnicodeDecodeError:
            raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None
    return str(int(value)) if kind is UInt else str(value)


def _to_bool(value: Any) -> bool:
    if type(value) is not str:
        return bool(value)
    if value in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if value in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise _no_conversion("bool")


def _to_timestamp(value: Any) -> Timestamp:
    if type(value) is int:
        return _timestamp(value * 10**9)
    if type(value) is Timestamp:
        return value
    try:
        return values.parse_timestamp(value)
    except ValueError:
        raise _no_conversion("google.protobuf.Timestamp") from None


def _to_duration(value: Any) -> Duration:
    if type(value) is int:
        # There is such an overload, and it always fails.
        raise _no_conversion("google.protobuf.Duration", "int")
    if type(value) is Duration:
        return value
    try:
        return values.parse_duration(value)
    except ValueError:
        raise _no_conversion("google.protobuf.Duration") from None


def _conversions(registry: Registry) -> None:
    sources = {
        "int": (_to_int, ("int", "uint", "double", "string", "timestamp", "duration")),
        "uint": (_to_uint, ("uint", "int", "double", "string")),
        "double": (_to_double, ("double", "int", "uint", "string")),
        "string": (
            _to_string,
            ("string", "bool", "int", "uint", "double", "bytes", "timestamp", "duration", "ip", "cidr"),
        ),
        "bool": (_to_bool, ("bool", "string")),
        "timestamp": (_to_timestamp, ("timestamp", "string", "int")),
        "duration": (_to_duration, ("duration", "string", "int")),
    }
    for result, (run, kinds) in sources.items():
        for kind in kinds:
            registry.declare(result, f"({kind}) {result}", run)
    registry.declare("bytes", "(bytes) bytes", lambda value: value)
    registry.declare("bytes", "(string) bytes", lambda value: value.encode())


def _zone(name: str) -> Any:
    offset = re.fullmatch(r"([+-]?)(\d{1,2}):(\d\d)", name)
    if offset is not None:
        span = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return timezone(-span if offset[1] == "-" else span)
    try:
        return zoneinfo.ZoneInfo(name or "UTC")
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        raise CelError(f"unknown time zone {name}") from None


def _times(registry: Registry) -> None:
    parts: dict[str, Callable[[datetime], int]] = {
        "getFullYear": lambda moment: moment.year,
        "getMonth": lambda moment: moment.month - 1,
        "getDate": lambda moment: moment.day,
        "getDayOfMonth": lambda moment: moment.day - 1,
        "getDayOfYear": lambda moment: moment.timetuple().tm_yday - 1,
        "getDayOfWeek": lambda moment: moment.isoweekday() % 7,
        "getHours": lambda moment: moment.hour,
        "getMinutes": lambda moment: moment.minute,
        "getSeconds": lambda moment: moment.second,
        "getMilliseconds": lambda moment: moment.microsecond // 1000,
    }
    for name, part in parts.items():
        registry.declare(name, "timestamp.() int", lambda value, part=part: part(value.moment))
        registry.declare(
            name, "timestamp.(string) int", lambda value, zone, part=part: part(value.moment.astimezone(_zone(zone)))
        )
    spans = {"getHours": 3600 * 10**9, "getMinutes": 60 * 10**9, "getSeconds": 10**9}
    for name, unit in spans.items():
        registry.declare(name, "duration.() int", lambda value, unit=unit: int(value.nanoseconds / unit))
    registry.declare("getMilliseconds", "duration.() int", lambda value: int(value.nanoseconds / 10**6) % 1000)


def install(registry: Registry) -> None:
    """Declare everything of this module."""
    for part in (_arithmetic, _ordering, _basics, _conversions, _times):
        part(registry)
