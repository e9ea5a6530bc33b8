"""All modes together: which declaration stands at which place, and what a path means.

In: the top-level lists (`head/entities` makes them). Out: the submode and the type at a path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bedplate.core import errors
from bedplate.head.objects import Obj
from bedplate.head.schema.entity import Entity, Field, Internal, Row, Submode, TypeName

__all__ = ["Path", "Schema", "describe"]

Path = tuple[str, ...]
"""`(mode, key)`, then `(submode, key)` as often as it goes down, by attribute names; a field's attribute at the end."""


class Schema:
    """The modes, and every type found in them or below."""

    def __init__(self, modes: Iterable[Submode]) -> None:
        self.modes: Mapping[str, Submode] = {mode.shell: mode for mode in modes}
        self.types: dict[str, type[Entity]] = {}
        for mode in self.modes.values():
            self._collect(mode)

    def _collect(self, submode: Submode) -> None:
        for entity in submode.of:
            known = self.types.get(entity.type_name())
            if known is entity:
                continue
            if known is not None:
                raise ValueError(f"two declarations are called {entity.type_name()}")
            self.types[entity.type_name()] = entity
            for inner in entity.submodes():
                self._collect(inner)

    def mode(self, name: str) -> Submode:
        """A mode by name. Raises `NotFound`."""
        submode = self.modes.get(name.lower())
        if submode is None:
            raise errors.NotFound(f"there is no mode {name!r}", hint=f"modes: {', '.join(self.modes)}")
        return submode

    def of(self, obj: Obj) -> type[Entity]:
        """The declaration an object follows."""
        return self.types[obj.type]

    def submode(self, obj: Obj, name: str) -> Submode:
        """The submode of an object, by the shell's name or the attribute. Raises `NotFound`."""
        for row in self.of(obj).submodes():
            if name in (row.attribute, row.shell) or row.shell == name.lower():
                return row
        raise errors.NotFound(
            f"{obj.type} {obj.key} has no submode {name!r}",
            hint="submodes: " + (", ".join(row.shell for row in self.of(obj).submodes()) or "none"),
        )


def describe(entity: type[Entity]) -> dict[str, object]:
    """A declaration as data: for OpenAPI, completion, wizards and the reference pages."""
    return {
        "type": entity.type_name(),
        "noun": entity.noun,
        "doc": (entity.__doc__ or "").strip(),
        "names": list(entity.names),
        "columns": entity.list_columns(),
        "positional": [entity.attribute(name).shell for name in entity.positional],
        "rows": [_describe_row(row) for row in entity.rows()],
    }


def _describe_row(row: Row) -> dict[str, object]:
    about: dict[str, object] = {"label": row.label, "name": row.shell, "attribute": row.attribute, "doc": row.doc}
    if isinstance(row, Submode):
        types = [entity.type_name() for entity in row.of]
        return about | {"kind": "submode", "of": types, "indexed": row.indexed, "words": row.words()}
    if isinstance(row, Field):
        default = None if row.default is None or row.kind.secret else row.kind.encode(row.default)
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
