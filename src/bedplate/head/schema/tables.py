"""What `show` and `list` print, as cells; widths and rulers are the front end's. And a declaration as data.

In: objects with their declarations. Out: rows of text, or of JSON. Inherited values are not known here: `show` prints
what an object has itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any

from bedplate.head.objects import Obj
from bedplate.head.schema import codec
from bedplate.head.schema.entity import Entity, Field, Internal, Row, Schema, Submode, TypeName
from bedplate.head.schema.kinds import Bool, Integer, Kind

__all__ = ["Block", "cell", "describe", "list_table", "show_rows"]

_BLOCK = 500
"""Objects that are read together: what a core's own cache holds, with their texts."""


def show_rows(schema: Schema, obj: Obj) -> list[tuple[str, str]]:
    """Parameter and value, in order: extras first, by name, as they were written; then the rows of the declaration."""
    return [*sorted(obj.extras.items()), *((row.label, row.show(obj)) for row in schema.of(obj).rows)]


def list_table(
    submode: Submode, children: Mapping[str, Obj], keys: Sequence[str] = (), before: Sequence[Block] = ()
) -> tuple[list[str], list[Block]]:
    """Headers, and block by block under each its cells, one for each object, in the order of the keys; without them
    sorted by key (an indexed list: by number). Numbers and booleans are cells as such.

    A list of several types has the columns of the one that has most; what another type lacks is left blank. What is
    read of an object is read of a block of them before the next: ten thousand do not fit the processor's cache, and
    a walk through all of them for each column would wait for memory. Blocks of an earlier list (`before`) that hold
    the very same objects are not read again.
    """
    widest: type[Entity] = max(submode.of, key=lambda entity: len(entity.columns))
    keys = keys or (sorted(children, key=int) if submode.indexed else sorted(children))
    readers, blocks = [_reader(submode, name) for name in widest.columns], []
    for index, first in enumerate(range(0, len(keys), _BLOCK)):
        names = keys[first : first + _BLOCK]
        objects = [children[key] for key in names]
        known = before[index] if index < len(before) else None
        if known is None or names != known.columns[0] or not all(map(is_, objects, known.objects)):
            known = Block(objects, [names, *(read(objects) for read in readers)])
        blocks.append(known)
    return widest.list_columns(), blocks


@dataclass(frozen=True, slots=True)
class Block:
    """Some objects of a list, and the columns of their cells. A front end keeps in `laid` what it made of them."""

    objects: Sequence[Obj]
    columns: Sequence[Sequence[str | int]]
    laid: dict[object, Any] = field(default_factory=dict)


_Reader = Callable[[Sequence[Obj]], list[str | int]]


def _reader(submode: Submode, name: str) -> _Reader:
    """What reads a column: what is the same for all of its cells is not asked of each."""
    rows = {entity.type_name(): entity.attributes.get(name) for entity in submode.of}
    texts = [_default_text(row) for row in rows.values()]
    default = texts[0]
    if default is not None and all(text == default for text in texts):
        return lambda objects: _texts(objects, name, default)
    if all(isinstance(row, TypeName) for row in rows.values()):
        return lambda objects: [obj.type for obj in objects]
    return lambda objects: [_cell_or_nothing(rows[obj.type], obj) for obj in objects]


def _texts(objects: Sequence[Obj], name: str, default: str) -> list[str | int]:
    texts = [obj.values.get(name, default) for obj in objects]
    try:
        "".join(texts)  # type: ignore[arg-type]
    except TypeError:  # not all of them are
        return [str(text) for text in texts]
    return texts  # type: ignore[return-value]


def _default_text(row: Row | None) -> str | None:
    """What stands in a column of texts where an object has none; None for a column of anything else."""
    if row is None:
        return ""
    is_text = type(row) is Field and type(row.kind).show is Kind.show and isinstance(row.default, str)
    return row.default if is_text else None  # type: ignore[attr-defined]


def _cell_or_nothing(row: Row | None, obj: Obj) -> str | int:
    return "" if row is None else cell(row, obj)


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
