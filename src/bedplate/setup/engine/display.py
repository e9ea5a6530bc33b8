"""The live progress display of a terminal: a bar, the running stages and their time, below the printed lines.

In: percent and running stages. Out: a few lines at the bottom of the terminal, redrawn in place, gone at the end. The
printed lines are the same as without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bedplate.core.clock import Clock

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

__all__ = ["LiveDisplay"]

_MOST_ROWS = 6


class LiveDisplay:
    """Needs the package rich."""

    def __init__(self, clock: Clock, console: Console | None = None) -> None:
        from rich.console import Console

        self._console = console or Console(highlight=False)
        self._clock = clock
        self._live: Live | None = None
        self._began = clock.monotonic()
        self._percent = 0
        self._since: dict[str, float] = {}

    def show(self, percent: int, running: Sequence[str]) -> None:
        from rich.live import Live

        now = self._clock.monotonic()
        self._percent = percent
        self._since = {name: self._since.get(name, now) for name in running}
        if self._live is None:
            self._live = Live(get_renderable=self._picture, console=self._console, transient=True, refresh_per_second=4)
            self._live.start()
        else:
            self._live.refresh()

    def hide(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def print(self, text: str) -> None:
        from rich.text import Text

        style = "bold" if text.startswith("####") else "red" if text.startswith("Error:") else ""
        if text.startswith("Warning:"):
            style = "yellow"
        self._console.print(Text(text, style=style), soft_wrap=True)

    def _picture(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        now = self._clock.monotonic()
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=100, completed=self._percent, width=40), f"{self._percent:>3} %", _span(now - self._began)
        )
        names = list(self._since.items())
        rows = [Text(f"  {name}  {_span(now - since)}", overflow="ellipsis", no_wrap=True) for name, since in names]
        if len(rows) > _MOST_ROWS:
            rows = [*rows[: _MOST_ROWS - 1], Text(f"  and {len(rows) - _MOST_ROWS + 1} more")]
        return Group(bar, *rows)


def _span(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02}:{rest:02}"
