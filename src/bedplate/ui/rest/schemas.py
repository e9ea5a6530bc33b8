"""The schemas of objects in the OpenAPI document, made of the entities' declarations.

In: the head's schema. Out: one component for each entity type, and for each mode: the object as it is read (`Device`),
written (`DeviceWrite`), made (`DeviceNew`) and listed (`DevicePage`); the tree as one document (`Export`).
"""

from __future__ import annotations

from typing import Any

from bedplate.api.headapi import EXTRA
from bedplate.head import Schema
from bedplate.head.schema import codec
from bedplate.head.schema.entity import Entity, Field, Key, Submode
from bedplate.ui.rest.addresses import KEY

__all__ = ["alternatives", "components", "key", "mode_name", "reference"]

_REVISION = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
_EXTRAS = {
    "type": "object",
    "description": "free parameters (`set -e`)",
    "propertyNames": {"minLength": 1, "pattern": f"^{EXTRA}$"},
    "additionalProperties": {"type": "string"},
}


def mode_name(mode: Submode) -> str:
    """What a mode's components are called."""
    return mode.label.replace(" ", "")


def reference(name: str) -> dict[str, Any]:
    """A component by name."""
    return {"$ref": f"#/components/schemas/{name}"}


def components(schema: Schema) -> dict[str, Any]:
    """All of them, by name."""
    schemas: dict[str, Any] = {}
    for entity in schema.types.values():
        schemas[_type(entity)] = _entity(entity, {}, is_typed=False)
        schemas[_type(entity) + "Typed"] = _entity(entity, {}, is_typed=True)
    for mode in schema.modes.values():
        schemas |= _mode(mode)
    schemas["Export"] = _export(schema)
    schemas["Edit"] = _edit(schema)
    return schemas


def _type(entity: type[Entity]) -> str:
    return f"Type{entity.type_name()[0].upper()}{entity.type_name()[1:]}"


def alternatives(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """One of several schemas."""
    return schemas[0] if len(schemas) == 1 else {"oneOf": schemas}


def _mode(mode: Submode) -> dict[str, Any]:
    """The components of one mode."""
    name, place = mode_name(mode), {"mode": {"const": mode.shell}, "key": key(mode), "revision": _REVISION}

    def each(extra: dict[str, Any], required: list[str], *, is_typed: bool) -> dict[str, Any]:
        entities = [_entity(entity, extra, is_typed=is_typed, required=required) for entity in mode.of]
        return alternatives(entities)

    written = each(place, [], is_typed=mode.typed)
    return {
        name: each(place, ["mode", "key", "revision"], is_typed=True),
        f"{name}Write": written,
        f"{name}New": each({"mode": place["mode"], "key": place["key"]}, ["key"], is_typed=mode.typed),
        f"{name}Page": {
            "type": "object",
            "properties": {
                "items": {"type": "array", "items": reference(name)},
                "revision": _REVISION,
                "remaining": {"type": "integer", "minimum": 0},
                "continue": {"type": "string", "description": "requests the next page"},
            },
            "required": ["items", "revision"],
        },
    }


def _edit(schema: Schema) -> dict[str, Any]:
    """An edit of any mode: what its object may hold is the mode's `…Write`."""
    return {
        "type": "object",
        "properties": {
            "mode": {"enum": list(schema.modes)},
            "key": {"type": "string", "minLength": 1, "maxLength": 253, "pattern": f"^{KEY}$"},
            "base": {
                "description": "the revision of the object the edit was made on; absent: the object did not exist",
                "anyOf": [_REVISION, {"type": "null"}],
            },
            "object": {
                "description": "the new object, as for PUT; absent: the object is removed",
                "anyOf": [reference("ObjectWrite"), {"type": "null"}],
            },
        },
        "required": ["mode", "key"],
        "additionalProperties": False,
    }


def key(mode: Submode) -> dict[str, Any]:
    """What the objects of a list may be called."""
    patterns = {
        row.kind.json_schema().get("pattern", "") for entity in mode.of for row in entity.rows if isinstance(row, Key)
    }
    own = patterns.pop() if len(patterns) == 1 else ""
    return {"type": "string", "minLength": 1, "maxLength": 253, "pattern": own or f"^{KEY}$", "description": "its name"}


def _entity(
    entity: type[Entity], extra: dict[str, Any], *, is_typed: bool, required: list[str] | None = None
) -> dict[str, Any]:
    """An object of one type; `extra` are properties of its place."""
    values = {field.attribute: _field(field) for field in entity.fields}
    children = {submode.attribute: _submode(submode) for submode in entity.submodes}
    properties: dict[str, Any] = {
        **extra,
        "type": {"const": entity.type_name()},
        "values": {"type": "object", "properties": values, "additionalProperties": False},
        "extras": _EXTRAS,
        "children": {"type": "object", "properties": children, "additionalProperties": False},
    }
    needed = [*(required or []), *(["type"] if is_typed else [])]
    schema: dict[str, Any] = {
        "type": "object",
        "description": (entity.__doc__ or "").strip(),
        "properties": properties,
        "additionalProperties": False,
    }
    return schema | ({"required": needed} if needed else {})


def _field(field: Field) -> dict[str, Any]:
    about: dict[str, Any] = {"description": f"{field.label}: {field.doc}"}
    if field.default not in (None, "", ()) and not field.kind.secret:
        about["default"] = codec.encode_value(field.default, codec.plain)
    return field.kind.json_schema() | about


def _submode(submode: Submode) -> dict[str, Any]:
    """A list below an object: by index, by names that decide types, or by free names."""
    if submode.indexed:
        items = alternatives([reference(_type(entity)) for entity in submode.of])
        return {"type": "array", "description": submode.doc, "items": items}
    named = {name: entity for entity in submode.of for name in entity.names}
    if named:
        fixed = {name: reference(_type(entity)) for name, entity in named.items() if "*" not in name}
        free = {_family(name): reference(_type(entity)) for name, entity in named.items() if "*" in name}
        schema = {"type": "object", "description": submode.doc, "properties": fixed, "additionalProperties": False}
        return schema | ({"patternProperties": free} if free else {})
    suffix = "Typed" if submode.typed else ""
    return {
        "type": "object",
        "description": submode.doc,
        "propertyNames": key(submode),
        "additionalProperties": alternatives([reference(_type(entity) + suffix) for entity in submode.of]),
    }


def _family(name: str) -> str:
    """The pattern of a family of names such as `generic::*`."""
    return f"^{name[:-1]}[a-z0-9_.:-]{{1,200}}$"


def _export(schema: Schema) -> dict[str, Any]:
    """The tree as one document: what an object may hold is its mode's `…Write`."""
    objects = {"type": "object", "additionalProperties": {"type": "object"}}
    return {
        "type": "object",
        "description": "The tree as one document: modes, in them objects by name.",
        "properties": {"format": {"const": "bedplate/head/v1"}, **dict.fromkeys(schema.modes, objects)},
        "required": ["format"],
        "additionalProperties": False,
    }
