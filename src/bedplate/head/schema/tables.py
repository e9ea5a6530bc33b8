"""What `show` and `list` print, as cells; widths and rulers are the front end's. And a declaration as data.

In: objects with their declarations. Out: rows of text, or of JSON. Inherited values are not known here: `show` prints
what an object has itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from bedplate.head.objects import Obj
from bedplate.head.schema import codec
from bedplate.head.schema.entity import Entity, Field, Internal, Row, Schema, Submode, TypeName
from bedplate.head.schema.kinds import Bool, Integer, Kind

__all__ = ["cell", "describe", "list_table", "show_rows"]


def show_rows(schema: Schema, obj: Obj) -> list[tuple[str, str]]:
    """Parameter and value, in order: extras first, by name, as they were written; then the rows of the declaration."""
    return [*sorted(obj.extras.items()), *((row.label, row.show(obj)) for row in schema.of(obj).rows)]


def list_table(
    schema: Schema, submode: Submode, children: Mapping[str, Obj], keys: Sequence[str] = ()
) -> tuple[list[str], list[list[str | int]]]:
    """Headers, and one row per object, in the order of the keys; without them sorted by key (an indexed list: by
    number). Numbers and booleans are cells as such.

    A list of several types has the columns of the one that has most; what another type lacks is left blank.
    """
    widest: type[Entity] = max(submode.of, key=lambda entity: len(entity.columns))
    keys = keys or (sorted(children, key=int) if submode.indexed else sorted(children))
    readers: dict[str, list[Callable[[Obj], str | int]]] = {}
    for entity in submode.of:
        rows = entity.attributes
        columns = [_reader(rows[name]) if name in rows else _nothing for name in widest.columns]
        readers[entity.type_name()] = columns
    table: list[list[str | int]] = []
    for key in keys:
        obj = children[key]
        table.append([key, *[read(obj) for read in readers[obj.type]]])
    return widest.list_columns(), table


def _reader(row: Row) -> Callable[[Obj], str | int]:
    """What makes a cell of an object."""
    if isinstance(row, Field) and isinstance(row.kind, Bool | Integer):
        return functools.partial(cell, row)
    if type(row) is Field and type(row.kind).show is Kind.show and isinstance(row.default, str):
        return _text_reader(row.attribute, row.default)
    return row.show


def _text_reader(name: str, default: str) -> Callable[[Obj], str]:
    """What `show` does with a text, in one call: a list of ten thousand objects asks for five of each."""

    def read(obj: Obj) -> str:
        value = obj.values.get(name, default)
        return value if value.__class__ is str else str(value)

    return read


def _nothing(obj: Obj) -> str:
    return ""


def cell(row: Row, obj: Obj) -> str | int:
    """What `show` prints of a row; a number or a boolean as such."""
    if isinstance(row, Field) and isinstance(row.kind, Bool | Integer):
        value = row.value(obj)
        return value if isinstance(value, int) else ""
    return row.show(obj)


def describe(entity: type[Entity]) -> dict[str, object]:
    """A declaration as data: for OpenAPI, completion, wizards and the reference pages."""
    return {
        "type": entity.type_name(),
        "noun": entity.noun,
        "doc": (entity.__doc__ or "").strip(),
        "names": list(entity.names),
        "columns": entity.list_columns(),
        "positional": [entity.attributes[name].shell for name in entity.positional],
        "rows": [_describe_row(row) | _group_of(entity, row) for row in entity.rows],
    }


def _group_of(entity: type[Entity], row: Row) -> dict[str, object]:
    group = next(group for group, rows in entity.grouped() if row in rows)
    return {"group": group.label, "rare": group.is_rare}


def _describe_row(row: Row) -> dict[str, object]:
    about: dict[str, object] = {"label": row.label, "name": row.shell, "attribute": row.attribute, "doc": row.doc}
    if isinstance(row, Submode):
        types = [entity.type_name() for entity in row.of]
        return about | {"kind": "submode", "of": types, "indexed": row.indexed, "words": row.words()}
    if isinstance(row, Field):
        default = None if row.default is None or row.kind.secret else codec.encode_value(row.default, codec.plain)
        return about | {
            "kind": row.kind.name,
            "default": default,
            "readonly": row.readonly,
            "secret": row.kind.secret,
            "multiple": row.kind.multiple,
            "choices": list(row.kind.choices()),
            "reference": row.kind.target_mode,
            "inherits": row.inherits,
            "schema": row.kind.json_schema(),
        }
    return about | {"kind": "internal" if isinstance(row, Internal) else "type" if isinstance(row, TypeName) else "row"}
