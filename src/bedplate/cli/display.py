"""What people see: tables on a terminal, JSON for programs, how far a long piece of work has come.

In: rows and column names; a sentence now and then. Out: text. Colour and redrawing only on a terminal; of progress one
line of standard error that is written over and removed in the end, and nothing at all when the work is done within two
seconds.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
import msgspec

__all__ = ["Progress", "age", "bar", "examples", "heat", "is_terminal", "output_option", "progress", "show", "table"]

QUIET_S = 2.0
EVERY_S = 0.2
_ERASE = "\r\x1b[K"

output_option = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="How to print."
)


def examples(*lines: str) -> str:
    """The end of a command's help: command lines, each with two blanks before what it is for."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))


def is_terminal() -> bool:
    """Whether standard output is a terminal that can redraw."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns aligned as kubectl aligns them."""
    cells = [[str(column).upper() for column in columns], *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    lines = ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join(lines)


def show(output: str, columns: Sequence[str], rows: Iterable[Sequence[object]], data: Any) -> None:
    """Print rows for people or `data` for programs."""
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
    else:
        click.echo(table(columns, rows))


def heat(used: int, usable: int) -> str:
    """The colour of a share: of something that fills up, and should not be full."""
    share = used / usable if usable else 0.0
    return "red" if share >= 0.9 else "yellow" if share >= 0.7 else "green"


def bar(used: int, usable: int, width: int) -> tuple[str, str]:
    """The full and the empty part of a bar: any use can be seen, and only what is full looks full."""
    share = used / usable if usable else 0.0
    cells = min(width - (used < usable), max(round(share * width), 1 if used else 0))
    return "█" * cells, "░" * (width - cells)


def age(seconds: float) -> str:
    """A span as kubectl writes it: 45s, 5m, 3h, 2d."""
    whole = max(0, int(seconds))
    for unit, size, limit in (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172800)):
        if whole < limit:
            return f"{whole // size}{unit}"
    return f"{whole // 86400}d"


class Progress:
    """Call it with what has been done so far."""

    def __init__(self, *, is_watched: bool) -> None:
        self._is_watched = is_watched
        self._next = time.monotonic() + QUIET_S
        self._has_said = False

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        if self._is_watched and now >= self._next:
            self._next, self._has_said = now + EVERY_S, True
            click.echo(f"{_ERASE}{text} …", err=True, nl=False)

    def done(self) -> None:
        """Leave no trace."""
        if self._has_said:
            click.echo(_ERASE, err=True, nl=False)
            self._has_said = False


@contextmanager
def progress() -> Iterator[Progress]:
    """A progress that is gone when its block ends, however it ends."""
    shown = Progress(is_watched=sys.stderr.isatty())
    try:
        yield shown
    finally:
        shown.done()
