"""The tree of an expression after parsing, macros expanded.

In: nothing. Out: node classes. Every node has the place of the token that an error about it points at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Call", "Comprehension", "Has", "Ident", "Index", "ListNode", "Literal", "MapNode", "Node", "Select"]


@dataclass(slots=True, eq=False)
class Node:
    line: int
    column: int


@dataclass(slots=True, eq=False)
class Literal(Node):
    kind: str
    value: Any


@dataclass(slots=True, eq=False)
class Ident(Node):
    name: str


@dataclass(slots=True, eq=False)
class Select(Node):
    operand: Node
    name: str
    optional: bool = False


@dataclass(slots=True, eq=False)
class Has(Node):
    """`has(operand.name)`."""

    operand: Node
    name: str


@dataclass(slots=True, eq=False)
class Index(Node):
    operand: Node
    key: Node
    optional: bool = False


@dataclass(slots=True, eq=False)
class Call(Node):
    """A function or an operator (`_+_`); `target` is set for the method form."""

    name: str
    target: Node | None
    args: list[Node]


@dataclass(slots=True, eq=False)
class ListNode(Node):
    items: list[Node]
    optional: list[bool]


@dataclass(slots=True, eq=False)
class MapNode(Node):
    entries: list[tuple[Node, Node, bool]]


@dataclass(slots=True, eq=False)
class Comprehension(Node):
    """A macro over a list or map. `macro` is one of all, exists, exists_one, map, filter, transformList,
    transformMap, transformMapEntry, sortBy, optMap, optFlatMap."""

    macro: str
    range: Node
    variables: tuple[str, ...]
    condition: Node | None
    result: Node | None
