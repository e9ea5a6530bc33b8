"""Staged edits over a tree: what somebody has typed and not committed.

In: a tree (the head's, at some revision) and edits by path. Out: the tree as it would be, which levels carry a star,
the changes, and the edits a commit takes (`Edit`: the object as it was when the first edit met it, and as it should
be). Nothing here waits or writes; the head's service commits.

A path is (mode, key, submode, key, ...); a place in a list ends with the list: (mode,) or (mode, key, submode).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from bedplate.api.headapi import EXTRA
from bedplate.core import errors
from bedplate.head import changes
from bedplate.head.objects import Obj, Secret
from bedplate.head.schema import codec
from bedplate.head.schema.entity import Entity, Field, Path, Row, Schema, Submode, shell_name
from bedplate.head.tree import Address, Tree, replace_at

__all__ = ["Edit", "Session"]


class Edit(NamedTuple):
    """One top-level object: as it was, and as it should be; None is absence. `was` is the name it is known by so far:
    its secrets come from there, once the commit gives that name up."""

    mode: str
    key: str
    base: Obj | None
    new: Obj | None
    was: str = ""


class Session:
    """Staged edits over a tree, the head's (`head`). `tree` is what the session sees: that with its own edits in it."""

    def __init__(self, tree: Tree) -> None:
        self.head = tree
        self._bases: dict[Address, Obj | None] = {}
        self._highest: dict[Path, int] = {}
        self._was: dict[Address, str] = {}
        self._ties: list[frozenset[Address]] = []
        self.tree = tree
        self.schema = tree.schema

    # What is there

    def submode(self, place: Path) -> Submode:
        """The declaration of a list. Raises `NotFound`."""
        if len(place) == 1:
            return self.schema.mode(place[0])
        return self.schema.submode(self.tree.get(place[:-1]), place[-1])

    def children(self, place: Path) -> Mapping[str, Obj]:
        """The objects of a list, by key."""
        submode = self.submode(place)
        if len(place) == 1:
            return self.tree.mode(submode.shell)
        return self.tree.get(place[:-1]).below(submode.attribute)

    def find(self, place: Path, name: str) -> Path:
        """The path of an object in a list; where names decide types, case does not matter. Raises `NotFound`."""
        children, submode = self.children(place), self.submode(place)
        if name in children:
            return (*place, name)
        same = [key for key in children if key.lower() == name.lower()] if any(e.names for e in submode.of) else []
        if len(same) == 1:
            return (*place, same[0])
        raise errors.NotFound(f"{submode.shell} has no {name!r}", hint=_close(name, children))

    def entity(self, path: Path) -> type[Entity]:
        return self.schema.of(self.tree.get(path))

    # Edits

    def add(self, place: Path, name: str, word: str = "") -> Path:
        """A new object in a list, with defaults. Raises `AlreadyExists`, `Invalid`."""
        submode = self.submode(place)
        if submode.indexed:
            raise errors.Invalid(f"{submode.shell} is a list without names", hint="give add the values, in order")
        entity, key = submode.naming(name, word)
        present = self.children(place).get(key)
        if present is not None and present != self._brought(place, key):
            raise errors.AlreadyExists(f"{submode.shell} has {key!r} already", hint=f"use {key}")
        return self._put((*place, key), entity.made(key))

    def _brought(self, place: Path, key: str) -> Obj | None:
        """The object as its owner came with it: whoever adds one of that name wants to say what is in it."""
        if len(place) == 1:
            return None
        owner = self.tree.get(place[:-1])
        return self.schema.of(owner).made(owner.key).below(place[-1]).get(key)

    def add_indexed(self, place: Path, words: Iterable[str] = ()) -> Path:
        """A new object at the end of an indexed list, its first fields from words; its index was never used."""
        submode = self.submode(place)
        if not submode.indexed:
            raise errors.Invalid(f"a new object in {submode.shell} needs a name", hint="write it after add")
        entity, words = submode.of[0], list(words)
        if len(words) > len(entity.positional):
            takes = " ".join(entity.attributes[name].shell for name in entity.positional)
            raise errors.Invalid(f"too many values for {submode.shell}", hint=f"add {takes}")
        used = max((int(key) for key in self.children(place)), default=-1)
        base = self._base_children(place)
        highest = max(used, self._highest.get(place, -1), *(int(key) for key in base), -1)
        obj = Obj(entity.type_name(), str(highest + 1))
        for name, word in zip(entity.positional, words, strict=False):
            row = entity.attributes[name]
            assert isinstance(row, Field)
            obj = obj.with_value(name, row.normal(row.parse(word)))
        faults = entity.problems(obj, self.tree.find) if words else ()
        if faults:
            takes = " ".join(entity.attributes[name].shell for name in entity.positional)
            raise errors.Invalid(f"nothing was added to {submode.shell}", problems=faults, hint=f"add {takes}")
        self._highest[place] = highest + 1
        return self._put((*place, obj.key), obj)

    def remove(self, path: Path) -> None:
        """Take an object away. Raises `NotFound`."""
        self.tree.get(path)
        if len(path) > 2 and self.submode(path[:-1]).indexed:
            place = path[:-1]
            self._highest[place] = max(self._highest.get(place, -1), int(path[-1]))
        self._put(path, None)

    def set(self, path: Path, parameter: str, text: str) -> str:
        """Give a parameter the value in a text; what the setter should know about it, or nothing. Raises `Invalid`."""
        field = self.field(path, parameter)
        self._put(path, self.tree.get(path).with_value(field.attribute, field.normal(field.parse(text))))
        return field.notice

    def append(self, path: Path, parameter: str, text: str) -> None:
        """Add to a list; what it has already stays where it is."""
        field, items, more = self._lists(path, parameter, text)
        self._put(path, self._with_list(path, field, dict.fromkeys((*items, *more))))

    def remove_from(self, path: Path, parameter: str, text: str) -> None:
        """Take entries out of a list. Raises `NotFound` for one that is not in it."""
        field, items, less = self._lists(path, parameter, text)
        for item in less:
            if item not in items:
                raise errors.NotFound(
                    f"{field.shell}: {item!r} is not in it", hint=f"get {field.shell} shows the present values"
                )
        self._put(path, self._with_list(path, field, (item for item in items if item not in less)))

    def clear(self, path: Path, parameter: str) -> None:
        """Back to the default, or to what is inherited."""
        self._put(path, self.tree.get(path).with_value(self.field(path, parameter).attribute, None))

    def set_extra(self, path: Path, name: str, text: str | None) -> None:
        """A free parameter; None takes it away. Raises `Invalid` for a name that is a row's."""
        obj = self.tree.get(path)
        is_new = text is not None and name not in obj.extras
        if not name or (is_new and (re.search("[ ,=]", name) or not re.fullmatch(EXTRA, name))):
            raise errors.Invalid(
                f"{name!r} cannot be the name of an extra parameter", hint="write it without spaces, commas and ="
            )
        if text is not None and shell_name(name) in {row.shell for row in self.schema.of(obj).rows}:
            raise errors.Invalid(f"{name} is a parameter of {obj.type}", hint=f"set {shell_name(name)} without -e")
        if text is None and name not in obj.extras:
            raise errors.NotFound(f"{obj.type} {obj.key} has no extra parameter {name!r}", hint="show lists them first")
        self._put(path, obj.with_extra(name, text))

    def clone(self, path: Path, name: str) -> Path:
        """A copy under another name: all but secrets and what must be unique."""
        place, obj = path[:-1], self.tree.get(path)
        submode = self.submode(place)
        if submode.indexed:
            raise errors.Invalid(f"{submode.shell} is a list without names", hint="add another one")
        entity, key = submode.naming(name, self.schema.of(obj).word)
        if entity.type_name() != obj.type:
            raise errors.Invalid(f"{obj.type} cannot be called {name!r}", hint=f"its name is {obj.key}")
        if key in self.children(place):
            raise errors.AlreadyExists(f"{submode.shell} has {key!r} already", hint="clone it under another name")
        return self._put((*place, key), replace(_copied(self.schema, obj), key=key, revision=0))

    def put(self, path: Path, obj: Obj | None, *, is_other: bool = False) -> None:
        """Stage an object whole, made elsewhere from data that was checked; one that is another's also if it looks the
        same as the present one."""
        self._put(path, obj, is_other=is_other)

    def tie(self, places: Iterable[Address], mode: str, names: Mapping[str, str]) -> None:
        """Let edits be committed and dropped together, and say which objects of a mode got another name."""
        self._ties.append(frozenset(places))
        before = dict(self._was)
        for old in names:
            self._was.pop((mode, old), None)
        for old, new in names.items():
            origin = before.get((mode, old), old)
            if origin != new:
                self._was[mode, new] = origin
            else:
                self._was.pop((mode, new), None)

    def stage(self, staged: Iterable[changes.Change], unseal: codec.Unseal | None) -> None:
        """Stage changes made elsewhere: an undo, an import."""
        staged = list(staged)
        after = changes.apply(self.tree, staged, unseal)
        for mode, key in dict.fromkeys(map(changes.address, staged)):
            self._put((mode, key), after.find(mode, key))

    def field(self, path: Path, parameter: str) -> Field:
        """A row that can be set. Raises `NotFound`, `Invalid`."""
        row: Row = self.entity(path).row(parameter)
        if isinstance(row, Submode):
            raise errors.Invalid(f"{row.shell} is a submode", hint=f"enter it with {row.shell}")
        if not isinstance(row, Field) or row.readonly:
            raise errors.Invalid(f"{row.shell} cannot be set", hint=row.doc)
        return row

    # Stars, changes, commits

    def is_changed(self, path: Path) -> bool:
        """Whether the object, or the list, at a path differs from the head's; its star."""
        if len(path) == 1:
            return any(mode == path[0] for mode, _ in self._bases)
        if (path[0], path[1]) not in self._bases:
            return False
        if len(path) % 2:
            return self._base_children(path) != self.children(path)
        return _at(self._bases[path[0], path[1]], path[2:]) != _at(self.tree.find(path[0], path[1]), path[2:])

    def edits(self, scope: Path = ()) -> list[Edit]:
        """What a commit takes, below the mode or the top-level object of `scope`; indexed lists are renumbered."""
        edits = []
        tied = self._tied(frozenset(place for place in self._bases if scope[:2] in ((), place[:1], place)))
        for mode, key in sorted(self._bases):
            if (mode, key) in tied:
                new = self.tree.find(mode, key)
                tidy = None if new is None else _renumbered(self.schema, new)
                was = self._was.get((mode, key), "") if tidy is not None else ""
                edits.append(Edit(mode, key, self._bases[mode, key], tidy, was))
        return edits

    def _tied(self, places: frozenset[Address]) -> frozenset[Address]:
        """The places, and those that go with them."""
        more = places.union(*(tie for tie in self._ties if not places.isdisjoint(tie)))
        return places if more == places else self._tied(more)

    def staged(self, scope: Path = ()) -> list[changes.Change]:
        """What is staged, for people: secrets are stars."""
        return self._changes(scope, lambda secret: changes.MASK)

    def sealed(self, seal: codec.Seal, scope: Path = ()) -> list[changes.Change]:
        """What is staged, for storage: secrets as `seal` says."""
        return self._changes(scope, seal)

    def _changes(self, scope: Path, seal: Callable[[Secret], object]) -> list[changes.Change]:
        differences: list[changes.Change] = []
        for edit in self.edits(scope):
            differences.extend(changes.diff(self.schema, (edit.mode, edit.key), edit.base, edit.new, seal))
        return differences

    def drop(self, scope: Path = ()) -> None:
        """Forget what is staged below the scope (`refresh`), or everything (`revert`)."""
        self._forget([(edit.mode, edit.key) for edit in self.edits(scope)])

    def dump(self) -> dict[str, Any]:
        """What is staged as JSON, secrets in clear: for somebody who seals it."""
        staged = []
        for (mode, key), base in sorted(self._bases.items()):
            new = self.tree.find(mode, key)
            staged.append(
                {
                    "mode": mode,
                    "key": key,
                    "revision": None if base is None else base.revision,
                    "base": None if base is None else codec.encode(self.schema, base, codec.plain),
                    "new": None if new is None else codec.encode(self.schema, new, codec.plain),
                    "was": self._was.get((mode, key), ""),
                }
            )
        return {"staged": staged, "ties": [sorted(tie) for tie in self._ties]}

    @classmethod
    def restored(cls, head: Tree, dump: Mapping[str, Any]) -> Session:
        """A session over a tree with what another one had staged. Raises `Invalid`."""
        session = cls(head)
        for item in dump["staged"]:
            mode, key, revision = item["mode"], item["key"], item["revision"]
            submode = head.schema.mode(mode)
            base, new = (
                None if item[part] is None else codec.decode(head.schema, submode, key, item[part], Secret)
                for part in ("base", "new")
            )
            session._bases[mode, key] = None if base is None else replace(base, revision=revision)
            if new is not None:
                new = replace(new, revision=revision or 0)
            session.tree = session.tree.with_object(mode, key, new)
            if item["was"]:
                session._was[mode, key] = item["was"]
        session._ties = [frozenset((mode, key) for mode, key in tie) for tie in dump["ties"]]
        return session

    def follow(self, head: Tree, committed: Iterable[Edit] = ()) -> None:
        """Take the head's newer tree; what is still staged stays staged, over the object it was typed for."""
        self.head = head
        for (mode, key), base in self._bases.items():
            # Of another history, as after a restored backup: the number alone would pass for that of the present one.
            present = head.find(mode, key)
            if base is None or present is None or base is present or base.revision != present.revision:
                continue
            if base != present:
                self._bases[mode, key] = replace(base, revision=0)
        for edit in committed:
            self._bases.pop((edit.mode, edit.key), None)
            self._forget_indexes((edit.mode, edit.key))
        self.tree = head.with_objects([(mode, key, self.tree.find(mode, key)) for mode, key in self._bases])

    def _forget(self, places: list[Address]) -> None:
        for place in places:
            del self._bases[place]
            self._forget_indexes(place)
        self.tree = self.tree.with_objects((mode, key, self.head.find(mode, key)) for mode, key in places)

    def _forget_indexes(self, place: Address) -> None:
        self._was.pop(place, None)
        self._ties = [tie for tie in self._ties if place not in tie] if self._ties else self._ties
        self._highest = {path: index for path, index in self._highest.items() if path[:2] != place}

    def _put(self, path: Path, obj: Obj | None, *, is_other: bool = False) -> Path:
        mode, key = path[0], path[1]
        top = self.tree.find(mode, key)
        if len(path) == 2:
            new = obj
        else:
            assert top is not None, "the caller looked it up"
            new = replace_at(top, path[2:], obj)
        base = self._bases.setdefault((mode, key), top)
        if new is not None and base is not None:
            new = new.at(base.revision)
        if new == base and not is_other:
            del self._bases[mode, key]
            self._forget_indexes((mode, key))
            new = self.head.find(mode, key)
        self.tree = self.tree.with_object(mode, key, new)
        return path

    def _base_children(self, place: Path) -> Mapping[str, Obj]:
        top = self._bases.get((place[0], place[1]), self.head.find(place[0], place[1]))
        owner = _at(top, place[2:-1])
        return owner.below(place[-1]) if owner is not None else {}

    def _lists(self, path: Path, parameter: str, text: str) -> tuple[Field, tuple[str, ...], tuple[str, ...]]:
        field = self.field(path, parameter)
        items, given = field.value(self.tree.get(path)), field.parse(text)
        if not isinstance(items, tuple) or not isinstance(given, tuple):
            raise errors.Invalid(f"{field.shell} takes one value", hint=f"set {field.shell}")
        return field, items, given

    def _with_list(self, path: Path, field: Field, items: Iterable[str]) -> Obj:
        return self.tree.get(path).with_value(field.attribute, field.normal(field.kind.decode(list(items))))


def _at(obj: Obj | None, rest: Path) -> Obj | None:
    for submode, key in zip(rest[::2], rest[1::2], strict=True):
        obj = obj.below(submode).get(key) if obj is not None else None
    return obj


def _renumbered(schema: Schema, obj: Obj) -> Obj:
    """With the indexes of every indexed list counted from 0."""
    for name, children in obj.children.items():
        submode = schema.of(obj).attributes[name]
        if isinstance(submode, Submode) and submode.indexed:
            keys = sorted(children, key=int)
            tidy = {str(i): replace(_renumbered(schema, children[key]), key=str(i)) for i, key in enumerate(keys)}
        else:
            tidy = {key: _renumbered(schema, child) for key, child in children.items()}
        if tidy != children:
            obj = obj.with_children(name, tidy)
    return obj


def _copied(schema: Schema, obj: Obj) -> Obj:
    rows = schema.of(obj).attributes
    kept = {}
    for name, value in obj.values.items():
        row = rows[name]
        if isinstance(row, Field) and not row.kind.secret and not row.unique and name != "revision":
            kept[name] = value
    children = {
        submode: {key: _copied(schema, child) for key, child in objects.items()}
        for submode, objects in obj.children.items()
    }
    return replace(obj, values=kept, children=children)


def _unpadded(name: str) -> str:
    return re.sub(r"(?<![0-9])0+(?=[0-9])", "", name)


def _close(name: str, names: Iterable[str]) -> str:
    import difflib  # only ever needed after a slip

    known = {known.lower(): known for known in names}
    # Who counts with another number of zeros means that node, and not one of the thousands that look more alike.
    same = [each for each in known if _unpadded(each) == _unpadded(name.lower())]
    close = same or difflib.get_close_matches(name.lower(), list(known), n=1)
    return f"did you mean {known[close[0]]}?" if close else "list shows the existing objects"
