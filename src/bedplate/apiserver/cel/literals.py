"""What Kubernetes checks of the constants in a sound expression: patterns, times, like elements, format clauses.

In: a checked tree. Out: faults with their places. It runs only on expressions without other faults, as on the server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bedplate.apiserver.cel import ast, types, values
from bedplate.apiserver.cel.lexer import Fault
from bedplate.apiserver.cel.types import Type
from bedplate.apiserver.schema import gotext

__all__ = ["check_literals"]

_PARSERS: dict[str, Callable[[str], Any]] = {
    "matches": gotext.compile_pattern,
    "duration": values.parse_duration,
    "timestamp": values.parse_timestamp,
}
_CLAUSE = re.compile(r"%(?:%|(?:\.\d+)?([a-zA-Z]))")
_CLAUSES = {
    "d": (("int", "uint"), "decimal clause can only be used on integers"),
    "f": (("double", "string"), "fixed-point clause can only be used on doubles"),
    "e": (("double", "string"), "scientific clause can only be used on doubles"),
    "b": (("int", "uint", "bool"), "only integers and bools can be formatted as binary"),
    "x": (
        ("int", "uint", "string", "bytes"),
        "only integers, byte buffers, and strings can be formatted as hex",
    ),
    "o": (("int", "uint"), "octal clause can only be used on integers"),
}
_CLAUSES["X"] = _CLAUSES["x"]
_SHOWABLE = frozenset(
    (
        *("bool", "bytes", "double", "duration", "int", "string", "timestamp", "type", "uint", "null"),
        *("dyn", "list", "map"),
    )
)
_STRING_CLAUSE = (
    "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, "
    "durations, and timestamps"
)
_TYPE_NAMES = {"timestamp": "google.protobuf.Timestamp", "duration": "google.protobuf.Duration", "null": "null_type"}


def check_literals(root: ast.Node, known: Mapping[int, Type]) -> list[Fault]:
    return [*_visit(root, known, is_formatted=False)]


def _visit(node: ast.Node, known: Mapping[int, Type], *, is_formatted: bool) -> Iterator[Fault]:
    match node:
        case ast.ListNode() if not is_formatted:
            yield from _unlike_items(node, known)
        case ast.MapNode() if not is_formatted:
            yield from _unlike_entries(node, known)
        case ast.Call():
            yield from _constant(node)
            if node.name == "format":
                is_formatted = True
                yield from _format(node, known)
    for below in _below(node):
        yield from _visit(below, known, is_formatted=is_formatted)


def _below(node: ast.Node) -> list[ast.Node]:
    match node:
        case ast.Select() | ast.Has():
            return [node.operand]
        case ast.Index():
            return [node.operand, node.key]
        case ast.Call():
            return [*([node.target] if node.target is not None else []), *node.args]
        case ast.ListNode():
            return node.items
        case ast.MapNode():
            return [part for key, value, _ in node.entries for part in (key, value)]
        case ast.Comprehension():
            return [part for part in (node.range, node.condition, node.result) if part is not None]
    return []


def _constant(node: ast.Call) -> Iterator[Fault]:
    last = node.args[-1] if node.args else None
    parse = _PARSERS.get(node.name)
    if parse is None or not isinstance(last, ast.Literal):
        return
    if last.kind != "string":
        if node.name == "duration":
            yield Fault(last.line, last.column, "invalid duration argument")
        return
    try:
        parse(last.value)
    except ValueError:
        yield Fault(last.line, last.column, f"invalid {node.name} argument")


def _kind(node: ast.Node, known: Mapping[int, Type], *, is_optional: bool = False) -> Type:
    kind = known.get(id(node), types.DYN)
    return kind.params[0] if is_optional and kind.is_optional else kind


def _unlike(node: ast.Node, expected: Type, actual: Type) -> Fault:
    return Fault(node.line, node.column, f"expected type '{expected}' but found '{actual}'")


def _unlike_items(node: ast.ListNode, known: Mapping[int, Type]) -> Iterator[Fault]:
    kinds = [_kind(item, known, is_optional=optional) for item, optional in zip(node.items, node.optional, strict=True)]
    for item, kind in zip(node.items[1:], kinds[1:], strict=True):
        if str(kind) != str(kinds[0]):
            yield _unlike(item, kinds[0], kind)
            return


def _unlike_entries(node: ast.MapNode, known: Mapping[int, Type]) -> Iterator[Fault]:
    for at, (key, value, optional) in enumerate(node.entries):
        if at == 0:
            first = _kind(key, known), _kind(value, known, is_optional=optional)
            continue
        for part, expected, is_optional in ((key, first[0], False), (value, first[1], optional)):
            kind = _kind(part, known, is_optional=is_optional)
            if str(kind) != str(expected):
                yield _unlike(part, expected, kind)


def _format(node: ast.Call, known: Mapping[int, Type]) -> Iterator[Fault]:
    """Each clause of a constant template must suit its argument."""
    template, args = node.target, node.args[0] if node.args else None
    if not isinstance(template, ast.Literal) or not isinstance(args, ast.ListNode):
        return
    clauses = [clause for clause in _CLAUSE.findall(template.value) if clause]
    for index, letter in enumerate(clauses):
        if index >= len(args.items):
            yield Fault(node.line, node.column, f"index {index} out of range")
            return
        fault = _clause_fault(letter, args.items[index], known)
        if fault is not None:
            yield fault
            return
    if len(clauses) < len(args.items):
        text = f"too many arguments supplied to string.format (expected {len(clauses)}, got {len(args.items)})"
        yield Fault(node.line, node.column, text)


def _clause_fault(letter: str, item: ast.Node, known: Mapping[int, Type]) -> Fault | None:
    kind = _kind(item, known)
    if letter == "s":
        wrong = _unshowable(item, known)
        if wrong is None:
            return None
        item, kind, text = wrong, _kind(wrong, known), _STRING_CLAUSE
    else:
        allowed, text = _CLAUSES.get(letter, ((), ""))
        if not text or kind.kind in (*allowed, "dyn"):
            return None
    name = _TYPE_NAMES.get(kind.kind) or kind.name or kind.kind
    return Fault(item.line, item.column, f"error during formatting: {text}, was given {name}")


def _unshowable(node: ast.Node, known: Mapping[int, Type]) -> ast.Node | None:
    """The first part of a value that has no text."""
    parts: list[ast.Node] = []
    if isinstance(node, ast.ListNode):
        parts = node.items
    elif isinstance(node, ast.MapNode):
        parts = [part for key, value, _ in node.entries for part in (key, value)]
    for part in parts:
        if (inner := _unshowable(part, known)) is not None:
            return inner
    kind = _kind(node, known).kind
    return None if parts or kind in _SHOWABLE else node
