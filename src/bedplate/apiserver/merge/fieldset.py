"""Sets of field paths in the form Kubernetes keeps them in `metadata.managedFields[].fieldsV1`.

A set *is* its FieldsV1 JSON: nested dicts whose keys are path elements. `f:<name>` is a field or map key, `k:{...}` a
list item by its keys, `v:<json>` an item of a set, `i:<n>` an index. A value of `{}` makes the element a member; a
value with content holds members below it, and is a member itself when it has the key `.`. So no set is ever parsed
or written: what comes in from an object is used as it is, what goes out is stored as it is.

Every function returns a set in canonical order (the one the real server writes) and never changes its arguments;
results may share parts with them. `canonical` brings in sets that a client wrote.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

__all__ = [
    "SELF",
    "BadFields",
    "FieldSet",
    "canonical",
    "difference",
    "element_text",
    "field_element",
    "has",
    "in_order",
    "intersection",
    "key_element",
    "make",
    "path_text",
    "paths",
    "single_key_element",
    "union",
    "value_element",
]

FieldSet = dict[str, Any]
Path = tuple[str, ...]

SELF = "."
"""the key that makes a node with content a member too."""

_PLAIN = re.compile(r"[^\x00-\x1f\"\\<>&\u2028\u2029]*\Z")
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class BadFields(ValueError):
    """A client's fieldsV1 is not one."""


def _go_string(text: str, *, html: bool) -> str:
    """JSON text of a string as the Go server writes it (inside values it also escapes `<`, `>` and `&`)."""
    if _PLAIN.match(text):
        return f'"{text}"'
    parts = []
    for char in text:
        if char in _SHORT_ESCAPES:
            parts.append(_SHORT_ESCAPES[char])
        elif char < " " or char in "\u2028\u2029" or (html and char in "<>&"):
            parts.append(f"\\u{ord(char):04x}")
        else:
            parts.append(char)
    return '"' + "".join(parts) + '"'


def _go_value(value: Any) -> str:
    if isinstance(value, str):
        return _go_string(value, html=True)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        value = int(value)
    return msgspec.json.encode(value).decode()


def field_element(name: str) -> str:
    return "f:" + name


def value_element(value: Any) -> str:
    """The item `value` of a list that is a set."""
    return "v:" + _go_value(value)


def key_element(keys: Iterable[tuple[str, Any]]) -> str:
    """The item of a list-map with these key fields."""
    return "k:{" + ",".join(f"{_go_string(name, html=False)}:{_go_value(value)}" for name, value in sorted(keys)) + "}"


def single_key_element(name: str, value: Any) -> str:
    """`key_element` of one key. Names of containers, conditions and the like come again and again."""
    return _named_item(name, value) if type(value) is str else key_element([(name, value)])


@functools.lru_cache(maxsize=8192)
def _named_item(name: str, value: str) -> str:
    return key_element([(name, value)])


# --- order -----------------------------------------------------------------------------------------------------------


def _value_order(value: Any) -> tuple[int, Any]:
    """Go's total order over JSON values: numbers, strings, booleans, lists, maps, null."""
    if isinstance(value, bool):
        return (2, value)
    if isinstance(value, int | float):
        return (0, value)
    if isinstance(value, str):
        return (1, value)
    if isinstance(value, list):
        return (3, [_value_order(item) for item in value])
    if isinstance(value, dict):
        return (4, sorted((name, _value_order(item)) for name, item in value.items()))
    return (5, 0)


@functools.lru_cache(maxsize=4096)
def _list_element_order(element: str) -> tuple[int, Any]:
    body = element[2:]
    if element[0] == "k":
        fields = msgspec.json.decode(body)
        return (2, [(name, _value_order(fields[name])) for name in sorted(fields)])
    if element[0] == "v":
        return (3, _value_order(msgspec.json.decode(body)))
    return (4, int(body))


def _order(element: str) -> tuple[int, Any]:
    if element[0] == "f":
        return (1, element)
    return (0, "") if element == SELF else _list_element_order(element)


def in_order(fields: FieldSet) -> FieldSet:
    """The same set with its top level in canonical order."""
    if len(fields) < 2:
        return fields
    return {element: fields[element] for element in sorted(fields, key=_order)}


# --- algebra ---------------------------------------------------------------------------------------------------------
# Below the top level a node of a set is "member with nothing below" ({}), "member with content" (has SELF) or
# "content only". `_node` builds the right one of the three; None means that nothing is left.


def _is_member(node: FieldSet) -> bool:
    return not node or SELF in node


def _node(member: bool, below: FieldSet) -> FieldSet | None:
    below.pop(SELF, None)
    if not member:
        return below or None
    return {SELF: {}, **below} if below else {}


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    if not left or left is right:
        return right
    out: FieldSet | None = None
    grown = False
    for element, theirs in right.items():
        ours = left.get(element)
        if ours is None:
            merged, grown = theirs, True
        elif ours is theirs or ours == theirs:
            continue
        elif not ours or not theirs:
            merged = {SELF: {}, **ours, **theirs}
        else:
            merged = union(ours, theirs)
        out = dict(left) if out is None else out
        out[element] = merged
    if out is None:
        return left
    return in_order(out) if grown else out


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    out: FieldSet = {}
    for element, ours in left.items():
        theirs = right.get(element)
        if theirs is None or element == SELF:
            continue
        below = intersection(ours, theirs) if ours and theirs else {}
        node = _node(_is_member(ours) and _is_member(theirs), below)
        if node is not None:
            out[element] = node
    return out


def difference(left: FieldSet, right: FieldSet, *, recursive: bool = False) -> FieldSet:
    """What is in `left` and not in `right`; a member's content stays although the member goes, unless `recursive`."""
    if not any(element in right for element in left):
        return left
    out: FieldSet = {}
    for element, ours in left.items():
        theirs = right.get(element)
        if element == SELF:
            continue
        if theirs is None:
            out[element] = ours
            continue
        goes = _is_member(theirs)
        if goes and recursive:
            continue
        below = dict(difference(ours, theirs, recursive=recursive)) if ours and theirs else dict(ours)
        node = _node(_is_member(ours) and not goes, below)
        if node is not None:
            out[element] = node
    return out


def has(fields: FieldSet, path: Iterable[str]) -> bool:
    """Is exactly this path a member?"""
    node = None
    for element in path:
        node = fields.get(element)
        if node is None:
            return False
        fields = node
    return node is not None and _is_member(node)


def paths(fields: FieldSet, prefix: Path = ()) -> Iterator[Path]:
    """Every member: at each level first the members, then what is below them, as the real server lists conflicts."""
    for element, node in fields.items():
        if element != SELF and _is_member(node):
            yield (*prefix, element)
    for element, node in fields.items():
        if element != SELF and node:
            yield from paths(node, (*prefix, element))


def make(*members: Iterable[str]) -> FieldSet:
    """A set of paths given by field names only: `make(["spec"], ["metadata", "labels"])`."""
    out: FieldSet = {}
    for names in members:
        node: FieldSet = {}
        for name in reversed(list(names)):
            node = {field_element(name): node}
        out = union(out, node)
    return out


# --- text and clients' sets ------------------------------------------------------------------------------------------


def _value_text(value: Any) -> str:
    if isinstance(value, str):
        return _go_string(value, html=False)
    return msgspec.json.encode(value).decode()


def element_text(element: str) -> str:
    """As in conflict messages: `.spec`, `[name="nginx"]`, `[="blue"]`, `[3]`."""
    body = element[2:]
    if element[0] == "f":
        return "." + body
    if element[0] == "k":
        fields = msgspec.json.decode(body)
        return "[" + ",".join(f"{name}={_value_text(fields[name])}" for name in sorted(fields)) + "]"
    if element[0] == "v":
        return f"[={_value_text(msgspec.json.decode(body))}]"
    return f"[{body}]"


def path_text(path: Iterable[str]) -> str:
    return "".join(element_text(element) for element in path)


def _canonical_element(element: str) -> str | None:
    """The element as we would write it; None for a kind of element that is not known."""
    if len(element) < 2:
        raise BadFields("key must be 2 characters long:")
    if element[1] != ":":
        raise BadFields(f"missing colon: {element}")
    body = element[2:]
    try:
        if element[0] == "v":
            return value_element(msgspec.json.decode(body))
        if element[0] == "k":
            fields = msgspec.json.decode(body, type=dict[str, Any])
            return key_element(fields.items())
        if element[0] == "i":
            return f"i:{int(body)}"
    except ValueError as err:
        raise BadFields(str(err)) from err
    return element if element[0] == "f" else None


def canonical(fields: Mapping[str, Any] | None) -> FieldSet:
    """A set as a client wrote it, checked and brought to canonical form; raises `BadFields`."""
    out: FieldSet = {}
    if fields is None:
        return out
    if not isinstance(fields, Mapping):
        raise BadFields("fieldsV1 is not an object")
    for element, below in fields.items():
        if element == SELF:
            out[SELF] = {}
            continue
        known = _canonical_element(element)
        if known is not None:
            out[known] = canonical(below)
    if set(out) == {SELF}:
        return {}
    return in_order(out)
