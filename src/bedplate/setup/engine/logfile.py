"""The log file of a setup tool.

In: where it should be, and texts that are masked. Out: lines `L yy-mm-dd HH:MM:SS | module | message` in local time,
with L the first letter of the level, appended. Where the file cannot be written, another one is used and said.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TextIO

from bedplate.core import errors
from bedplate.core.clock import Clock

__all__ = ["LogFile", "StageLog", "line"]

_LETTERS = {"debug": "D", "info": "I", "warning": "W", "error": "E"}


def line(level: str, now: datetime, module: str, text: str) -> str:
    """One line of the file; `now` is shown in its own zone."""
    return f"{_LETTERS[level]} {now:%y-%m-%d %H:%M:%S} | {module} | {text}"


class LogFile:
    """An open log file. Lines of debugging are written when `is_verbose`."""

    def __init__(self, path: Path, stream: TextIO, clock: Clock, *, is_verbose: bool = False) -> None:
        self.path = path
        self._stream = stream
        self._clock = clock
        self._is_verbose = is_verbose

    @classmethod
    def open(cls, path: Path, fallback: Path, clock: Clock, *, is_verbose: bool = False) -> tuple[LogFile, str]:
        """The file, and a sentence where it is not the first one, else nothing. Raises `Invalid` if neither works."""
        try:
            return cls(path, _opened(path), clock, is_verbose=is_verbose), ""
        except OSError as err:
            reason = err.strerror
        try:
            fallback.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            stream = _opened(fallback)
        except OSError as err:
            raise errors.Invalid(
                f"neither {path} ({reason}) nor {fallback} ({err.strerror}) can be written",
                hint="give another file with --log-file",
            ) from err
        sentence = f"The log file {path} cannot be written ({reason}); logging to {fallback}"
        return cls(fallback, stream, clock, is_verbose=is_verbose), sentence

    def write(self, level: str, module: str, text: str) -> None:
        if level == "debug" and not self._is_verbose:
            return
        now = self._clock.now().astimezone()
        for part in text.splitlines() or [""]:
            self._stream.write(line(level, now, module, part) + "\n")
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()


class StageLog:
    """What a stage gets as `context.log`."""

    def __init__(self, write: Callable[[str, str, str], None], module: str) -> None:
        self._write = write
        self._module = module

    def debug(self, text: str) -> None:
        self._write("debug", self._module, text)

    def info(self, text: str) -> None:
        self._write("info", self._module, text)

    def warning(self, text: str) -> None:
        self._write("warning", self._module, text)

    def error(self, text: str) -> None:
        self._write("error", self._module, text)


def _opened(path: Path) -> TextIO:
    import os

    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    return os.fdopen(descriptor, "a", encoding="utf-8", errors="replace")
