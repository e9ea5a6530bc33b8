"""Objects to JSON and back, by their declarations.

In: an object, or decoded JSON, and what is to happen to secrets (`seal`, `unseal`). Out: plain JSON values; objects,
with every fault named by its path. Indexed lists are JSON lists, in order and without gaps.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from bedplate.api.headapi import EXTRA
from bedplate.core import errors
from bedplate.head.objects import Obj, Secret, Value
from bedplate.head.schema.entity import Entity, Field, Key, Schema, Submode
from bedplate.head.schema.kinds import Unfit, quoted

__all__ = [
    "Seal",
    "UnfitObject",
    "Unseal",
    "decode",
    "decode_value",
    "encode",
    "encode_children",
    "encode_value",
    "left_out",
    "plain",
    "size",
]

_LONGEST_ESCAPE = 6

Seal = Callable[[Secret], Any]
"""What JSON says in place of a secret; None leaves the field out."""
Unseal = Callable[[Any], Secret]


def left_out(secret: Secret) -> Any:
    """The seal of exports and diffs: nothing of a secret is written."""
    return None


def plain(secret: Secret) -> Any:
    """The seal of those who asked for secrets in clear."""
    return secret.reveal()


def encode(schema: Schema, obj: Obj, seal: Seal) -> dict[str, Any]:
    """The object as JSON, sorted, without its key (its place says it). Empty parts are left out."""
    data: dict[str, Any] = {"type": obj.type}
    values = {}
    for name in sorted(obj.values):
        value = obj.values[name]
        encoded = value if value.__class__ is str else encode_value(value, seal)
        if encoded is not None:
            values[name] = encoded
    if values:
        data["values"] = values
    if obj.extras:
        data["extras"] = dict(sorted(obj.extras.items()))
    if obj.children:
        below = {submode.attribute: submode for submode in schema.of(obj).submodes}
        inner = sorted(obj.children.items())
        data["children"] = {name: encode_children(schema, below[name], children, seal) for name, children in inner}
    return data


def size(schema: Schema, obj: Obj) -> int:
    """The bytes of an object as JSON. One that surely is small is not encoded for it: 0."""
    if _LONGEST_ESCAPE * _weight(obj) <= schema.largest_bytes:
        return 0
    return len(msgspec.json.encode(encode(schema, obj, plain)))


def _weight(obj: Obj) -> int:
    """About how many letters an object has, never too few."""
    weight = 100 + len(obj.key)
    for name, value in obj.values.items():
        if value.__class__ is str:  # most are: this is asked of every object of a large commit
            weight += len(name) + len(value) + 4
            continue
        for text in value if isinstance(value, tuple) else (value,):
            weight += 4 + len(text.reveal() if isinstance(text, Secret) else str(text))
        weight += len(name)
    for name, text in obj.extras.items():
        weight += len(name) + len(text) + 8
    for children in obj.children.values():
        for child in children.values():
            weight += _weight(child)
    return weight


def encode_children(schema: Schema, submode: Submode, children: Mapping[str, Obj], seal: Seal) -> Any:
    if submode.indexed:
        return [encode(schema, children[key], seal) for key in sorted(children, key=int)]
    return {key: encode(schema, children[key], seal) for key in sorted(children)}


def encode_value(value: Value, seal: Seal) -> Any:
    """A value as JSON carries it."""
    return seal(value) if isinstance(value, Secret) else list(value) if isinstance(value, tuple) else value


def decode_value(field: Field, data: Any, unseal: Unseal | None) -> Value:
    """A field's value from JSON; raises ValueError."""
    if field.kind.secret and unseal is not None:
        return unseal(data)
    return field.kind.decode(data)


def decode(schema: Schema, submode: Submode, key: str, data: Any, unseal: Unseal | None = None) -> Obj:
    """The object in JSON. Without `unseal` secrets are in clear, and names are checked: it is somebody's input.

    Raises `Invalid` with every fault; it is an `UnfitObject` when all of them have the right form.
    """
    problems: list[str] = []
    decoder = _Decoder(schema, unseal, problems)
    obj = decoder.object(submode, key, data, f"{submode.shell}[{key}]")
    if len(problems) > decoder.unfit or obj is None:
        raise errors.Invalid(f"{submode.shell}[{key}] cannot be read", problems=problems)
    if problems:
        raise UnfitObject(f"{submode.shell}[{key}] cannot be", problems=problems)
    return obj


class UnfitObject(errors.Invalid):
    """A well-formed object with invalid values."""


class _Decoder:
    def __init__(self, schema: Schema, unseal: Unseal | None, problems: list[str]) -> None:
        self._schema = schema
        self._unseal = unseal
        self._problems = problems
        self.unfit = 0
        """How many of the problems have the right form."""

    def object(self, submode: Submode, key: str, data: Any, where: str) -> Obj | None:
        if not isinstance(data, dict) or set(data) - {"type", "values", "extras", "children"}:
            self._problems.append(f"{where}: an object has type, values, extras and children, and nothing else")
            return None
        if "type" in data and (not isinstance(data["type"], str) or not data["type"]):
            self._problems.append(f"{where}: {quoted(data['type'])} is not a type")
            return None
        entity = self._entity(submode, key, data.get("type", ""), where)
        if entity is None:
            return None
        extras = self._mapping(data, "extras", where)
        for name, text in extras.items():
            if not isinstance(text, str) or not name:
                self._problems.append(f"{where}: extra {name!r} must be text")
            elif self._unseal is None and not re.fullmatch(EXTRA, name):
                self._problems.append(f"{where}: {name!r} cannot be the name of an extra parameter")
        values = self._values(entity, self._mapping(data, "values", where), where)
        return Obj(entity.type_name(), key, values, extras, self._children(entity, data, where))

    def _entity(self, submode: Submode, key: str, name: Any, where: str) -> type[Entity] | None:
        try:
            if not key:
                raise errors.Invalid("an object needs a name", hint="its key is its name")
            entity = submode.entity(str(name)) if name or submode.typed else submode.naming(key)[0]
            if entity.names and entity.canonical(key) != key:
                raise errors.Invalid(
                    f"{entity.type_name()} cannot be called {key!r}", hint=f"use the name {entity.names[0]}"
                )
            if self._unseal is None:  # what is kept already is read, whatever it is called
                entity.check_name(key)
            return entity
        except errors.Invalid as wrong:
            self._problems.append(f"{where}: {wrong}")
            return None

    def _mapping(self, data: dict[str, Any], part: str, where: str) -> dict[str, Any]:
        mapping = data.get(part, {})
        if not isinstance(mapping, dict):
            self._problems.append(f"{where}: {part} must be a mapping")
            return {}
        return mapping

    def _values(self, entity: type[Entity], data: dict[str, Any], where: str) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for name, raw in data.items():
            field = entity.attributes.get(name)
            if not isinstance(field, Field) or isinstance(field, Key):
                self._problems.append(f"{where}: {entity.type_name()} has no field {name!r}")
                continue
            try:
                value = field.normal(decode_value(field, raw, self._unseal))
            except ValueError as wrong:
                self._problems.append(f"{where}: {field.label}: {wrong}")
                self.unfit += isinstance(wrong, Unfit)
                continue
            if value is not None:
                # Ten thousand nodes share the names of their fields and of their categories: less to walk through.
                values[field.attribute] = sys.intern(value) if field.target_mode and type(value) is str else value
        return values

    def _children(self, entity: type[Entity], data: dict[str, Any], where: str) -> dict[str, dict[str, Obj]]:
        children: dict[str, dict[str, Obj]] = {}
        for name, content in self._mapping(data, "children", where).items():
            submode = entity.attributes.get(name)
            if not isinstance(submode, Submode) or not isinstance(content, list if submode.indexed else dict):
                self._problems.append(f"{where}: {entity.type_name()} has no such submode {name!r}")
                continue
            pairs = ((str(i), item) for i, item in enumerate(content)) if isinstance(content, list) else content.items()
            inner = {key: self.object(submode, key, item, f"{where}->{submode.shell}[{key}]") for key, item in pairs}
            objects = {key: child for key, child in inner.items() if child is not None}
            if objects:
                children[name] = objects
        return children
