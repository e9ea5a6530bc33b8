"""The tree of objects as one immutable value, with an index of who refers to whom.

In: objects, whole. Out: a new tree that shares everything else with the old one; lookups by path; the objects that
refer to one. Whether a tree is as it should be is asked in `validate`; what differs between two in `changes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import immutables

from bedplate.core import errors
from bedplate.head.objects import Obj
from bedplate.head.schema.entity import Path, Schema, typed

__all__ = ["Address", "Link", "Tree", "link_alike", "links", "replace_at"]

Address = tuple[str, str]
"""A top-level object: mode and key."""


class Link(NamedTuple):
    """An object refers to another one, or claims a value that must be unique (`mode` is then `=mode.field`)."""

    mode: str
    key: str
    through: str


_Target = tuple[str, str, str]
"""What is referred to (mode and key), and the mode of those who do."""
_Referrers = immutables.Map[_Target, immutables.Map[str, frozenset[str]]]


def links(schema: Schema, mode: str, obj: Obj, way: str = "") -> set[Link]:
    """Every reference of an object and of what lies below it; `through` is the way to the field, from `way` on."""
    references: set[Link] = set()
    for field in schema.of(obj).linking:
        name = field.attribute
        value = obj.values.get(name)
        if value:
            for key in field.targets(value):
                references.add(Link(field.target_mode, key, way + name))
            if field.unique:
                # Wherever it stands below the object: an address of an interface is one of the device.
                references.add(Link(f"={mode}.{name}", str(value).lower(), way + name))
    for submode, children in obj.children.items():
        for key, child in children.items():
            references |= links(schema, mode, child, f"{way}{submode}[{key}].")
    return references


def link_alike(schema: Schema, obj: Obj, other: Obj) -> bool:
    """Whether two objects have the same links for sure, by looking at nothing but the values that make them."""
    if obj.type != other.type or obj.children != other.children:
        return False
    values, others = obj.values, other.values
    for field in schema.of(obj).linking:  # not `all`: this is asked of every object of a large commit
        name = field.attribute
        if values.get(name) != others.get(name):
            return False
    return True


class Tree:
    """Every object at one revision, immutable.

    `steps` counts objects indexed since the process began: what a test of cost looks at.
    `derived` keeps what was worked out of this tree and belongs to no single node, such as a cluster's members; it is
    gone with the tree. The sorted keys of a mode are kept for all trees in which they are the same."""

    __slots__ = ("_keys", "_modes", "_referrers", "derived", "schema")
    steps = 0

    def __init__(self, schema: Schema, objects: Iterable[tuple[str, Obj]] = ()) -> None:
        modes: dict[str, dict[str, Obj]] = {mode: {} for mode in schema.modes}
        index: dict[tuple[str, str, str], dict[str, set[str]]] = {}
        for mode, obj in objects:
            modes[mode][obj.key] = obj
            Tree.steps += 1
            for link in links(schema, mode, obj):
                index.setdefault((link.mode, link.key, mode), {}).setdefault(obj.key, set()).add(link.through)
        self.schema = schema
        self.derived: dict[object, Any] = {}
        self._keys: dict[str, Sequence[str]] = {}
        self._modes = {mode: immutables.Map(by_key) for mode, by_key in modes.items()}
        self._referrers: _Referrers = immutables.Map(
            (target, immutables.Map((key, frozenset(through)) for key, through in referrers.items()))
            for target, referrers in index.items()
        )

    def mode(self, name: str) -> Mapping[str, Obj]:
        """The objects of a mode by key."""
        return self._modes[name]

    def keys(self, mode: str) -> Sequence[str]:
        """The keys of a mode, sorted."""
        keys = self._keys.get(mode)
        if keys is None:
            keys = self._keys[mode] = sorted(self._modes[mode])
        return keys

    def find(self, mode: str, key: str) -> Obj | None:
        return self._modes[mode].get(key)

    def objects(self) -> Iterator[tuple[str, Obj]]:
        """All top-level objects, sorted."""
        for mode in sorted(self._modes):
            objects = self._modes[mode]
            for key in self.keys(mode):
                yield mode, objects[key]

    def get(self, path: Path) -> Obj:
        """The object at a path of (mode, key, submode, key, ...). Raises `NotFound` naming what is missing."""
        mode, key = path[0], path[1]
        obj = self.find(mode, key)
        if obj is None:
            raise errors.NotFound(f"{mode} has no object {key!r}", hint=f"{mode} list shows the existing objects")
        where = f"{mode}[{key}]"
        for submode, key in zip(path[2::2], path[3::2], strict=True):
            child = obj.below(submode).get(key)
            if child is None:
                raise errors.NotFound(f"{where} has no {submode} {key!r}", hint="list shows the existing objects")
            obj, where = child, f"{where}->{submode}[{key}]"
        return obj

    def with_object(self, mode: str, key: str, obj: Obj | None) -> Tree:
        """With that object in place of what is there; None takes it away."""
        return self.with_objects(((mode, key, obj),))

    def with_objects(self, objects: Iterable[tuple[str, str, Obj | None]]) -> Tree:
        """With those objects, each by mode and key, in place of what is there."""
        modes: dict[str, immutables.MapMutation[str, Obj]] = {}
        index: immutables.MapMutation[_Target, immutables.Map[str, frozenset[str]]] | None = None
        steps, unsorted = 0, set()
        for mode, key, obj in objects:
            mutation = modes.get(mode)
            if mutation is None:
                mutation = modes[mode] = self._modes[mode].mutate()
            before = mutation.get(key)
            if before is obj:
                continue
            steps += 1
            if obj is None:
                del mutation[key]
            else:
                mutation[key] = obj
            if before is None or obj is None:
                unsorted.add(mode)
            elif link_alike(self.schema, before, obj):
                continue
            if index is None:
                index = self._referrers.mutate()
            self._link(index, mode, key, before, obj)
        if not steps:
            return self
        Tree.steps += steps
        tree = Tree.__new__(Tree)
        tree.schema = self.schema
        tree.derived = {}
        tree._keys = (
            {name: keys for name, keys in self._keys.items() if name not in unsorted} if unsorted else self._keys
        )
        tree._modes = {**self._modes, **{mode: mutation.finish() for mode, mutation in modes.items()}}
        tree._referrers = self._referrers if index is None else index.finish()
        return tree

    def _link(
        self,
        index: immutables.MapMutation[_Target, immutables.Map[str, frozenset[str]]],
        mode: str,
        key: str,
        before: Obj | None,
        obj: Obj | None,
    ) -> None:
        """Follow in the index what an object refers to instead."""
        old = links(self.schema, mode, before) if before is not None else set()
        new = links(self.schema, mode, obj) if obj is not None else set()
        ways: dict[tuple[str, str], set[str]] = {}
        for link in new:
            ways.setdefault((link.mode, link.key), set()).add(link.through)
        for target in {(link.mode, link.key) for link in old ^ new}:
            through, place = frozenset(ways.get(target, ())), (*target, mode)
            referrers: immutables.Map[str, frozenset[str]] = index.get(place, immutables.Map())
            if through:
                index[place] = referrers.set(key, through)
            elif key in referrers:
                rest = referrers.delete(key)
                if rest:
                    index[place] = rest
                else:
                    del index[place]

    def referrers(self, mode: str, key: str, by: str) -> Mapping[str, frozenset[str]]:
        """The objects of mode `by` that refer to an object, each with the ways to the fields that do."""
        return self._referrers.get((mode, key, by), _NOBODY)

    def users(self, mode: str, key: str) -> list[str]:
        """Who refers to an object, in words: for the one who wants it removed."""
        return [
            f"{by}[{name}] ({typed(way)})"
            for by in self.schema.modes
            for name, ways in sorted(self.referrers(mode, key, by).items())
            for way in sorted(ways)
        ]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and all(self._modes[mode] == other._modes[mode] for mode in self._modes)

    __hash__ = None  # type: ignore[assignment]


_NOBODY: Mapping[str, frozenset[str]] = {}


def replace_at(obj: Obj, rest: Path, new: Obj | None) -> Obj | None:
    """The top-level object with another one at the place `rest` below it."""
    if not rest:
        return new
    submode, key = rest[0], rest[1]
    if len(rest) == 2:
        return obj.with_child(submode, key, new)
    return obj.with_child(submode, key, replace_at(obj.below(submode)[key], rest[2:], new))
