"""What changed, for people: changes grouped by object, and plans grouped by the nodes they are the same for.

In: changes as the head gives them out (secrets are stars already), actions of a plan. Out: sections with rows for the
templates. Nothing is computed about the tree here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from bedplate.api.headapi import MASK, Change
from bedplate.head import Path, Schema
from bedplate.head.changes import EXTRA
from bedplate.head.plan import PlannedAction
from bedplate.head.schema import ranges
from bedplate.head.schema.entity import Entity, Field, Submode
from bedplate.head.schema.kinds import Blob
from bedplate.ui.web import links

__all__ = ["Difference", "Group", "Section", "Step", "compared", "groups", "sections", "short"]

_LONGEST = 400


class Difference(NamedTuple):
    """One row: old and new as text, or `lines` with `+`, `-` and blank in front for what has many lines."""

    label: str
    old: str = ""
    new: str = ""
    lines: tuple[str, ...] = ()


class Section(NamedTuple):
    """What changed in a top-level object, or in several alike; `verb` is added, changed or removed."""

    title: str
    mode: str
    keys: tuple[str, ...]
    way: str
    verb: str
    rows: tuple[Difference, ...]


class Step(NamedTuple):
    """An action as a group of nodes has it; values that differ from node to node are left out. `node` is one of them,
    for whoever wants to see its file. `is_own`: each node is the cause of its own."""

    action: PlannedAction
    old: str
    new: str
    node: str
    is_own: bool = False


class Group(NamedTuple):
    """Nodes for which a plan says the same, and what it says."""

    nodes: str
    size: int
    steps: tuple[Step, ...]


def sections(schema: Schema, changes: Iterable[Change]) -> list[Section]:
    """The changes by top-level object, in their order; objects that change in the same way are one section."""
    by_object: dict[tuple[str, str], list[Change]] = {}
    for change in changes:
        by_object.setdefault((change.path[0], change.path[1]), []).append(change)
    blocks = []
    for (mode, key), related in by_object.items():
        whole = next((change for change in related if len(change.path) == 2), None)
        verb = "changed" if whole is None or (whole.old and whole.new) else "added" if whole.old is None else "removed"
        rows = tuple(row for change in related for row in _differences(schema, change))
        blocks.append(Section(links.title((mode, key)), mode, (key,), links.show((mode, key)), verb, rows))
    return _alike(blocks)


def _alike(blocks: Iterable[Section]) -> list[Section]:
    merged: dict[tuple[object, ...], Section] = {}
    keys: dict[tuple[object, ...], list[str]] = {}
    for block in blocks:
        likeness = (block.mode, block.verb, block.rows)
        merged.setdefault(likeness, block)
        keys.setdefault(likeness, []).extend(block.keys)
    return [
        block
        if len(keys[likeness]) == 1
        else block._replace(
            title=links.title((block.mode, ranges.compress(keys[likeness]))),
            keys=tuple(keys[likeness]),
            way=links.show((block.mode,)),
        )
        for likeness, block in merged.items()
    ]


def _differences(schema: Schema, change: Change) -> list[Difference]:
    way, row = _row(schema, change.path)
    if isinstance(row, Field):
        return [_field(way, row, change)]
    if isinstance(row, Submode) and row.indexed and len(change.path) % 2:
        lines = compared(_listed(schema, row, change.old), _listed(schema, row, change.new))
        return [Difference(way, lines=lines)]
    if change.path[-1].startswith(EXTRA):
        return [Difference(way, change.old or "", change.new or "")]
    return [Difference(way, lines=compared(_flat(schema, row, change.old), _flat(schema, row, change.new)))]


def _row(schema: Schema, path: Path) -> tuple[str, Field | Submode | None]:
    """The way below the top-level object in words, and the declaration at its end."""
    submode: Submode | None = schema.modes.get(path[0])
    labels: list[str] = []
    key, rest = path[1], path[2:]
    while rest and submode is not None:
        name = rest[0]
        if name.startswith(EXTRA):
            return " › ".join([*labels, name[len(EXTRA) :]]), None
        row = next((candidate for entity in _types(submode, key) if (candidate := entity.attributes.get(name))), None)
        if isinstance(row, Field):
            return " › ".join([*labels, row.label]), row
        submode = row if isinstance(row, Submode) else None
        labels.append(f"{row.label if row else name}[{rest[1]}]" if len(rest) > 1 else (row.label if row else name))
        key, rest = (rest[1], rest[2:]) if len(rest) > 1 else ("", ())
    return " › ".join(labels) or "object", submode


def _types(submode: Submode, key: str) -> list[type[Entity]]:
    """The types an object of that name can have, the one its name decides first."""
    named = [entity for entity in submode.of if entity.names and entity.canonical(key)]
    return named or list(submode.of)


def _field(way: str, field: Field, change: Change) -> Difference:
    if field.kind.secret:
        words = {True: "secret", False: "not set"}
        old, new = words[bool(change.old)], words[bool(change.new)]
        return Difference(way, old, "another secret" if old == new == "secret" else new)
    if isinstance(field.kind, Blob):
        return Difference(way, lines=compared(str(change.old or "").splitlines(), str(change.new or "").splitlines()))
    return Difference(way, _shown(field, change.old), _shown(field, change.new))


def _shown(field: Field, value: Any) -> str:
    if value is None:
        empty = field.default in (None, "", ())
        if field.inherits:
            return "inherited"
        return "not set" if empty or field.default is None else f"{field.kind.show(field.default)} (default)"
    try:
        return field.kind.show(field.kind.decode(value))
    except ValueError:
        return str(value)


def _flat(schema: Schema, submode: Submode | None, data: Any) -> list[str]:
    """An object as lines `label: value`, what lies below it indented."""
    if not isinstance(data, Mapping):
        return []
    entity = schema.types.get(str(data.get("type", "")))
    rows = entity.attributes if entity is not None else {}
    lines = [f"type: {data.get('type', '')}"]
    lines.extend(f"{name}: {text}" for name, text in data.get("extras", {}).items())
    for name, value in data.get("values", {}).items():
        row = rows.get(name)
        text = MASK if value == MASK else _shown(row, value) if isinstance(row, Field) else str(value)
        lines.append(f"{row.label if row else name}: {text}")
    for name, children in data.get("children", {}).items():
        row = rows.get(name)
        label = row.label if row else name
        pairs = enumerate(children) if isinstance(children, list) else children.items()
        for key, child in pairs:
            lines.append(f"{label}[{key}]")
            lines.extend(f"    {line}" for line in _flat(schema, row if isinstance(row, Submode) else None, child))
    return lines


def _listed(schema: Schema, submode: Submode, data: Any) -> list[str]:
    """The objects of an indexed list, one line each."""
    return [", ".join(_flat(schema, submode, item)[1:]) for item in data or ()]


def compared(old: list[str], new: list[str]) -> tuple[str, ...]:
    """Lines with `+`, `-` or a blank in front, those that are the same left out but for two around each change."""
    difference = list(difflib.unified_diff(old, new, n=2, lineterm=""))[2:]
    lines = ["  …" if line.startswith("@@") else f"{line[0]} {line[1:]}" for line in difference]
    if lines[:1] == ["  …"]:
        del lines[0]
    return (*lines[:_LONGEST], f"  … {len(lines) - _LONGEST} more lines") if len(lines) > _LONGEST else tuple(lines)


def groups(actions: Iterable[PlannedAction]) -> list[Group]:
    """The plan, with the nodes together for which it says the same; the order is that of their first nodes.

    What a file holds may differ from node to node: the plan is the same all the same.
    """
    by_node: dict[str, list[PlannedAction]] = {}
    for action in actions:
        by_node.setdefault(action.node, []).append(action)
    same: dict[tuple[object, ...], list[list[PlannedAction]]] = {}
    for planned in by_node.values():
        same.setdefault(tuple(map(_likeness, planned)), []).append(planned)
    return [
        Group(
            ranges.compress(planned[0].node for planned in alike),
            len(alike),
            tuple(map(_step, zip(*alike, strict=True))),
        )
        for alike in same.values()
    ]


def _likeness(action: PlannedAction) -> PlannedAction:
    values = ("", "") if action.kind == "file" else (action.old, action.new)
    source = action.source._replace(key="") if _is_own(action) else action.source
    return action._replace(node="", old=values[0], new=values[1], source=source)


def _is_own(action: PlannedAction) -> bool:
    return (action.source.mode, action.source.key) == ("device", action.node)


def _step(alike: tuple[PlannedAction, ...]) -> Step:
    first = alike[0]
    old, new = (
        values[0] if len(set(values)) == 1 else ""
        for values in ([action.old for action in alike], [action.new for action in alike])
    )
    is_own = len(alike) > 1 and _is_own(first)
    return Step(first, *(("", "") if old == new else (short(old), short(new))), first.node, is_own)


def short(value: str) -> str:
    """A fact's value with digests cut to what tells them apart."""
    return re.sub(r"(sha256:[0-9a-f]{8})[0-9a-f]+", r"\1", value)
