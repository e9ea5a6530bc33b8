"""Logging for every program: a constant event name with values as keys.

In: a `LogOptions` from the entry point, once. Out: lines on standard error, as text for people or JSON for machines.
Verbosity follows Kubernetes components: `-v 0` shows what an operator must know, 2 adds decisions, 4 debug detail,
6 requests, 8 their contents. `log.v(4).info(...)` is written when the program runs with `-v 4` or more, or when
`vmodule` gives loggers of that name such a level.
"""

from __future__ import annotations

import fnmatch
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, TextIO

from bedplate.core import loglines

__all__ = ["LogOptions", "Logger", "configure", "get_logger", "set_verbosity", "verbosity"]

_state = {"verbosity": 0, "quiet": 0}
_modules: list[tuple[str, int]] = []


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How a program logs."""

    verbosity: int = 0
    format: str = "text"
    color: bool | None = None
    is_quiet: bool = False
    """Warnings and errors only: for commands whose output is an answer, not a log."""
    vmodule: tuple[tuple[str, int], ...] = ()
    """Levels of single loggers: a pattern of the name or of its last part (`kube`, `runtime.*`), and the level."""
    is_split: bool = False
    """Errors on standard error, everything else on standard output."""
    info_buffer: int = 0
    """With split streams: how much of standard output is buffered, and for how long at most."""
    flush_s: float = 5.0


class Logger:
    """Writes lines that carry the same values."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, object]) -> None:
        self._values = values

    def bind(self, **values: object) -> Logger:
        """A logger that adds these values to every line."""
        return Logger({**self._values, **values})

    def v(self, level: int) -> Logger:
        """This logger, or one that is silent when the program runs below that verbosity."""
        return self if self.shows(level) else _SILENT

    def shows(self, level: int) -> bool:
        """Whether lines of that level are written: to be asked before a line that is costly to make."""
        return level <= _state["verbosity"] or (bool(_modules) and level <= self._own_level())

    def _own_level(self) -> int:
        name = str(self._values.get("logger", ""))
        names = (name, name.rpartition(".")[2])
        return next(
            (level for pattern, level in _modules if any(fnmatch.fnmatchcase(logger, pattern) for logger in names)), 0
        )

    def debug(self, event: str, **values: object) -> None:
        self.v(4)._write("debug", event, values)

    def info(self, event: str, **values: object) -> None:
        self._write("info", event, values)

    def warning(self, event: str, **values: object) -> None:
        self._write("warning", event, values)

    def error(self, event: str, **values: object) -> None:
        self._write("error", event, values)

    def exception(self, event: str, **values: object) -> None:
        """An error with the traceback of the exception being handled: for bugs, not for expected failures."""
        self._write("error", event, {"exc_info": True, **values})

    def _write(self, method: str, event: str, values: dict[str, object]) -> None:
        if _state["quiet"] and method in ("debug", "info"):
            return
        _output.write(method, event, {**self._values, **values})


class _Silent(Logger):
    __slots__ = ()

    def bind(self, **values: object) -> Logger:
        return self

    def _write(self, method: str, event: str, values: dict[str, object]) -> None:
        return None


_SILENT = _Silent({})


class _Sink(Protocol):
    """Takes rendered lines, by whether they are errors."""

    def info(self, line: str) -> None: ...

    def error(self, line: str) -> None: ...


class _Stream:
    """One stream for all lines; None: whatever standard error is at that moment."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def info(self, line: str) -> None:
        stream = self._stream if self._stream is not None else sys.stderr
        with self._lock:
            stream.write(line + "\n")
            stream.flush()

    error = info


class _Output:
    """How and where lines are written."""

    def __init__(self, options: LogOptions, sink: _Sink, info: TextIO | None) -> None:
        self._sink = sink
        self._is_json = options.format == "json"
        self._has_colors = options.color if options.color is not None else info is not None and info.isatty()

    def write(self, level: str, event: str, values: Mapping[str, object]) -> None:
        error: BaseException | None = None
        if "exc_info" in values:
            error = sys.exc_info()[1]
            values = {key: value for key, value in values.items() if key != "exc_info"}
        now = datetime.now(UTC)
        if self._is_json:
            line = loglines.as_json(level, event, values, now, error)
        else:
            line = loglines.as_text(level, event, values, now, error, has_colors=self._has_colors)
        try:
            (self._sink.error if level == "error" else self._sink.info)(line)
        except BrokenPipeError:
            raise
        except OSError:
            # A full disk costs the line, not the work that it is about.
            return


_output = _Output(LogOptions(), _Stream(None), None)


def verbosity() -> int:
    """The `-v` level in force."""
    return _state["verbosity"]


def set_verbosity(level: int) -> None:
    """Change the level while the program runs."""
    _state["verbosity"] = level


def configure(options: LogOptions, stream: TextIO | None = None, info_stream: TextIO | None = None) -> None:
    """Set up logging for the process; called once by an entry point (and by tests). `info_stream` takes what are not
    errors when streams are split."""
    out = stream if stream is not None else sys.stderr
    info = info_stream if info_stream is not None else sys.stdout
    set_verbosity(options.verbosity)
    _state["quiet"] = int(options.is_quiet)
    _modules[:] = options.vmodule
    global _output
    if options.is_split:
        from bedplate.core.logstreams import SplitStreams

        _output = _Output(options, SplitStreams(info, out, options.info_buffer, options.flush_s), info)
    else:
        _output = _Output(options, _Stream(out), out)


def get_logger(name: str, **values: object) -> Logger:
    """A logger whose lines carry `logger=name` and the given values."""
    return Logger({"logger": name, **values})
