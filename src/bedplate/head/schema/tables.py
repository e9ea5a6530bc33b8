"""What `show` and `list` print, as cells; widths and rulers are the front end's.

In: objects with their declarations. Out: rows of text. Inherited values are not known here: `show` prints what an
object has itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from bedplate.head.objects import Obj
from bedplate.head.schema.entity import Entity, Submode
from bedplate.head.schema.registry import Schema

__all__ = ["list_table", "show_rows"]


def show_rows(schema: Schema, obj: Obj) -> list[tuple[str, str]]:
    """Parameter and value, in order: extras first, by name, as they were written; then the rows of the declaration."""
    return [*sorted(obj.extras.items()), *((row.label, row.show(obj)) for row in schema.of(obj).rows())]


def list_table(schema: Schema, submode: Submode, children: Mapping[str, Obj]) -> tuple[list[str], list[list[str]]]:
    """Headers, and one row per object, sorted by key (an indexed list: by number).

    A list of several types has the columns of the one that has most; what another type lacks is left blank.
    """
    widest: type[Entity] = max(submode.of, key=lambda entity: len(entity.columns))
    keys = sorted(children, key=int) if submode.indexed else sorted(children)
    return widest.list_columns(), [[key, *_cells(schema, widest, children[key])] for key in keys]


def _cells(schema: Schema, widest: type[Entity], obj: Obj) -> list[str]:
    rows = schema.of(obj).by_attribute()
    return [rows[name].show(obj) if name in rows else "" for name in widest.columns]
