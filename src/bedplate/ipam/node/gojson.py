"""Texts in JSON as the original's library writes and reads them: its checksum is taken over these very bytes.

In: strings; bytes of a document; which fields an object has, and how each is filled. Out: quoted strings; a tree whose
objects are tuples of pairs in the order written: a later pair may repeat the name of an earlier one; the values of the
fields, or `Corrupt`. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

__all__ = [
    "Corrupt",
    "Filler",
    "Fraction",
    "Pairs",
    "fill",
    "integer_field",
    "objects_field",
    "parse",
    "quote",
    "text_field",
]

_SPECIAL = re.compile('[\x00-\x1f"\\\\<>&\u2028\u2029\ud800-\udfff]')
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_FOLDED = {0x17F: "s", 0x212A: "k"}


class Corrupt(ValueError):
    """The bytes are not a document that the original would accept; the message says why."""


class Pairs(tuple[tuple[str, Any], ...]):
    """An object."""

    __slots__ = ()


class Fraction(str):
    """A number with a point or an exponent: no integer field takes one, whatever its value."""

    __slots__ = ()


def _escape(match: re.Match[str]) -> str:
    text = match.group()
    if text in _SHORT:
        return _SHORT[text]
    return "\\ufffd" if "\ud800" <= text <= "\udfff" else f"\\u{ord(text):04x}"


def quote(text: str) -> str:
    """The string with its quotation marks."""
    return f'"{_SPECIAL.sub(_escape, text)}"' if _SPECIAL.search(text) else f'"{text}"'


def _fold(name: str) -> str:
    """A name for comparison: the case of letters does not count, nor the two signs that are letters in other dress."""
    return name.translate(_FOLDED).lower()


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not valid JSON")


def _repaired(node: Any) -> Any:
    """Half a character, written as an escape, becomes the sign for it."""
    if isinstance(node, str) and not isinstance(node, Fraction):
        return _SURROGATE.sub("\ufffd", node)
    if isinstance(node, Pairs):
        return Pairs((_repaired(name), _repaired(value)) for name, value in node)
    return [_repaired(item) for item in node] if isinstance(node, list) else node


def parse(content: bytes) -> Any:
    """The tree of a document; `ValueError` when the bytes are none."""
    text = content.decode("utf-8", "surrogateescape")
    # One sign for each byte that means nothing, as the original counts them.
    text = _SURROGATE.sub("\ufffd", text)
    try:
        tree = json.loads(text, object_pairs_hook=Pairs, parse_float=Fraction, parse_constant=_refuse)
        return _repaired(tree) if "\\ud" in text or "\\uD" in text else tree
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


# How the original's library fills a field: from a value and what the field held before, for a name may come twice.
Filler = Callable[[Any, Any], Any]


def fill(tree: Any, fields: Mapping[str, Filler], values: dict[str, Any]) -> dict[str, Any]:
    """The values of an object's fields, added to those it had; other names are skipped."""
    if tree is None:
        return values
    if not isinstance(tree, Pairs):
        raise Corrupt("expected an object")
    for written, value in tree:
        name = written if written in fields else _fold(written)
        if name in fields:
            values[name] = fields[name](value, values.get(name))
    return values


def objects_field(fields: Mapping[str, Filler]) -> Filler:
    """A field that holds objects by name."""

    def fill_all(value: Any, before: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, Pairs):
            raise Corrupt("expected an object")
        return {**(before or {}), **{key: fill(item, fields, {}) for key, item in value}}

    return fill_all


def text_field(value: Any, before: Any) -> Any:
    """A field that holds a text."""
    if value is None:
        return before or ""
    if type(value) is not str:
        raise Corrupt("expected a string")
    return value


def integer_field(lowest: int, highest: int) -> Filler:
    """A field that holds an integer from here to there."""

    def fill_one(value: Any, before: Any) -> Any:
        if value is None:
            return before or 0
        if type(value) is not int or not lowest <= value <= highest:
            raise Corrupt(f"{str(value)[:80]!r} must be an integer from {lowest} to {highest}")
        return value

    return fill_one
