"""Reference pages of the head, out of its declarations: entities and roles, commands of the shell, the REST API.

In: `SCHEMA`, the shell's table of commands, the OpenAPI document. Out: Markdown, for `tools/docs.py` to write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pagetext import NOTE, table

from bedplate.head.entities import SCHEMA
from bedplate.head.entities.base import Role
from bedplate.head.schema.entity import Entity, Field, Row, Submode
from bedplate.head.schema.registry import describe

__all__ = ["entities_page"]

# The kinds whose name does not say what to write.
FORMS = {
    "yes or no": "`yes` or `no`",
    "size": "a size such as `64MiB`",
    "duration": "a time such as `2m`",
    "nodes": "nodes, ranges such as `node001..node003`",
}
# A number that large is no bound that somebody chose.
FAR = 2**32


# Entities


def entities_page() -> str:
    """Every mode with its entities and what stands below them, then the roles; each type is told once."""
    told: set[str] = set()
    parts = [
        f"{NOTE}\n# Entities and roles of the head\n\n"
        "What `show` prints and `set` takes, in the order of `show`. A parameter's name in the shell is its label in "
        "lower case without blanks; the last column is the attribute in REST, exports and paths. A submode holds "
        "objects of its own.\n",
        table(("mode", "holds", "what"), [_mode_row(mode) for mode in SCHEMA.modes.values()]),
    ]
    for mode in SCHEMA.modes.values():
        parts += [f"## `{mode.shell}`\n", *_sections(mode, told)]
    parts.append("## Roles\n\nAssigned in the submode `roles` of a device, a category or an overlay.\n")
    overlay = SCHEMA.types["ConfigurationOverlay"].attribute("roles")
    assert isinstance(overlay, Submode)
    return "\n".join([*parts, *_sections(overlay, told, with_roles=True)])


def _mode_row(mode: Submode) -> tuple[str, str, str]:
    return f"`{mode.shell}`", ", ".join(_link(entity.type_name()) for entity in mode.of), mode.doc


def _sections(submode: Submode, told: set[str], *, with_roles: bool = False) -> Iterator[str]:
    """What a list holds and what stands below that; roles have a chapter of their own."""
    for entity in submode.of:
        if entity.type_name() in told or (issubclass(entity, Role) and not with_roles):
            continue
        told.add(entity.type_name())
        yield from _section(entity)
        for below in entity.submodes():
            yield from _sections(below, told, with_roles=with_roles)


def _section(entity: type[Entity]) -> list[str]:
    about: dict[str, Any] = describe(entity)
    names = [f"`{name}`" for name in about["names"]]
    head = f"### {about['type']}\n\n{_sentence(entity)}"
    if names:
        head += f" Called {', '.join(names)}."
    if about["positional"]:
        head += f" `add {' '.join(about['positional'])}`."
    rows = [_row(row, entity.attribute(row["attribute"])) for row in about["rows"]]
    return [head + "\n", table(("parameter", "value", "default", "meaning", "attribute"), rows)]


def _sentence(entity: type[Entity]) -> str:
    return " ".join((entity.__doc__ or "").split())


def _row(row: dict[str, Any], declared: Row) -> tuple[str, str, str, str, str]:
    if row["kind"] == "submode":
        held = ", ".join(_link(name) for name in row["of"] if not issubclass(SCHEMA.types[name], Role))
        value = "list of " + (held or "[roles](#roles)") + (", numbered" if row["indexed"] else "")
        return row["label"], value, "", row["doc"], f"`{row['attribute']}`"
    if "default" not in row:
        return row["label"], "", "", row["doc"], f"`{row['attribute']}`"
    meaning = row["doc"] + ("; secret" if row["secret"] else "")
    if row["inherits"]:
        meaning += f"; inherited from its {row['inherits']}"
    if row["readonly"]:
        meaning += "; not set by hand"
    return row["label"], _value(row), _default(declared), meaning, f"`{row['attribute']}`"


def _value(row: dict[str, Any]) -> str:
    if row["kind"] in FORMS:
        return FORMS[row["kind"]]
    if row["reference"]:
        return f"`{row['reference']}`" + (", several" if row["multiple"] else "")
    if row["choices"]:
        return ", ".join(f"`{choice}`" for choice in row["choices"] if choice)
    least, most = row["schema"].get("minimum"), row["schema"].get("maximum")
    if most is not None and most > FAR:
        most = None
    bounds = f", {least} to {most}" if most is not None else f", from {least}" if least is not None else ""
    return row["kind"] + bounds


def _default(field: Row) -> str:
    assert isinstance(field, Field)
    shown = "" if field.default is None or field.kind.secret else field.kind.show(field.default)
    return f"`{shown}`" if shown else ""


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"
