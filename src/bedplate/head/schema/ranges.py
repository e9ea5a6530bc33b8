"""Names of objects as values: one, several, and those of nodes in short: `node00[4-6]`, `node001..node003`. Pure.

In: what people type. Out: the names in order, each once; and back to the shortest form; the kinds of value that hold
them. Whether an object of that name exists is not asked here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bedplate.head.objects import Value
from bedplate.head.schema.kinds import Kind, Text, quoted

__all__ = ["ListOf", "NodeList", "Reference", "compress", "expand", "natural"]

_BRACKET = re.compile(r"^([^\[\]]*)\[([^\[\]]+)\]([^\[\]]*)$")
_NUMBERED = re.compile(r"^(.*?)(\d+)$")
_PIECE = re.compile(r"\d+|\D+")
_NAME = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$")
_MOST = 100_000
_TEXT = Text()


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key that puts node2 before node10, and node02 beside node2 in a fixed order."""
    return tuple(_piece(piece) for piece in _PIECE.findall(name))


def _piece(piece: str) -> tuple[int, int, str]:
    if not piece.isdecimal():
        return (1, 0, piece)
    number = piece.lstrip("0")  # compared as text, so that its length does not matter
    return (0, len(number), f"{number} {piece}")


def expand(text: str, most: int = _MOST) -> tuple[str, ...]:
    """The names in a node list, sorted, each once. Raises ValueError saying which part cannot be read, or that there
    are more than `most`, without counting them."""
    names: set[str] = set()
    for part in _split(text):
        names.update(_expand_part(part, most))
        if len(names) > most:
            raise ValueError(f"{_short(text)} contains more than {most} nodes")
    for name in names:
        if not _NAME.match(name):
            raise ValueError(f"{name!r} cannot be a host name")
    return tuple(sorted(names, key=natural))


def _split(text: str) -> list[str]:
    """Parts between commas and blanks, where those inside brackets do not count."""
    parts, current, depth = [], "", 0
    for letter in text:
        if letter in ", \t\n" and depth == 0:
            parts.append(current)
            current = ""
            continue
        depth += (letter == "[") - (letter == "]")
        current += letter
    return [part for part in [*parts, current] if part]


def _short(text: str) -> str:
    return repr(text if len(text) <= 100 else f"{text[:97]}...")


def _expand_part(part: str, most: int) -> Iterable[str]:
    if ".." in part:
        first, _, last = part.partition("..")
        return _between(part, first, last, most)
    bracket = _BRACKET.match(part)
    if bracket is None:
        if "[" in part or "]" in part:
            raise ValueError(f"{part!r} is not a node range (for example node00[4-6])")
        return [part]
    before, inside, after = bracket.groups()
    names: list[str] = []
    for piece in inside.split(","):
        low, dash, high = piece.strip().partition("-")
        high = high if dash else low
        if not low.isdigit() or not high.isdigit() or len(high) < len(low):
            raise ValueError(f"{part!r} is not a node range (for example node00[4-6])")
        names.extend(f"{before}{number}{after}" for number in _numbers(part, low, high, most))
        if len(names) > most:
            raise ValueError(f"{_short(part)} contains more than {most} nodes")
    return names


def _between(part: str, first: str, last: str, most: int) -> list[str]:
    start, end = _NUMBERED.match(first), _NUMBERED.match(last)
    if start is None or end is None or start[1] != end[1]:
        raise ValueError(f"{part!r} is not a node range (for example node001..node003)")
    return [f"{start[1]}{number}" for number in _numbers(part, start[2], end[2], most)]


def _numbers(part: str, low: str, high: str, most: int) -> Iterable[str]:
    if int(high) < int(low):
        raise ValueError(f"{part!r} ends before it begins")
    if int(high) - int(low) >= most:
        raise ValueError(f"{_short(part)} contains more than {most} nodes")
    return (f"{number:0{len(low)}d}" for number in range(int(low), int(high) + 1))


def compress(names: Iterable[str]) -> str:
    """The names sorted and comma-joined, where three or more in a row become `first..last`."""
    runs: list[list[str]] = []
    for name in sorted(set(names), key=natural):
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    shown: list[str] = []
    for run in runs:
        shown.extend([f"{run[0]}..{run[-1]}"] if len(run) >= 3 else run)
    return ",".join(shown)


def _follows(name: str, other: str) -> bool:
    first, second = _NUMBERED.match(name), _NUMBERED.match(other)
    if first is None or second is None or first[1] != second[1]:
        return False
    following = f"{int(first[2]) + 1:0{len(first[2])}d}"
    return second[2] == following


@dataclass(frozen=True)
class Reference(Kind):
    """The key of an object in another mode."""

    name: ClassVar[str] = "reference"
    mode: str = ""

    @property
    def target_mode(self) -> str:
        return self.mode


@dataclass(frozen=True)
class ListOf(Kind):
    """Several values of a kind that is held as text, each once, in the order given."""

    name: ClassVar[str] = "list"
    multiple: ClassVar[bool] = True
    of: Kind = _TEXT

    def parse(self, text: str) -> Value:
        parts = [part.strip() for part in re.split(r"[,\n]", text)]
        return tuple(dict.fromkeys(str(self.of.parse(part)) for part in parts if part))

    def check(self, value: Value) -> None:
        if not isinstance(value, tuple):
            raise ValueError(f"{quoted(value)} must be a list")
        for item in value:
            self.of.check(item)
        if len(set(value)) != len(value):
            raise ValueError("contains a duplicate")

    def show(self, value: Value) -> str:
        assert isinstance(value, tuple)
        return ",".join(value)

    def lines(self, value: Value) -> list[str]:
        assert isinstance(value, tuple)
        return list(value)

    def decode(self, data: Any) -> Value:
        if not isinstance(data, list | tuple):
            raise ValueError(f"{quoted(data)} must be a list")
        value = tuple(data)
        self.check(value)
        return value

    def choices(self) -> Sequence[str]:
        return self.of.choices()

    def json_schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.of.json_schema(), "uniqueItems": True}

    @property
    def target_mode(self) -> str:
        return self.of.target_mode


@dataclass(frozen=True)
class NodeList(ListOf):
    """Nodes by name: ranges are understood, the names are held sorted, and shown short."""

    name: ClassVar[str] = "nodes"
    of: Kind = Reference("device")

    def parse(self, text: str) -> Value:
        return expand(text)

    def show(self, value: Value) -> str:
        assert isinstance(value, tuple)
        return compress(value)

    def check(self, value: Value) -> None:
        super().check(value)
        assert isinstance(value, tuple)
        if list(value) != sorted(value, key=natural):
            raise ValueError("is not sorted")

    def decode(self, data: Any) -> Value:
        if not isinstance(data, list | tuple) or not all(isinstance(name, str) for name in data):
            raise ValueError(f"{quoted(data)} must be a list of nodes")
        value = tuple(sorted(dict.fromkeys(data), key=natural))
        self.check(value)
        return value

    def json_schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.of.json_schema()}
