"""Says what happens: to standard output in one of the forms, to the log file, to the display of a terminal.

In: events and log lines with unmasked texts. Out: the same everywhere, with secrets as stars. This is the only way out
for what stages say, so that nothing is printed unmasked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol

from bedplate.core.clock import Clock
from bedplate.setup.engine.events import Event, Failed, Finished, Line, Message, Output, StageBegan
from bedplate.setup.engine.formats import Format, console
from bedplate.setup.engine.logfile import LogFile, StageLog
from bedplate.setup.engine.masking import Masker

__all__ = ["Display", "NoDisplay", "Reporter"]


class Display(Protocol):
    """Shows how far a run is, below the lines that are printed."""

    def show(self, percent: int, running: Sequence[str]) -> None: ...

    def hide(self) -> None: ...

    def print(self, text: str) -> None: ...


class NoDisplay:
    """Prints lines and shows nothing else."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write

    def show(self, percent: int, running: Sequence[str]) -> None:
        """Nothing: what is not a terminal has the progress lines."""

    def hide(self) -> None:
        """Nothing is shown."""

    def print(self, text: str) -> None:
        self._write(text + "\n")


class Reporter:
    """One for a run of the tool."""

    def __init__(
        self,
        display: Display,
        clock: Clock,
        *,
        format_: Format = console,
        log: LogFile | None = None,
        masker: Masker | None = None,
    ) -> None:
        self.display = display
        self.masker = masker or Masker()
        self._format = format_
        self._log = log
        self._clock = clock

    @property
    def log_path(self) -> str:
        return str(self._log.path) if self._log is not None else ""

    def emit(self, event: Event) -> None:
        """Print an event, and note it in the log."""
        masked = self._masked(event)
        for text in self._format(masked, self._clock.now().astimezone()):
            self.display.print(text)
        self._note(masked)

    def stage_log(self, module: str) -> StageLog:
        return StageLog(self.log, module)

    def log(self, level: str, module: str, text: str) -> None:
        """A line for the log file alone."""
        if self._log is not None:
            self._log.write(level, module, self.masker(text))

    def _masked(self, event: Event) -> Event:
        match event:
            case Failed(text=text, hint=hint):
                return dataclasses.replace(event, text=self.masker(text), hint=self.masker(hint))
            case Line(text=text) | Message(text=text) | Output(text=text):
                return dataclasses.replace(event, text=self.masker(text))
        return event

    def _note(self, event: Event) -> None:
        now = self._clock.now().astimezone()
        level = "error" if isinstance(event, Failed) else getattr(event, "level", "info")
        if isinstance(event, Message) and event.text.startswith("Warning: "):
            level = "warning"
        if isinstance(event, Message | StageBegan | Failed | Finished) or hasattr(event, "title"):
            for text in console(event, now):
                if text:
                    self.log(level, __name__, text)
