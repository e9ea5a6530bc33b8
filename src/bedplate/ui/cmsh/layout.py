"""What commands print: tables, JSON, help pages, times. Pure.

In: headers and cells, or a declared command. Out: text, line ends included. Widths are those of the longest cell, or
as asked for; a description longer than 24 letters, and any other cell but a key longer than 60, is cut with `+` unless
asked not to. JSON has numbers and booleans as such.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from bedplate.ui.cmsh.language import Usage

if TYPE_CHECKING:
    from bedplate.ui.cmsh.command import Command

__all__ = ["Cell", "Table", "help_page", "local_time", "render", "shown"]

_DESCRIPTION = 24
_WIDEST = 60
_AT_ONCE = 500
_KEY = " (key)"


Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Table:
    """Cells as text, or as numbers and yes or no, which JSON keeps. `uncut` are the columns that are never cut; `times`
    hold RFC 3339, shown in local time; `widths` are columns of a given width. `columns` may stand for `rows`."""

    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]] = ()
    uncut: frozenset[int] = field(default_factory=lambda: frozenset({0}))
    times: frozenset[int] = frozenset()
    widths: Mapping[int, int] = field(default_factory=dict)
    columns: Sequence[Sequence[Cell]] = ()


def shown(cell: Cell) -> str:
    """A cell as people read it."""
    if isinstance(cell, str):
        return cell
    return "" if cell is None else ("yes" if cell else "no") if isinstance(cell, bool) else str(cell)


def render(table: Table, *, verbose: bool = False, delimiter: str = "") -> str:
    """The table as people read it; with a delimiter as programs do: `{}` is JSON, `{2}` JSON indented by 2."""
    if delimiter.startswith("{") and delimiter.endswith("}"):
        return _json(table, delimiter[1:-1])
    # By columns: what is asked of a column is not asked of each of its ten thousand cells.
    columns = [_texts(table, at) for at in range(len(table.headers))]
    if delimiter:
        lines = [delimiter.join(table.headers), *map(delimiter.join, zip(*columns, strict=True))]
    else:
        laid = [_laid(table, at, column, verbose) for at, column in enumerate(columns)]
        # One text for each line and none for each cell, and those soon joined: memory that is got from the machine and
        # given back at once would cost the most of all.
        form = " ".join([f"%-{width}s" for _, width, _ in laid])
        headers, rulers = [header for header, _, _ in laid], ["-" * width for _, width, _ in laid]
        rows = zip(*[cells for _, _, cells in laid], strict=True)
        lines = [(form % tuple(headers)).rstrip(), " ".join(rulers)]
        for _ in range(0, len(laid[0][2]) if laid else 0, _AT_ONCE):
            lines.append("\n".join([(form % cells).rstrip() for cells in islice(rows, _AT_ONCE)]))
    return "\n".join([*lines, ""])


def _texts(table: Table, at: int) -> list[str]:
    column = table.columns[at] if table.columns else [row[at] for row in table.rows]
    texts = [cell if cell.__class__ is str else shown(cell) for cell in column]
    return [local_time(text) for text in texts] if at in table.times else texts


def _laid(table: Table, at: int, texts: Sequence[str], verbose: bool) -> tuple[str, int, Sequence[str]]:
    """The header, the width and the cells of a column, which are not as wide yet."""
    width = table.widths.get(at, 0)
    cells = texts
    if any("\n" in "".join(cells[first : first + _AT_ONCE]) for first in range(0, len(cells), _AT_ONCE)):
        cells = [text.replace("\n", "\\n") for text in cells]
    most = 0 if verbose else width or _most(table, at)
    if most and max(map(len, cells), default=0) > most:
        cells = [_cut(cell, most) for cell in cells]
    header = _cut(table.headers[at], width)
    return header, max(len(header), width, max(map(len, cells), default=0)), cells


def _most(table: Table, at: int) -> int:
    """How many letters a cell of a column may have; 0 for any number."""
    if at in table.uncut:
        return 0
    return _DESCRIPTION if table.headers[at] == "Description" else _WIDEST


def _cut(cell: str, most: int) -> str:
    """The cell in at most so many letters, 0 for any number, with a `+` where some are missing."""
    return cell if not most or len(cell) <= most else cell[: most - 1] + "+"


def _json(table: Table, indent: str) -> str:
    import json

    if indent and not (indent.isascii() and indent.isdigit()):
        raise Usage(f"{indent!r} is not an indentation", hint="-d {} gives JSON, -d {2} JSON indented by 2")
    names = [header.removesuffix(_KEY) for header in table.headers]
    rows = zip(*table.columns, strict=True) if table.columns else table.rows
    objects: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in rows]
    return json.dumps(objects, indent=int(indent) if indent else None, ensure_ascii=False) + "\n"


def local_time(stamp: str) -> str:
    """A time of the head's as tables show it: local, `2021/11/29 11:52:44`; anything else stays as it is."""
    try:
        return datetime.fromisoformat(stamp).astimezone().strftime("%Y/%m/%d %H:%M:%S")
    except ValueError:
        return stamp


def help_page(command: Command) -> str:
    """Name, Usage, Options where there are any, Examples."""
    lines = ["Name:", f"        {command.name} - {command.about}", "", "Usage:"]
    lines += [f"        {usage}" for usage in command.usage]
    if command.options:
        lines += ["", "Options:"]
        for option in command.options:
            lines += [f"        {option.shown()}", f"            {option.doc}", ""]
        lines.pop()
    lines += ["", "Examples:"]
    width = max(len(example) for example, _ in command.examples)
    lines += [f"        {example.ljust(width)}  {about}".rstrip() for example, about in command.examples]
    return "\n".join(lines) + "\n"
