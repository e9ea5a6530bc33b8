"""Changes in words: which object, which parameter, what it was and what it is. Pure.

In: changes of a session or a revision, secrets masked. Out: rows of a table, one-line summaries. Types of objects that
are gone are found through their place in the schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bedplate.api.headapi import MASK, Change, Revision
from bedplate.head import Path, Schema
from bedplate.head.changes import EXTRA
from bedplate.head.schema import codec
from bedplate.head.schema.entity import Field, Row, Submode

__all__ = ["ADDED", "REMOVED", "blobs", "objects_of", "path_text", "rows", "summary"]

ADDED, REMOVED = "<added>", "<removed>"

_Cells = tuple[str, str, str, str]


def path_text(path: Path) -> str:
    """A path in words that need no session: `category[default]->roles[Docker::Host]`, then what is left over."""
    text, at = "", 0
    while at < len(path):
        text += ("->" if at else "") + path[at].replace("_", "")
        if at + 1 < len(path):
            text += f"[{path[at + 1]}]"
        at += 2
    return text


def rows(schema: Schema, changes: Iterable[Change]) -> Iterator[_Cells]:
    """Object, parameter, old and new of each change; of a new object every value it has."""
    for change in changes:
        yield from _Rows(schema).of(change)


class _Rows:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def of(self, change: Change) -> Iterator[_Cells]:
        path = change.path
        if len(path) % 2 == 0:
            yield from self._whole(path, change.old, change.new)
            return
        where, name = path_text(path[:-1]), path[-1]
        row = _row(self._schema, path)
        if name.startswith(EXTRA):
            yield where, name.removeprefix(EXTRA), change.old or "", change.new or ""
        elif isinstance(row, Submode):
            yield from self._items(path, row, change.old or [], change.new or [])
        else:
            yield where, _label(row, name), _said(row, change.old), _said(row, change.new)

    def _whole(self, path: Path, old: Any, new: Any) -> Iterator[_Cells]:
        where = path_text(path)
        if new is None:
            yield where, "", "", REMOVED
            return
        if old is not None:
            yield where, "", "", REMOVED
        yield where, "", "", ADDED
        yield from self._inner(path, new)

    def _inner(self, path: Path, data: dict[str, Any]) -> Iterator[_Cells]:
        where = path_text(path)
        for name, text in data.get("extras", {}).items():
            yield where, name, "", text
        for name, value in data.get("values", {}).items():
            row = _row(self._schema, (*path, name))
            yield where, _label(row, name), "", _said(row, value)
        for name, children in data.get("children", {}).items():
            pairs = enumerate(children) if isinstance(children, list) else children.items()
            for key, child in pairs:
                yield from self._whole((*path, name, str(key)), None, child)

    def _items(self, path: Path, row: Submode, old: Sequence[Any], new: Sequence[Any]) -> Iterator[_Cells]:
        """An indexed list: what left it and what came into it; what merely got another index is left out."""
        where = path_text(path)
        before, after = [self._item(row, entry) for entry in old], [self._item(row, entry) for entry in new]
        left, came = list(before), list(after)
        for item in after:
            if item in left:
                left.remove(item)
                came.remove(item)
        for item in left:
            yield where, str(before.index(item)), item, REMOVED
        for item in came:
            yield where, str(after.index(item)), "", item

    def _item(self, submode: Submode, data: Any) -> str:
        obj = codec.decode(self._schema, submode, "0", data)
        entity = self._schema.of(obj)
        return " ".join(text for name in entity.columns if (text := entity.attributes[name].show(obj)))


def _row(schema: Schema, path: Path) -> Row | None:
    """The row a path of odd length ends with."""
    submode = schema.modes.get(path[0])
    for key, name in zip(path[1::2], path[2::2], strict=True):
        if submode is None:
            return None
        fitting = [entity for entity in submode.of if not entity.names or entity.canonical(key) == key]
        row = next((candidate for entity in fitting if (candidate := entity.attributes.get(name)) is not None), None)
        if not isinstance(row, Submode):
            return row
        submode = row
    return submode


def _label(row: Row | None, name: str) -> str:
    return row.shell if row is not None else name


def _said(row: Row | None, value: Any) -> str:
    """A value as `show` prints it; nothing said is the default."""
    if not isinstance(row, Field):
        return "" if value is None else str(value)
    if row.kind.secret:
        return MASK if value else "< not set >"
    current = row.default if value is None else row.kind.decode(value)
    return "" if current is None or current == "" else row.kind.show(current)


def blobs(schema: Schema, changes: Iterable[Change]) -> Iterator[tuple[str, str, str]]:
    """Files that changed: where, old and new text."""
    for change in changes:
        row = _row(schema, change.path) if len(change.path) % 2 else None
        if isinstance(row, Field) and row.kind.name == "file":
            yield f"{path_text(change.path[:-1])}->{row.shell}", change.old or "", change.new or ""


def objects_of(revision: Revision) -> list[str]:
    """The top-level objects a revision touched."""
    return list(dict.fromkeys(path_text(change.path[:2]) for change in revision.changes))


def summary(schema: Schema, revision: Revision) -> str:
    """One line: the message, or what the first change did."""
    if revision.message:
        return revision.message.splitlines()[0]
    if revision.undoes:
        return f"undo of revision {revision.undoes}"
    if not revision.changes:
        return ""
    where, name, _, new = next(rows(schema, revision.changes[:1]), ("", "", "", ""))
    what = f"{where} {new.strip('<>')}" if not name else f"{where} {name}"
    more = len(revision.changes) - 1
    return f"{what}, and {more} more" if more else what
