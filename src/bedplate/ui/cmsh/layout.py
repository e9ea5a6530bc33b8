"""What commands print: tables, JSON, help pages, times. Pure.

In: headers and cells, or a declared command. Out: text, line ends included. Widths are those of the longest cell, or
as asked for; a description longer than 24 letters, and any other cell but a key longer than 60, is cut with `+` unless
asked not to. JSON has numbers and booleans as such.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, cast

from bedplate.ui.cmsh.language import Usage

if TYPE_CHECKING:
    from bedplate.ui.cmsh.command import Command

__all__ = ["Cell", "Table", "help_page", "local_time", "render", "shown"]

_DESCRIPTION = 24
_WIDEST = 60
_AT_ONCE = 500
_KEY = " (key)"


Cell = str | int | float | bool | None


class Block(Protocol):
    """The columns of some rows, and what was made of them before."""

    @property
    def columns(self) -> Sequence[Sequence[Cell]]: ...

    @property
    def laid(self) -> dict[object, Any]: ...


@dataclass(frozen=True)
class Table:
    """Cells as text, or as numbers and yes or no, which JSON keeps. `uncut` are the columns that are never cut; `times`
    hold RFC 3339, shown in local time; `widths` are columns of a given width. `blocks` may stand for `rows`: columns
    of some rows, then of the next ones, none of them empty."""

    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]] = ()
    uncut: frozenset[int] = field(default_factory=lambda: frozenset({0}))
    times: frozenset[int] = frozenset()
    widths: Mapping[int, int] = field(default_factory=dict)
    blocks: Sequence[Block] = ()


def shown(cell: Cell) -> str:
    """A cell as people read it."""
    if isinstance(cell, str):
        return cell
    return "" if cell is None else ("yes" if cell else "no") if isinstance(cell, bool) else str(cell)


def render(table: Table, *, verbose: bool = False, delimiter: str = "") -> str:
    """The table as people read it; with a delimiter as programs do: `{}` is JSON, `{2}` JSON indented by 2."""
    if delimiter.startswith("{") and delimiter.endswith("}"):
        return _json(table, delimiter[1:-1])
    # By blocks, and in them by columns: what is asked of a column is not asked of each of its cells, and what is asked
    # of a cell is asked while it is in the processor's cache. A block that was laid before is not laid again.
    if delimiter:
        lines = [delimiter.join(table.headers)]
        for block in _blocks(table):
            parts = [_texts(column, at in table.times)[0] for at, column in enumerate(block.columns)]
            lines.append("\n".join(map(delimiter.join, zip(*parts, strict=True))))
        return "\n".join([*lines, ""])
    headers = [_cut(header, table.widths.get(at, 0)) for at, header in enumerate(table.headers)]
    widths = [max(len(header), table.widths.get(at, 0)) for at, header in enumerate(headers)]
    mosts = [0 if verbose else table.widths.get(at, 0) or _most(table, at) for at in range(len(headers))]
    manner, laid = (table.times, *mosts), []
    for block in reversed(_blocks(table)):  # from the end: numbers grow, and so do widths
        part = block.laid.get(manner)
        is_new = part is None
        if part is None:
            part = block.laid[manner] = _Part.of(block.columns, mosts, table.times)
        widths = [*map(max, widths, part.longest)]
        if is_new:
            part.text(widths)
        laid.append(part)
    lines = [_lines(widths[:-1], [[header] for header in headers]), " ".join(["-" * width for width in widths])]
    return "\n".join([*lines, *(part.text(widths) for part in reversed(laid)), ""])


def _blocks(table: Table) -> Sequence[Block]:
    if table.blocks:
        return table.blocks
    firsts = range(0, len(table.rows), _AT_ONCE)
    return [_Rows([*zip(*table.rows[first : first + _AT_ONCE], strict=True)]) for first in firsts]


@dataclass(frozen=True, slots=True)
class _Rows:
    columns: Sequence[Sequence[Cell]]
    laid: dict[object, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Part:
    """The cells of a block without the empty columns at its end, the lengths of the longest of every column, and the
    last text that was made of them, with the widths it depends on: the last column of a line is not filled up."""

    cells: Sequence[Sequence[str]]
    longest: Sequence[int]
    _widths: Sequence[int] | None = None
    _text: str = ""

    @classmethod
    def of(cls, columns: Sequence[Sequence[Cell]], mosts: Sequence[int], times: Collection[int]) -> _Part:
        laid = [_laid(column, mosts[at], at in times) for at, column in enumerate(columns)]
        longest = [length for _, length in laid]
        while len(laid) > 1 and not laid[-1][1]:
            laid.pop()
        return cls([cells for cells, _ in laid], longest)

    def text(self, widths: Sequence[int]) -> str:
        """The lines of the block in columns of those widths."""
        own = widths[: len(self.cells) - 1]
        if self._widths != own:
            self._widths, self._text = own, _lines(own, self.cells)
        return self._text


def _lines(widths: Sequence[int], cells: Sequence[Sequence[str]]) -> str:
    """One text for each line and none for each cell, and those soon joined: memory that is got from the machine and
    given back at once would cost the most of all. The last column has any width."""
    form = " ".join([*(f"%-{width}s" for width in widths), "%s"])
    return "\n".join([(form % row).rstrip() for row in zip(*cells, strict=True)])


def _texts(column: Sequence[Cell], is_time: bool) -> tuple[Sequence[str], str]:
    """The cells as people read them, and all of them as one text."""
    texts = cast("Sequence[str]", column)
    try:
        whole = "".join(texts)
    except TypeError:  # numbers, yes or no, nothing
        texts = [shown(cell) for cell in column]
        whole = "".join(texts)
    if is_time:
        texts = [local_time(text) for text in texts]
    return texts, whole


def _laid(column: Sequence[Cell], most: int, is_time: bool) -> tuple[Sequence[str], int]:
    """The cells of a column, which are not as wide yet, and the length of the longest."""
    texts, whole = _texts(column, is_time)
    if "\n" in whole:
        texts = [text.replace("\n", "\\n") for text in texts]
    longest = max(map(len, texts))
    if most and longest > most:
        return [_cut(text, most) for text in texts], most
    return texts, longest


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
    rows = (row for block in _blocks(table) for row in zip(*block.columns, strict=True))
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
