"""What differs between two objects or trees, as changes that can be applied, reversed and kept.

In: objects before and after. Out: `Change(path, old, new)`: a field's value, an extra, an indexed list, or a whole
object that came or went; absent is None. Values are as JSON carries them, secrets as their seal says, so that a
change can be stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bedplate.api.headapi import MASK, Change
from bedplate.core import errors
from bedplate.head.objects import Obj, Secret, Value
from bedplate.head.schema import codec
from bedplate.head.schema.entity import Field, Path, Schema, Submode
from bedplate.head.tree import Address, Tree

__all__ = ["EXTRA", "MASK", "Change", "address", "apply", "diff", "masked", "meet", "reverse"]

EXTRA = "extra:"
"""What an extra's name begins with in a path."""


def address(change: Change) -> Address:
    """The top-level object a change belongs to."""
    return change.path[0], change.path[1]


def reverse(changes: Iterable[Change]) -> list[Change]:
    """What takes them back, last first."""
    return [Change(change.path, change.new, change.old) for change in reversed(list(changes))]


def meet(path: Path, other: Path) -> bool:
    """Whether two paths name the same thing, or one lies below the other."""
    shorter = min(len(path), len(other))
    return path[:shorter] == other[:shorter]


def diff(schema: Schema, path: Path, old: Obj | None, new: Obj | None, seal: codec.Seal) -> list[Change]:
    """What makes the new object at a path of the old one."""
    if old is new:
        return []
    if old is None or new is None or old.type != new.type:
        whole = [None if obj is None else codec.encode(schema, obj, seal) for obj in (old, new)]
        return [Change(path, whole[0], whole[1])]
    changes = []
    for name in sorted(_differing(old.values, new.values)):
        before, after = old.values.get(name), new.values.get(name)
        encoded = [None if value is None else codec.encode_value(value, seal) for value in (before, after)]
        changes.append(Change((*path, name), encoded[0], encoded[1]))
    if old.extras or new.extras:
        changes.extend(
            Change((*path, EXTRA + name), old.extras.get(name), new.extras.get(name))
            for name in sorted(_differing(old.extras, new.extras))
        )
    if old.children or new.children:
        for submode in schema.of(new).submodes:
            if submode.attribute in old.children or submode.attribute in new.children:
                changes.extend(_children(schema, submode, path, old, new, seal))
    return changes


def _differing(old: Mapping[str, Value], new: Mapping[str, Value]) -> list[str]:
    """The names whose values differ, also where 1 stands for yes."""
    names = [name for name, value in new.items() if (was := old.get(name)) != value or was.__class__ != value.__class__]
    return names if old.keys() <= new.keys() else [*names, *(name for name in old if name not in new)]


def _children(schema: Schema, submode: Submode, path: Path, old: Obj, new: Obj, seal: codec.Seal) -> list[Change]:
    before, after = old.below(submode.attribute), new.below(submode.attribute)
    if before is after:
        return []
    place = (*path, submode.attribute)
    if submode.indexed:
        lists = [codec.encode_children(schema, submode, children, seal) or None for children in (before, after)]
        return [Change(place, lists[0], lists[1])] if lists[0] != lists[1] else []
    changes: list[Change] = []
    for key in sorted(set(before) | set(after)):
        changes.extend(diff(schema, (*place, key), before.get(key), after.get(key), seal))
    return changes


def apply(tree: Tree, changes: Iterable[Change], unseal: codec.Unseal | None, revision: int = 0) -> Tree:
    """The tree after the changes; what they say was there before is not compared. Raises `NotFound`, `Invalid`."""
    touched: dict[Address, Obj | None] = {}
    for change in changes:
        place = address(change)
        current = touched[place] if place in touched else tree.find(*place)
        submode = tree.schema.mode(place[0])
        if len(change.path) == 2:
            updated = None if change.new is None else codec.decode(tree.schema, submode, place[1], change.new, unseal)
        elif current is None:
            raise errors.NotFound(f"{place[0]}[{place[1]}] does not exist", hint="history shows who removed it")
        else:
            updated = _applied(tree.schema, current, change.path[2:], change.new, unseal)
        touched[place] = updated
    return tree.with_objects(
        (mode, key, obj.at(revision) if obj is not None and revision else obj) for (mode, key), obj in touched.items()
    )


def _applied(schema: Schema, obj: Obj, rest: Path, new: Any, unseal: codec.Unseal | None) -> Obj:
    name = rest[0]
    if name.startswith(EXTRA):
        return obj.with_extra(name[len(EXTRA) :], new)
    row = schema.of(obj).attributes.get(name)
    if isinstance(row, Field) and len(rest) == 1:
        try:
            value = None if new is None else row.normal(codec.decode_value(row, new, unseal))
        except ValueError as wrong:
            raise errors.Invalid(f"{row.label}: {wrong}", hint=row.doc) from None
        return obj.with_value(name, value)
    if not isinstance(row, Submode):
        raise errors.NotFound(f"{obj.type} {obj.key} has no parameter or submode {name!r}", hint="show lists them")
    if row.indexed:
        items = {str(i): codec.decode(schema, row, str(i), item, unseal) for i, item in enumerate(new or ())}
        return obj.with_children(name, items)
    key = rest[1]
    if len(rest) == 2:
        return obj.with_child(name, key, None if new is None else codec.decode(schema, row, key, new, unseal))
    inner = obj.below(name).get(key)
    if inner is None:
        raise errors.NotFound(f"{obj.type} {obj.key} has no {name} {key!r}", hint="list shows the existing objects")
    return obj.with_child(name, key, _applied(schema, inner, rest[2:], new, unseal))


def masked(schema: Schema, changes: Iterable[Change]) -> list[Change]:
    """The changes as people may see them: where a secret stood or stands, stars. Types come from the declarations."""
    public = []
    for change in changes:
        if change.path[-1] in schema.secrets and len(change.path) % 2 == 1:
            public.append(Change(change.path, change.old and MASK, change.new and MASK))
        else:
            public.append(Change(change.path, _masked_data(schema, change.old), _masked_data(schema, change.new)))
    return public


def _masked_data(schema: Schema, data: Any) -> Any:
    if isinstance(data, list):
        return [_masked_data(schema, item) for item in data]
    if not isinstance(data, dict):
        return data
    public = {name: _masked_data(schema, part) for name, part in data.items() if name != "values"}
    if "values" in data:
        entity = schema.types.get(data.get("type", ""))
        fields = {field.attribute: field for field in entity.fields} if entity is not None else {}
        public["values"] = {
            name: MASK if name not in fields or fields[name].kind.secret or isinstance(value, Secret) else value
            for name, value in data["values"].items()
        }
    return public
