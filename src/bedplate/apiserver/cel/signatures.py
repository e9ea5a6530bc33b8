"""Functions of the language: their overloads, and the short notation in which libraries declare them.

`declare("indexOf", "string.(string) int", run)` declares a method; `"(list(A)) int"` a plain function. Single capital
letters are type variables. In: a signature. Out: an entry in a registry that checker and evaluator read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bedplate.apiserver.cel import types
from bedplate.apiserver.cel.types import Type

__all__ = ["Overload", "Registry", "parse_type"]

Implementation = Callable[..., Any]

_NAMED = {
    "bool": types.BOOL,
    "int": types.INT,
    "uint": types.UINT,
    "double": types.DOUBLE,
    "string": types.STRING,
    "bytes": types.BYTES,
    "null": types.NULL,
    "dyn": types.DYN,
    "timestamp": types.TIMESTAMP,
    "duration": types.DURATION,
    "quantity": types.QUANTITY,
    "ip": types.IP,
    "cidr": types.CIDR,
    "url": types.URL,
    "format": types.FORMAT,
    "semver": types.SEMVER,
}


@dataclass(frozen=True, slots=True, eq=False)
class Overload:
    params: tuple[Type, ...]
    """of a method the first is the target."""
    result: Type
    is_method: bool
    run: Implementation


def _split(text: str) -> list[str]:
    """Parts at the commas that no bracket holds."""
    parts, depth, last = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            parts.append(text[last:at])
            last = at + 1
    return [part.strip() for part in [*parts, text[last:]] if part.strip()]


def parse_type(text: str) -> Type:
    if text in _NAMED:
        return _NAMED[text]
    if re.fullmatch("[A-Z]", text):
        return types.param(text)
    word, _, rest = text.partition("(")
    params = tuple(parse_type(part) for part in _split(rest[:-1]))
    if word == "optional":
        return types.optional_of(params[0])
    return Type(word, params=params)


def _parse(signature: str, run: Implementation) -> Overload:
    # The result never holds a space outside of brackets, so the last blank before it ends the arguments.
    depth, cut = 0, 0
    for at, letter in enumerate(signature):
        depth += (letter == "(") - (letter == ")")
        if letter == " " and not depth:
            cut = at
    head, result = signature[:cut], signature[cut + 1 :]
    opening = head.rindex(".(") + 1 if ".(" in head else 0
    target = head[: opening - 1] if opening else ""
    args = [parse_type(part) for part in _split(head[opening + 1 : -1])]
    params = tuple([parse_type(target), *args] if target else args)
    return Overload(params, parse_type(result), bool(target), run)


class Registry:
    """All functions by name."""

    def __init__(self) -> None:
        self.functions: dict[str, list[Overload]] = {}

    def declare(self, name: str, signature: str, run: Implementation) -> None:
        self.functions.setdefault(name, []).append(_parse(signature, run))
