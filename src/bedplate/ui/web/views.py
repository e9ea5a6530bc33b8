"""Tables of the tree for the page: lists, rows of `show`, what a search finds.

In: a tree, its declarations, and which paths are staged. Out: cells with links, in the order and under the labels of
the declaration. Secrets come as the declaration shows them: stars, or that nothing is set. Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from bedplate.head import Obj, Path, Schema, Tree, Value
from bedplate.head.resolve import inherited
from bedplate.head.schema.entity import Entity, Field, Row, Submode
from bedplate.head.schema.kinds import Blob, Bool
from bedplate.head.schema.ranges import ListOf, NodeList, natural
from bedplate.ui.web import links

__all__ = [
    "Cell",
    "Column",
    "Found",
    "Line",
    "Listed",
    "Parameter",
    "Parameters",
    "Table",
    "listing",
    "matching",
    "parameters",
    "search",
    "submode_at",
]

_LINKED = 12


class Cell(NamedTuple):
    """One cell: `parts` are texts with the page they lead to (empty: none). `tone` is a class of the style sheet.
    `states` are words of `api.states`, which are shown in their colours."""

    text: str
    parts: tuple[tuple[str, str], ...] = ()
    tone: str = ""
    states: tuple[str, ...] = ()


class Column(NamedTuple):
    """A column that the declaration does not have: it stands behind the key."""

    header: str
    cell: Callable[[Obj], Cell]


class Line(NamedTuple):
    """One object of a list."""

    path: Path
    cells: tuple[Cell, ...]
    is_staged: bool = False


class Table(NamedTuple):
    """Headers and the lines of one page; `total` counts those of all pages."""

    headers: tuple[str, ...]
    lines: tuple[Line, ...]
    total: int
    page: int = 1
    pages: int = 1


class Parameter(NamedTuple):
    """One row of `show`. `source` is who gave an inherited value; `way` leads into a submode; `text` is a file."""

    label: str
    cell: Cell
    doc: str = ""
    source: str = ""
    source_way: str = ""
    is_set: bool = False
    text: str = ""


class Parameters(NamedTuple):
    """The rows of one group; folded where it is rarely used and nothing in it is set."""

    label: str
    rows: tuple[Parameter, ...]
    is_folded: bool = False


class Listed(NamedTuple):
    """What a reader asked of a list."""

    query: str = ""
    sort: int = 0
    is_descending: bool = False
    page: int = 1
    size: int = 200


class Found(NamedTuple):
    """An object that a search found, and where in it."""

    path: Path
    type: str
    where: str
    text: str


def submode_at(tree: Tree, place: Path) -> tuple[Submode, Mapping[str, Obj]]:
    """The declaration and the objects of a list. Raises `NotFound`."""
    if len(place) == 1:
        mode = tree.schema.mode(place[0])
        return mode, tree.mode(mode.shell)
    owner = tree.get(place[:-1])
    submode = tree.schema.submode(owner, place[-1])
    return submode, owner.below(submode.attribute)


def listing(
    tree: Tree, place: Path, asked: Listed, is_staged: Callable[[Path], bool], second: Column | None = None
) -> Table:
    """A list as `list` has it, filtered, sorted and cut into pages."""
    headers, keys, cells = _listed(tree, place, asked, second)
    pages = max(-(-len(keys) // asked.size), 1)
    page = min(max(asked.page, 1), pages)
    shown = keys[(page - 1) * asked.size : page * asked.size]
    lines = tuple(Line((*place, key), cells(key), is_staged((*place, key))) for key in shown)
    return Table(headers, lines, len(keys), page, pages)


def matching(tree: Tree, place: Path, query: str, second: Column | None = None) -> list[str]:
    """The keys that a filter leaves, on all pages."""
    return _listed(tree, place, Listed(query), second)[1]


def _listed(
    tree: Tree, place: Path, asked: Listed, second: Column | None
) -> tuple[tuple[str, ...], list[str], Callable[[str], tuple[Cell, ...]]]:
    """The headers, the keys that match in their order, and what gives the cells of one. Every word of the filter must
    be in the line, whichever column it is in."""
    submode, objects = submode_at(tree, place)
    widest: type[Entity] = max(submode.of, key=lambda entity: len(entity.columns))
    headers = widest.list_columns()
    if second is not None:
        headers.insert(1, second.header)
    keys = sorted(objects, key=int if submode.indexed else natural)

    def cells(key: str) -> tuple[Cell, ...]:
        return _cells(tree.schema, widest, objects[key], (*place, key), second)

    words = asked.query.lower().split()
    if words:
        keys = [key for key in keys if _has_words(cells(key), words)]
    column = min(asked.sort, len(headers) - 1)
    if column:
        keys.sort(key=lambda key: natural(cells(key)[column].text))
    if asked.is_descending:
        keys.reverse()
    return tuple(headers), keys, cells


def _has_words(cells: Iterable[Cell], words: Iterable[str]) -> bool:
    text = " ".join(cell.text for cell in cells).lower()
    return all(word in text for word in words)


def _cells(
    schema: Schema, widest: type[Entity], obj: Obj, path: Path, second: Column | None = None
) -> tuple[Cell, ...]:
    rows = schema.of(obj).attributes
    first = Cell(obj.key, ((obj.key, links.show(path)),))
    others = tuple(_cell(rows[name], obj, path) if name in rows else Cell("") for name in widest.columns)
    return (first, *((second.cell(obj),) if second is not None else ()), *others)


def _cell(row: Row, obj: Obj, path: Path) -> Cell:
    if isinstance(row, Field):
        return _value(row, row.value(obj))
    if isinstance(row, Submode):
        children = obj.below(row.attribute)
        place = (*path, row.attribute)
        if row.names_shown and len(children) <= _LINKED:
            return Cell(row.show(obj), tuple((key, links.show((*place, key))) for key in sorted(children)))
        count = str(len(children)) if children else "none"
        return Cell(count, ((count, links.show(place)),))
    return Cell(row.show(obj))


def _value(field: Field, value: Value | None) -> Cell:
    if value is None:
        return Cell("")
    kind, text = field.kind, field.kind.show(value)
    if kind.secret:
        return Cell(text, tone="secret")
    if isinstance(kind, Bool):
        return Cell(text, tone="yes" if value else "no")
    keys = field.targets(value)
    if keys and not isinstance(kind, NodeList) and len(keys) <= _LINKED:
        return Cell(text, tuple((key, links.show((kind.target_mode, key))) for key in keys))
    if isinstance(kind, ListOf) and not isinstance(kind, NodeList):
        return Cell(text, tuple((line, "") for line in kind.lines(value)))
    return Cell(text)


def parameters(tree: Tree, obj: Obj, path: Path) -> list[Parameters]:
    """The rows of `show` in the groups of the declaration; inherited values with who gave them, extras last."""
    groups = []
    for group, rows in tree.schema.of(obj).grouped():
        shown = tuple(_parameter(tree, obj, path, row) for row in rows)
        is_used = any(parameter.is_set or parameter.source for parameter in shown)
        groups.append(Parameters(group.label, shown, group.is_rare and not is_used))
    extras = tuple(Parameter(name, Cell(text), "extra parameter", is_set=True) for name, text in obj.extras.items())
    return [*groups, Parameters("Extra parameters", tuple(sorted(extras)))] if extras else groups


def _parameter(tree: Tree, obj: Obj, path: Path, row: Row) -> Parameter:
    if not isinstance(row, Field):
        return Parameter(row.label, _cell(row, obj, path), row.doc)
    value, source = inherited(tree, obj, row)
    if source is not None and value not in (None, ""):
        return Parameter(row.label, _value(row, value), row.doc, str(source), links.cause(tree, source))
    own = row.value(obj)
    text = str(own) if isinstance(row.kind, Blob) and own else ""
    return Parameter(row.label, _value(row, own), row.doc, is_set=row.attribute in obj.values, text=text)


def search(tree: Tree, query: str, limit: int = 100) -> list[Found]:
    """Objects whose name, values or extras hold the words; names first. What is secret is not searched."""
    needle = query.strip().lower()
    if not needle:
        return []
    named: list[Found] = []
    others: list[Found] = []
    for mode, obj in tree.objects():
        _look(tree.schema, (mode, obj.key), obj, needle, named, others)
        if len(named) >= limit:
            break
    return [*named, *others][:limit]


def _look(schema: Schema, path: Path, obj: Obj, needle: str, named: list[Found], others: list[Found]) -> None:
    if needle in obj.key.lower():
        named.append(Found(path, obj.type, "name", obj.key))
    else:
        hit = next((entry for entry in _texts(schema, obj) if needle in entry[1].lower()), None)
        if hit is not None:
            others.append(Found(path, obj.type, hit[0], _around(hit[1], needle)))
    for submode, children in obj.children.items():
        for key, child in children.items():
            _look(schema, (*path, submode, key), child, needle, named, others)


def _texts(schema: Schema, obj: Obj) -> Iterable[tuple[str, str]]:
    rows = schema.of(obj).attributes
    for name, value in obj.values.items():
        row = rows[name]
        if isinstance(row, Field) and not row.kind.secret:
            yield row.label, " ".join(row.kind.lines(value))
    yield from obj.extras.items()


def _around(text: str, needle: str) -> str:
    at = text.lower().find(needle)
    start, end = max(at - 30, 0), at + len(needle) + 50
    return ("…" if start else "") + " ".join(text[start:end].split()) + ("…" if end < len(text) else "")
