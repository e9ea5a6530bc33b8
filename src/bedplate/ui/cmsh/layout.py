"""What commands print: tables, JSON, help pages, times. Pure.

In: headers and cells, or a declared command. Out: text, line ends included. Widths are those of the longest cell, or
as asked for; a description longer than 24 letters, and any other cell but a key longer than 60, is cut with `+` unless
asked not to. JSON has numbers and booleans as such.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from bedplate.ui.cmsh.language import Usage

if TYPE_CHECKING:
    from bedplate.ui.cmsh.command import Command

__all__ = ["Cell", "Table", "help_page", "local_time", "render", "shown"]

_DESCRIPTION = 24
_WIDEST = 60
_KEY = " (key)"


Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Table:
    """Cells as text, or as numbers and yes or no, which JSON keeps. `uncut` are the columns that are never cut; `times`
    hold RFC 3339, shown in local time; `widths` are columns of a given width."""

    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    uncut: frozenset[int] = field(default_factory=lambda: frozenset({0}))
    times: frozenset[int] = frozenset()
    widths: Mapping[int, int] = field(default_factory=dict)


def shown(cell: Cell) -> str:
    """A cell as people read it."""
    if isinstance(cell, str):
        return cell
    return "" if cell is None else ("yes" if cell else "no") if isinstance(cell, bool) else str(cell)


def render(table: Table, *, verbose: bool = False, delimiter: str = "") -> str:
    """The table as people read it; with a delimiter as programs do: `{}` is JSON, `{2}` JSON indented by 2."""
    if delimiter.startswith("{") and delimiter.endswith("}"):
        return _json(table, delimiter[1:-1])
    rows = [
        [local_time(shown(cell)) if at in table.times else shown(cell) for at, cell in enumerate(row)]
        for row in table.rows
    ]
    if delimiter:
        return "".join(delimiter.join(row) + "\n" for row in [list(table.headers), *rows])
    cut = [[_cell(table, at, cell, verbose) for at, cell in enumerate(row)] for row in rows]
    headers = [_cut(header, table.widths.get(at, 0)) for at, header in enumerate(table.headers)]
    widths = [
        max([len(header), table.widths.get(at, 0), *(len(row[at]) for row in cut)]) for at, header in enumerate(headers)
    ]
    rulers = ["-" * width for width in widths]
    return "".join(_line(row, widths) for row in [headers, rulers, *cut])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return " ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() + "\n"


def _cell(table: Table, at: int, cell: str, verbose: bool) -> str:
    cell = cell.replace("\n", "\\n")
    if verbose:
        return cell
    if at in table.widths:
        return _cut(cell, table.widths[at])
    if at in table.uncut:
        return cell
    return _cut(cell, _DESCRIPTION if table.headers[at] == "Description" else _WIDEST)


def _cut(cell: str, most: int) -> str:
    """The cell in at most so many letters, 0 for any number, with a `+` where some are missing."""
    return cell if not most or len(cell) <= most else cell[: most - 1] + "+"


def _json(table: Table, indent: str) -> str:
    import json

    if indent and not (indent.isascii() and indent.isdigit()):
        raise Usage(f"{indent!r} is not an indentation", hint="-d {} gives JSON, -d {2} JSON indented by 2")
    names = [header.removesuffix(_KEY) for header in table.headers]
    objects: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in table.rows]
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
