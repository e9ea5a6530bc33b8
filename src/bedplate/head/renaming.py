"""Other names for objects: renaming one, or exchanging the names of two, with everything that refers to them.

In: a session, and objects by path. Out: staged edits of the objects and of all that name them, which a commit takes
together. A role, and whatever else is known by its name, keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bedplate.core import errors
from bedplate.head.changes import MASK
from bedplate.head.objects import Obj, Secret, Value
from bedplate.head.schema.entity import Field, Path, Schema
from bedplate.head.session import Session

__all__ = ["rename", "swap"]


def rename(session: Session, path: Path, name: str) -> Path:
    """Give an object another name; where it is now. Raises `NotFound`, `Invalid`, `AlreadyExists`."""
    key = _nameable(session, path, name)
    place = path[:-1]
    if key in session.children(place):
        raise errors.AlreadyExists(
            f"{session.submode(place).shell} has {key!r} already", hint="swap exchanges the names of two objects"
        )
    if len(path) == 2:
        _rename(session, path[0], {path[1]: key})
    else:
        obj = session.tree.get(path)
        session.put(path, None)
        session.put((*place, key), replace(obj, key=key))
    return (*place, key)


def swap(session: Session, path: Path, other: Path) -> None:
    """Exchange the names of two objects of one list. Raises `NotFound`, `Invalid`."""
    if path == other:
        raise errors.Invalid(f"{path[-1]} cannot be swapped with itself", hint="name two objects")
    first, second = session.tree.get(path), session.tree.get(other)
    if first.type != second.type:
        raise errors.Invalid(
            f"{first.type} {first.key} and {second.type} {second.key} cannot exchange their names",
            hint="swap takes two objects of one type",
        )
    _nameable(session, path, other[-1])
    if len(path) == 2:
        _rename(session, path[0], {path[1]: other[1], other[1]: path[1]})
    else:
        session.put(path, replace(second, key=path[-1]))
        session.put(other, replace(first, key=other[-1]))


def _nameable(session: Session, path: Path, name: str) -> str:
    """The key of a new name. Raises `Invalid` for an object whose name is not its own."""
    place, obj = path[:-1], session.tree.get(path)
    submode = session.submode(place)
    if submode.indexed or any(entity.names for entity in submode.of):
        raise errors.Invalid(
            f"{obj.key} of {submode.shell} cannot be renamed", hint="only objects with a name of their own can"
        )
    return submode.naming(name, session.schema.of(obj).word)[1]


def _rename(session: Session, mode: str, names: Mapping[str, str]) -> None:
    """Stage top-level objects under other names, and the others' references to them."""
    tree, schema = session.tree, session.schema
    referring = {(by, name) for by in schema.modes for key in names for name in tree.referrers(mode, key, by)}
    edited = {(by, name): _following(schema, tree.get((by, name)), mode, names) for by, name in referring}
    moved = {key: edited.pop((mode, key), tree.get((mode, key))) for key in names}
    for (by, name), obj in edited.items():
        session.put((by, name), obj)
    for key, new in names.items():
        session.put((mode, new), replace(moved[key], key=new, revision=0), is_other=_is_masked(moved[key]))
    for key in names:
        if key not in names.values():
            session.put((mode, key), None)
    session.tie([*edited, *((mode, key) for pair in names.items() for key in pair)], mode, names)


def _is_masked(obj: Obj) -> bool:
    """Whether an object has secrets that are not known here: it is not the same as another one that looks the same."""
    if any(isinstance(value, Secret) and value.reveal() == MASK for value in obj.values.values()):
        return True
    return any(_is_masked(child) for children in obj.children.values() for child in children.values())


def _following(schema: Schema, obj: Obj, mode: str, names: Mapping[str, str]) -> Obj:
    """The object with the new names wherever it, or something below it, refers to the old ones."""
    values: dict[str, Value] = dict(obj.values)
    for name, value in obj.values.items():
        row = schema.of(obj).attributes[name]
        if isinstance(row, Field) and row.target_mode == mode:
            targets = [names.get(key, key) for key in row.targets(value)]
            values[name] = row.kind.decode(targets) if isinstance(value, tuple) else "".join(targets)
    children = {
        submode: {key: _following(schema, child, mode, names) for key, child in inner.items()}
        for submode, inner in obj.children.items()
    }
    return replace(obj, values=values, children=children)
