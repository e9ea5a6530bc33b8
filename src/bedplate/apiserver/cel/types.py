"""Types of the Common Expression Language, as the checker and the evaluator share them.

In: nothing. Out: `Type` values and their texts. A type of a JSON schema knows how a JSON value of it becomes a CEL
value (`adapt`) and how large it can be (`limit`), which the estimate of a rule's cost needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "BOOL",
    "BYTES",
    "CIDR",
    "DOUBLE",
    "DURATION",
    "DYN",
    "ERROR",
    "FORMAT",
    "INT",
    "IP",
    "NULL",
    "QUANTITY",
    "SEMVER",
    "STRING",
    "TIMESTAMP",
    "UINT",
    "URL",
    "Field",
    "Type",
    "list_of",
    "map_of",
    "optional_of",
    "param",
    "type_of",
]


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A field of an object: its JSON name, which an escaped CEL name may hide, and its type."""

    json_name: str
    type: Type


@dataclass(frozen=True, slots=True, eq=False)
class Type:
    """One type. `kind` is a word of CEL, `object`, `opaque` or `param` (a variable of a signature)."""

    kind: str
    name: str = ""
    params: tuple[Type, ...] = ()
    fields: Mapping[str, Field] = field(default_factory=dict)
    adapt: Callable[[Any], Any] | None = None
    """JSON value to CEL value; None when they are the same."""
    limit: int = -1
    """most characters, items or entries; -1 when unknown."""
    min_size: int = 0
    """fewest bytes of JSON."""
    list_type: str = ""
    list_keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.kind in ("object", "param"):
            return self.name
        if self.kind == "opaque":
            return self.name + (f"({', '.join(map(str, self.params))})" if self.params else "")
        if self.kind == "error":
            return "!error!"
        if self.params:
            return f"{self.kind}({', '.join(map(str, self.params))})"
        return self.kind

    @property
    def is_dyn(self) -> bool:
        return self.kind in ("dyn", "error")

    @property
    def is_optional(self) -> bool:
        return self.kind == "opaque" and self.name == "optional_type"


BOOL, INT, UINT, DOUBLE = Type("bool"), Type("int"), Type("uint"), Type("double")
STRING, BYTES, NULL, DYN, ERROR = Type("string"), Type("bytes"), Type("null"), Type("dyn"), Type("error")
TIMESTAMP, DURATION = Type("timestamp"), Type("duration")
QUANTITY, IP, CIDR = Type("opaque", "kubernetes.Quantity"), Type("opaque", "net.IP"), Type("opaque", "net.CIDR")
URL, FORMAT, SEMVER = (
    Type("opaque", "kubernetes.URL"),
    Type("opaque", "kubernetes.NamedFormat"),
    Type("opaque", "kubernetes.Semver"),
)


def list_of(element: Type) -> Type:
    return Type("list", params=(element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", params=(key, value))


def optional_of(value: Type) -> Type:
    return Type("opaque", "optional_type", (value,))


def type_of(value: Type) -> Type:
    return Type("type", params=(value,))


def param(name: str) -> Type:
    return Type("param", name)
