"""Values written as Go prints them, since the texts of a Kubernetes API server are part of its behaviour.

In: JSON values. Out: text: `%q`, `%v` and `encoding/json`. Nothing else of Go's formatting is here. Also Go's regular
expressions (RE2), with its wording for faulty ones.
"""

from __future__ import annotations

import decimal
import json
import math
from functools import lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]

__all__ = ["Literal", "PatternError", "compile_pattern", "marshal", "quote", "show", "show_float"]

_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}
_HTML = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}
_WORDING = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "trailing \\": "trailing backslash at end of expression",
    "invalid repetition size": "invalid repeat count",
    "invalid named capture group": "invalid named capture",
}


class Literal:
    """A value whose text is already known: a Go struct, whose fields keep their order."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def quote(text: str) -> str:
    """`%q` of a string."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_quoted(letter) for letter in text) + '"'


def _quoted(letter: str) -> str:
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    if letter.isprintable():
        return letter
    code = ord(letter)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def show_float(number: float) -> str:
    """`%v` of a float64: the shortest text that reads back, with an exponent only for very large and small ones."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    magnitude = abs(number)
    if magnitude != 0 and (magnitude < 1e-4 or magnitude >= 1e6):
        return _exponent(number)
    return repr(number).removesuffix(".0")


def _exponent(number: float) -> str:
    sign, digits, _ = decimal.Decimal(repr(number)).normalize().as_tuple()
    power = decimal.Decimal(repr(number)).adjusted()
    rest = "".join(map(str, digits[1:]))
    mantissa = f"{digits[0]}.{rest}" if rest else str(digits[0])
    return f"{'-' if sign else ''}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"


def show(value: Any) -> str:
    """`%v` of a JSON value."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return show_float(value)
    if isinstance(value, list | tuple):
        return "[" + " ".join(show(item) for item in value) + "]"
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{show(value[key])}" for key in sorted(value)) + "]"
    return str(value)


def marshal(value: Any) -> str:
    """`encoding/json`: sorted keys, no spaces, `<`, `>` and `&` escaped."""
    if isinstance(value, Literal):
        return value.text
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False).translate(_HTML)


def _plain(value: Any) -> Any:
    """Floats with an integer value are written without a fraction."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return int(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


class PatternError(ValueError):
    """A pattern Go would not compile; the text is Go's."""


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Any:
    """A regular expression as Go has them (RE2), compiled, or `PatternError`."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raw = error.args[0]
        what, _, where = (raw.decode() if isinstance(raw, bytes) else str(raw)).partition(": ")
        where = "" if what.startswith("trailing") else where
        raise PatternError(f"error parsing regexp: {_WORDING.get(what, what)}: `{where}`") from error
