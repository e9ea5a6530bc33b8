"""CEL's extension libraries that Kubernetes turns on: strings, lists, sets and optionals.

In: values. Out: values, or `CelError` in the server's words.
"""

from __future__ import annotations

import decimal
import re
from typing import Any

from bedplate.apiserver.cel import values
from bedplate.apiserver.cel.signatures import Registry
from bedplate.apiserver.cel.values import NONE, CelError, Duration, Optional, Timestamp, TypeValue, UInt, equals
from bedplate.apiserver.schema import gotext

__all__ = ["install", "sort_by"]


def _out_of_range(index: int) -> CelError:
    return CelError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def _index_of(text: str, part: str, offset: int = 0) -> int:
    if not part:
        return offset
    if not 0 <= offset <= len(text):
        raise _out_of_range(offset)
    return text.find(part, offset)


def _last_index_of(text: str, part: str, offset: int | None = None) -> int:
    if offset is None:
        return len(text) if not part else text.rfind(part)
    if not part:
        return offset
    if not 0 <= offset < len(text):
        raise _out_of_range(offset)
    return text.rfind(part, 0, offset + len(part))


def _lower(text: str) -> str:
    return "".join(letter.lower() if "A" <= letter <= "Z" else letter for letter in text)


def _upper(text: str) -> str:
    return "".join(letter.upper() if "a" <= letter <= "z" else letter for letter in text)


def _split(text: str, mark: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if not mark:
        cut = len(text) if count < 0 else count - 1
        return [*text[:cut], text[cut:]] if text[cut:] else list(text)
    return text.split(mark, count - 1) if count > 0 else text.split(mark)


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is None:
        if not 0 <= start <= len(text):
            raise _out_of_range(start)
        return text[start:]
    if start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if not 0 <= index <= len(text):
            raise _out_of_range(index)
    return text[start:end]


def _quote(text: str) -> str:
    escapes = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
    escapes |= {"\\": "\\\\", '"': '\\"'}
    return '"' + "".join(escapes.get(letter, letter) for letter in text) + '"'


_SPACE = " \t\n\v\f\r\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


def _strings(registry: Registry) -> None:
    add = registry.declare
    add("charAt", "string.(int) string", _char_at)
    for signature in ("string.(string) int", "string.(string, int) int"):
        add("indexOf", signature, _index_of)
        add("lastIndexOf", signature, _last_index_of)
    add("lowerAscii", "string.() string", _lower)
    add("upperAscii", "string.() string", _upper)
    add("replace", "string.(string, string) string", lambda text, old, new: text.replace(old, new))
    add("replace", "string.(string, string, int) string", lambda text, old, new, n: text.replace(old, new, n))
    add("split", "string.(string) list(string)", _split)
    add("split", "string.(string, int) list(string)", _split)
    add("substring", "string.(int) string", _substring)
    add("substring", "string.(int, int) string", _substring)
    add("trim", "string.() string", lambda text: text.strip(_SPACE))
    add("format", "string.(list(dyn)) string", _format)
    add("strings.quote", "(string) string", _quote)
    add("join", "list(string).() string", "".join)
    add("join", "list(string).(string) string", lambda items, mark: mark.join(items))
    add("find", "string.(string) string", _find)
    add("findAll", "string.(string) list(string)", _find_all)
    add("findAll", "string.(string, int) list(string)", _find_all)


def _pattern(text: str) -> Any:
    try:
        return gotext.compile_pattern(text)
    except gotext.PatternError as error:
        raise CelError(f"Illegal regex: {error}") from error


def _find(text: str, pattern: str) -> str:
    match = _pattern(pattern).search(text)
    return str(match.group()) if match else ""


def _find_all(text: str, pattern: str, count: int = -1) -> list[str]:
    matches = [each.group() for each in _pattern(pattern).finditer(text)]
    return matches if count < 0 else matches[:count]


_CLAUSE = re.compile(r"%(?:%|(?:\.(\d+))?([a-zA-Z]))")


def _format(template: str, args: list[Any]) -> str:
    used = 0

    def fill(match: re.Match[str]) -> str:
        nonlocal used
        if match.group() == "%%":
            return "%"
        if used >= len(args):
            raise CelError(f"index {used} out of range")
        value = args[used]
        used += 1
        return _clause(match[2], int(match[1]) if match[1] else None, value)

    return _CLAUSE.sub(fill, template)


def _clause(letter: str, precision: int | None, value: Any) -> str:
    if letter == "s":
        return _shown(value)
    if letter == "d" and type(value) in (int, UInt):
        return str(int(value))
    if letter in "fe" and type(value) in (float, int, UInt):
        digits = 6 if precision is None else precision
        return f"{float(value):.{digits}f}" if letter == "f" else _scientific(float(value), digits)
    if letter == "b" and type(value) in (bool, int, UInt):
        return f"{int(value):b}"
    if letter == "o" and type(value) in (int, UInt):
        return f"{int(value):o}"
    if letter in "xX":
        if type(value) in (int, UInt):
            text = f"{int(value):x}"
        else:
            text = (value.encode() if type(value) is str else bytes(value)).hex()
        return text.upper() if letter == "X" else text
    if letter in "dfebo":
        raise CelError(f"error during formatting: no such overload for clause %{letter}")
    raise CelError(f'could not parse formatting clause: unrecognized formatting clause "{letter}"')


def _scientific(value: float, digits: int) -> str:
    """`2.500000 × 10⁰⁰`, with narrow spaces."""
    mantissa, _, power = f"{value:.{digits}e}".partition("e")
    return f"{mantissa}\u202f×\u202f10" + power.lstrip("+").translate(_SUPERSCRIPTS)


_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def _shown(value: Any) -> str:
    if type(value) is bool:
        return "true" if value else "false"
    if value is None:
        return "null"
    if type(value) is float:
        return gotext.show_float(value)
    if type(value) is bytes:
        return value.decode(errors="replace")
    if type(value) is list:
        return "[" + ", ".join(_shown(item) for item in value) + "]"
    if type(value) is dict:
        return "{" + ", ".join(f"{_shown(key)}: {_shown(value[key])}" for key in sorted(value, key=_shown)) + "}"
    if isinstance(value, TypeValue):
        return value.name
    if isinstance(value, Duration):
        return f"{decimal.Decimal(value.nanoseconds) / 10**9:f}s"
    if isinstance(value, Timestamp | str):
        return str(value)
    return str(int(value)) if isinstance(value, int) else str(value)


def _in_list(item: Any, items: list[Any]) -> bool:
    return any(equals(item, other) for other in items)


def _includes(items: list[Any], part: list[Any]) -> bool:
    return all(_in_list(item, items) for item in part)


def _distinct(items: list[Any]) -> list[Any]:
    unique_items: list[Any] = []
    for item in items:
        if not _in_list(item, unique_items):
            unique_items.append(item)
    return unique_items


def _flatten(items: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise CelError("level must be non-negative")
    elements: list[Any] = []
    for item in items:
        if type(item) is list:
            elements += _flatten(item, depth - 1) if depth > 1 else item if depth else [item]
        else:
            elements.append(item)
    return elements


def _slice(items: list[Any], start: int, end: int) -> list[Any]:
    where = f"cannot slice({start}, {end}), "
    if start < 0 or end < 0:
        raise CelError(where + "negative indexes not supported")
    if start > end:
        raise CelError(where + "start index must be less than or equal to end index")
    if end > len(items):
        raise CelError(where + f"list is length {len(items)}")
    return items[start:end]


def _ordered(items: list[Any], keys: list[Any]) -> list[Any]:
    if any(type(key) is not type(keys[0]) for key in keys):
        raise CelError("list elements must have the same type")
    return [items[at] for at in sorted(range(len(items)), key=keys.__getitem__)]


def sort_by(items: list[Any], keys: list[Any]) -> list[Any]:
    return _ordered(items, keys)


def _is_sorted(items: list[Any]) -> bool:
    return all(not items[at + 1] < items[at] for at in range(len(items) - 1))


def _extreme(name: str, choose: Any) -> Any:
    def run(items: list[Any]) -> Any:
        if not items:
            raise CelError(f"{name} called on empty list")
        return choose(items)

    return run


def _at(items: list[Any], item: Any) -> int:
    return next((index for index, other in enumerate(items) if equals(item, other)), -1)


def _last_at(items: list[Any], item: Any) -> int:
    return next((index for index in range(len(items) - 1, -1, -1) if equals(item, items[index])), -1)


def _sum_int(items: list[Any]) -> Any:
    total = sum(items)
    if not values.MIN_INT <= total <= values.MAX_INT:
        raise CelError("integer overflow")
    return total


def _lists(registry: Registry) -> None:
    add = registry.declare
    for kind in ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"):
        add("isSorted", f"list({kind}).() bool", _is_sorted)
        add("max", f"list({kind}).() {kind}", _extreme("max", max))
        add("min", f"list({kind}).() {kind}", _extreme("min", min))
        add("sort", f"list({kind}).() list({kind})", lambda items: _ordered(items, items))
    add("sum", "list(int).() int", _sum_int)
    add("sum", "list(uint).() uint", lambda items: UInt(sum(items)))
    add("sum", "list(double).() double", lambda items: float(sum(items)))
    add("sum", "list(duration).() duration", lambda items: Duration(sum(item.nanoseconds for item in items)))
    add("indexOf", "list(A).(A) int", _at)
    add("lastIndexOf", "list(A).(A) int", _last_at)
    add("slice", "list(A).(int, int) list(A)", _slice)
    add("flatten", "list(list(A)).() list(A)", _flatten)
    add("flatten", "list(dyn).(int) list(dyn)", _flatten)
    add("lists.range", "(int) list(int)", lambda count: list(range(count)))
    add("reverse", "list(A).() list(A)", lambda items: items[::-1])
    add("distinct", "list(A).() list(A)", _distinct)
    add("sets.contains", "(list(A), list(A)) bool", _includes)
    add("sets.equivalent", "(list(A), list(A)) bool", lambda a, b: _includes(a, b) and _includes(b, a))
    add("sets.intersects", "(list(A), list(A)) bool", lambda a, b: any(_in_list(item, b) for item in a))


def _value(holder: Optional) -> Any:
    if not holder.present:
        raise CelError("optional.none() dereference")
    return holder.value


_ZEROS: tuple[Any, ...] = (0, 0.0, "", b"", None, [], {}, Duration(0))


def _of_non_zero(value: Any) -> Optional:
    is_zero = value is False or any(type(value) is type(zero) and value == zero for zero in _ZEROS)
    return NONE if is_zero else Optional(value)


def _optionals(registry: Registry) -> None:
    add = registry.declare
    add("optional.of", "(A) optional(A)", Optional)
    add("optional.ofNonZeroValue", "(A) optional(A)", _of_non_zero)
    add("optional.none", "() optional(A)", lambda: NONE)
    add("value", "optional(A).() A", _value)
    add("hasValue", "optional(A).() bool", lambda holder: holder.present)
    add("or", "optional(A).(optional(A)) optional(A)", lambda holder, other: holder if holder.present else other)
    add("orValue", "optional(A).(A) A", lambda holder, other: holder.value if holder.present else other)


def install(registry: Registry) -> None:
    """Declare everything of this module."""
    for part in (_strings, _lists, _optionals):
        part(registry)
