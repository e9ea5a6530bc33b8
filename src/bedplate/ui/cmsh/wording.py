"""Changes and events in words: which object, which parameter, what it was and what it is; what happened meanwhile.

In: changes of a session or a revision, secrets masked; the events of a backend. Out: rows of a table, one-line
summaries, and notices such as `Thu Oct 31 15:58:56 2024 [notice] basecm10: Service shorewall was restarted`, in local
time. Types of objects that are gone are found through their place in the schema. Pure.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from bedplate.api.headapi import MASK, Change, Notice, Revision, RevisionProgress
from bedplate.api.states import PROGRESS
from bedplate.core.clock import parse_rfc3339
from bedplate.head import Path, Schema, changes
from bedplate.head.changes import EXTRA
from bedplate.head.schema import codec, ranges
from bedplate.head.schema.entity import Field, Row, Submode
from bedplate.ui.backend import Event

__all__ = [
    "ADDED",
    "REMOVED",
    "blobs",
    "gathered",
    "line",
    "objects_of",
    "of_revision",
    "path_text",
    "progress",
    "rows",
    "shown",
    "summary",
]

_NAMED = 3
_MANY = 3

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


def line(notice: Notice) -> str:
    """A notice as the manual prints it, its time in the zone of this machine."""
    try:
        moment = time.strftime("%a %b %e %H:%M:%S %Y", time.localtime(parse_rfc3339(notice.time).timestamp()))
    except ValueError:
        moment = notice.time
    return f"{moment} [{notice.severity}] {notice.host}: {notice.text}"


def of_revision(revision: Revision, head: str) -> Notice:
    """What a commit of somebody else looks like among the notices: who, which number, which objects."""
    objects = [f"{mode}[{key}]" for mode, key in dict.fromkeys(map(changes.address, revision.changes))]
    named = ", ".join(objects[:_NAMED])
    if len(objects) > _NAMED:
        named += f" and {len(objects) - _NAMED} more"
    message = f" ({revision.message})" if revision.message else ""
    text = f"{revision.author} committed revision {revision.number}: {named}{message}"
    return Notice(id=0, time=revision.time, severity="notice", host=head, text=text)


def shown(event: Event, head: str, own: Callable[[int], bool]) -> Notice | None:
    """What is shown of an event: a notice as it is, a commit unless it is one's own."""
    if isinstance(event, Notice):
        return event
    return None if own(event.number) else of_revision(event, head)


def gathered(news: Iterable[Notice]) -> list[Notice]:
    """Notices of one moment, in their order; what three or more hosts say alike is said once, for all of them."""
    alike: dict[tuple[str, str], list[Notice]] = {}
    for notice in news:
        alike.setdefault((notice.severity, notice.text), []).append(notice)
    told: list[Notice] = []
    for same in alike.values():
        hosts = {notice.host for notice in same}
        told += [msgspec.structs.replace(same[-1], host=ranges.compress(hosts))] if len(hosts) >= _MANY else same
    return sorted(told, key=lambda notice: notice.time)


def progress(how_far: RevisionProgress) -> str:
    """How far a revision is, in a line."""
    counts = Counter(node.state for node in how_far.nodes)
    others = [f"{counts[state]} {state}" for state in PROGRESS if counts[state]]
    return ", ".join([f"revision {how_far.revision}: applied on {how_far.applied} of {how_far.total} nodes", *others])
