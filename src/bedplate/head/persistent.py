"""A mapping that is never changed: a new one shares all but a few parts with the old one.

In: keys that can be hashed. Out: mappings; setting one of n keys costs about log32(n) small copies, so that a commit in
a tree of 10,000 objects does not copy 10,000 of anything. The order of iteration means nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

__all__ = ["Pmap"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_BITS = 5
_WAYS = 1 << _BITS
_LEAF = 16
_DEEPEST = 60
# A node is a leaf (a dict of at most _LEAF pairs, more only where hashes collide) or a branch (a tuple of _WAYS nodes).
_Node = Any


class Pmap(Mapping[K, V], Generic[K, V]):
    """See the module. Equal to any mapping with the same pairs."""

    __slots__ = ("_count", "_root")

    def __init__(self, pairs: Iterable[tuple[K, V]] = ()) -> None:
        held = dict(pairs)
        self._root: _Node = _build(held, 0)
        self._count = len(held)

    @classmethod
    def _made(cls, root: _Node, count: int) -> Pmap[K, V]:
        made: Pmap[K, V] = cls.__new__(cls)
        made._root, made._count = root, count
        return made

    def __getitem__(self, key: K) -> V:
        node, code = self._root, hash(key)
        while type(node) is tuple:
            node = node[code & (_WAYS - 1)]
            code >>= _BITS
        found: V = node[key]
        return found

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[K]:
        stack = [self._root]
        while stack:
            node = stack.pop()
            if type(node) is tuple:
                stack.extend(node)
            else:
                yield from node

    def set(self, key: K, value: V) -> Pmap[K, V]:
        """With that pair."""
        root = _set(self._root, hash(key), 0, key, value)
        return self._made(root, self._count + (key not in self))

    def drop(self, key: K) -> Pmap[K, V]:
        """Without that key; the same mapping when it is not there."""
        if key not in self:
            return self
        return self._made(_drop(self._root, hash(key), key), self._count - 1)


def _build(pairs: dict[Any, Any], depth: int) -> _Node:
    if len(pairs) <= _LEAF or depth >= _DEEPEST:
        return pairs
    ways: list[dict[Any, Any]] = [{} for _ in range(_WAYS)]
    for key, value in pairs.items():
        ways[(hash(key) >> depth) & (_WAYS - 1)][key] = value
    return tuple(_build(way, depth + _BITS) for way in ways)


def _set(node: _Node, code: int, depth: int, key: Any, value: Any) -> _Node:
    if type(node) is tuple:
        way = code & (_WAYS - 1)
        changed = _set(node[way], code >> _BITS, depth + _BITS, key, value)
        return (*node[:way], changed, *node[way + 1 :])
    return _build({**node, key: value}, depth)


def _drop(node: _Node, code: int, key: Any) -> _Node:
    if type(node) is tuple:
        way = code & (_WAYS - 1)
        return (*node[:way], _drop(node[way], code >> _BITS, key), *node[way + 1 :])
    return {held: value for held, value in node.items() if held != key}
