"""Texts in JSON as the original's library writes and reads them: its checksum is taken over these very bytes.

In: strings; bytes of a document. Out: quoted strings; a tree whose objects are tuples of pairs in the order written:
a later pair may repeat the name of an earlier one. Which names mean what is not known here. Pure.
"""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["Fraction", "Pairs", "fold", "parse", "quote"]

_SPECIAL = re.compile('[\x00-\x1f"\\\\<>&\u2028\u2029\ud800-\udfff]')
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_FOLDED = {0x17F: "s", 0x212A: "k"}


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


def fold(name: str) -> str:
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
