"""How deep and how large a decoded body may be.

In: bodies as sent and as decoded. Out: the same, or `ValueError`. Everything that walks objects later does so by
recursion, so depth is refused here, once, for all of it. Text of a few bytes that YAML's aliases blow up to gigabytes
is refused too, and so is what JSON cannot say (keys that are not strings, values outside JSON, objects within
themselves).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

__all__ = ["MAX_DEPTH", "check_events", "checked", "checked_tree"]

MAX_DEPTH = 200
MAX_NODES = 1_000_000
_TOO_DEEP = f"exceeded max depth of {MAX_DEPTH}"


def checked(raw: bytes, decoded: Any) -> Any:
    """A value decoded from JSON. Looked at only when its text has enough brackets to be too deep."""
    if raw.count(b"{") + raw.count(b"[") <= MAX_DEPTH:
        return decoded
    level: list[Any] = [decoded]
    for _ in range(MAX_DEPTH + 1):
        level = [
            member
            for holder in level
            for member in (holder.values() if type(holder) is dict else holder)
            if type(member) is dict or type(member) is list
        ]
        if not level:
            return decoded
    raise ValueError(_TOO_DEEP)


def check_events(events: Iterable[Any]) -> None:
    """Refuse deep YAML before it is put together, which takes recursion and, for each level, all levels before."""
    depth = 0
    for event in events:
        name = type(event).__name__
        if name in ("MappingStartEvent", "SequenceStartEvent"):
            depth += 1
            if depth > MAX_DEPTH:
                raise ValueError(_TOO_DEEP)
        elif name in ("MappingEndEvent", "SequenceEndEvent"):
            depth -= 1


def checked_tree(decoded: Any) -> Any:
    """A value made from YAML, in which aliases may repeat parts, or contain what they are part of."""
    sizes: dict[int, int] = {}
    _size(decoded, sizes, set())
    return decoded


def _size(node: Any, sizes: dict[int, int], above: set[int]) -> int:
    """How many nodes there are once aliases are written out; `above` are the holders of this one."""
    if isinstance(node, (dict, list)):
        known = sizes.get(id(node))
        if known is not None:
            return known
        if id(node) in above:
            raise ValueError("an alias contains itself")
        if len(above) > MAX_DEPTH:
            raise ValueError(_TOO_DEEP)
        above.add(id(node))
        if isinstance(node, dict) and not all(isinstance(key, str) for key in node):
            raise ValueError("keys must be text")
        size = 1 + sum(_size(member, sizes, above) for member in (node.values() if isinstance(node, dict) else node))
        above.discard(id(node))
        if size > MAX_NODES:
            raise ValueError("document contains excessive aliasing")
        sizes[id(node)] = size
        return size
    if node is None or isinstance(node, (str, bool, int)) or (isinstance(node, float) and math.isfinite(node)):
        return 1
    raise ValueError(f"a value of type {type(node).__name__} cannot be written as JSON")
