"""The local copy of one resource: what controllers read instead of asking the server.

In: whole lists and single changes from a `Reflector`. Out: look-ups by key and by index, and calls of handlers for
each change. One owner writes (the reflector); readers get frozen models and never wait. A relist swaps everything at
once: no reader sees half of it, and handlers hear only of what differs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from bedplate.api import identity

__all__ = ["Cache", "Change", "Handler", "Index"]

T = TypeVar("T")
Index = Callable[[Any], Iterable[str]]
"""The values under which an object is found."""


class Change(NamedTuple, Generic[T]):
    """What happened to one object: `old` is None when it is new, `new` is None when it is gone."""

    key: str
    old: T | None
    new: T | None


Handler = Callable[[Change[Any]], None]


class Cache(Generic[T]):
    """Objects by key, with indexes. `synced` is set once the first complete list is in."""

    def __init__(self, indexes: Mapping[str, Index] | None = None) -> None:
        self.synced = asyncio.Event()
        self.resource_version = ""
        self._objects: dict[str, T] = {}
        self._functions = dict(indexes or {})
        self._indexes: dict[str, dict[str, set[str]]] = {name: {} for name in self._functions}
        self._handlers: list[Handler] = []

    # Reading

    def get(self, key: str) -> T | None:
        """The object of that key (`namespace/name` or `name`), as last heard of."""
        return self._objects.get(key)

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: object) -> bool:
        return key in self._objects

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._objects.values()))

    def keys(self) -> list[str]:
        return list(self._objects)

    def by_index(self, name: str, value: str) -> list[T]:
        """All objects for which the index function gave `value`."""
        return [self._objects[key] for key in sorted(self._indexes[name].get(value, ()))]

    def on_change(self, handler: Handler) -> None:
        """Call `handler` for every change from now on; for objects already here at once, as if they were new."""
        self._handlers.append(handler)
        for key, obj in list(self._objects.items()):
            handler(Change(key, None, obj))

    def resync(self) -> None:
        """Tell every handler of every object again, as unchanged: a second look at what no event speaks of."""
        for key, obj in list(self._objects.items()):
            self._tell(Change(key, obj, obj))

    def add_indexes(self, indexes: Mapping[str, Index]) -> None:
        """Find objects by more values; an index of the same name must be of the same function."""
        for name, function in indexes.items():
            if self._functions.setdefault(name, function) is not function:
                raise ValueError(f"the cache has another index named {name!r}")
            if name not in self._indexes:
                self._indexes[name] = {}
                for key, obj in self._objects.items():
                    self._index(name, key, obj)

    # Writing: the reflector only

    def replace(self, items: Iterable[T], resource_version: str) -> None:
        """Swap in a complete list. Handlers hear of what is new, different (by resourceVersion) or gone."""
        fresh = {identity.key_of(item): item for item in items}
        stale, self._objects = self._objects, fresh
        self._indexes = {name: {} for name in self._functions}
        for name in self._functions:
            for key, obj in fresh.items():
                self._index(name, key, obj)
        self.resource_version = resource_version
        self.synced.set()
        for key, old in stale.items():
            if key not in fresh:
                self._tell(Change(key, old, None))
        for key, new in fresh.items():
            before = stale.get(key)
            if before is None or _version(before) != _version(new):
                self._tell(Change(key, before, new))

    def put(self, obj: T, resource_version: str) -> None:
        """Take in an added or modified object."""
        key = identity.key_of(obj)
        old = self._objects.get(key)
        if old is not None:
            self._unindex(key, old)
        self._objects[key] = obj
        for name in self._functions:
            self._index(name, key, obj)
        self.resource_version = resource_version
        self._tell(Change(key, old, obj))

    def remove(self, obj: T, resource_version: str) -> None:
        """Take in a deletion; the last state the server sent is what handlers see as `old`."""
        key = identity.key_of(obj)
        old = self._objects.pop(key, None)
        if old is not None:
            self._unindex(key, old)
        self.resource_version = resource_version
        self._tell(Change(key, obj, None))

    def _index(self, name: str, key: str, obj: T) -> None:
        for value in self._functions[name](obj):
            self._indexes[name].setdefault(value, set()).add(key)

    def _unindex(self, key: str, obj: T) -> None:
        for name, function in self._functions.items():
            index = self._indexes[name]
            for value in function(obj):
                keys = index.get(value)
                if keys is not None:
                    keys.discard(key)
                    if not keys:
                        del index[value]

    def _tell(self, change: Change[T]) -> None:
        for handler in self._handlers:
            handler(change)


def _version(obj: Any) -> tuple[str, str]:
    # The uid too: an object that was deleted and created again between two lists is another one.
    return identity.uid_of(obj), identity.resource_version_of(obj)
