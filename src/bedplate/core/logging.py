"""Logging for every program: a constant event name with values as keys.

In: a `LogOptions` from the entry point, once. Out: lines on standard error, as text for people or JSON for machines.
Verbosity follows Kubernetes components: `-v 0` shows what an operator must know, 2 adds decisions, 4 debug detail,
6 requests, 8 their contents. `log.v(4).info(...)` is written when the program runs with `-v 4` or more, or when
`vmodule` gives loggers of that name such a level.

structlog is loaded with the first line that is written: it costs every start 90 ms of CPU, and most commands that
answer a question log nothing.
"""

from __future__ import annotations

import fnmatch
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO

__all__ = ["LogOptions", "Logger", "configure", "get_logger", "set_verbosity", "verbosity"]

_state = {"verbosity": 0, "quiet": 0}
_modules: list[tuple[str, int]] = []
_pending: list[Callable[[], None]] = []
"""What `configure` was told and nothing has been written with yet; at most one."""


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
    """A thin wrapper over structlog that adds Kubernetes verbosity levels."""

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
        import structlog

        while _pending:
            _pending.pop()()
        # structlog is configured for every line: a module makes its logger at import, before `configure` is called.
        getattr(structlog.get_logger(), method)(event, **{**self._values, **values})


class _Silent(Logger):
    __slots__ = ()

    def bind(self, **values: object) -> Logger:
        return self

    def _write(self, method: str, event: str, values: dict[str, object]) -> None:
        return None


_SILENT = _Silent({})


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
    _pending[:] = [lambda: _apply(options, out, info)]
    if "structlog" in sys.modules:
        _pending.pop()()


def _apply(options: LogOptions, out: TextIO, info: TextIO) -> None:
    import structlog

    factory: Any = structlog.WriteLoggerFactory(file=out)
    if options.is_split:
        from bedplate.core.logstreams import SplitStreams

        streams = SplitStreams(info, out, options.info_buffer, options.flush_s)
        factory = lambda *_: streams  # noqa: E731
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    if options.format == "json":
        # Tracebacks without the values of variables, which structlog would add: they hold tokens and keys.
        shapes = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        tail: list[Any] = [
            structlog.processors.ExceptionRenderer(shapes),
            structlog.processors.JSONRenderer(default=str),
        ]
    else:
        colors = options.color if options.color is not None else (info if options.is_split else out).isatty()
        renderer = structlog.dev.ConsoleRenderer(
            colors=colors, pad_event_to=28, exception_formatter=structlog.dev.plain_traceback
        )
        tail = [renderer]
    structlog.configure(
        processors=[*shared, *tail],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING if options.is_quiet else logging.DEBUG),
        logger_factory=factory,
        cache_logger_on_first_use=False,
    )


def get_logger(name: str, **values: object) -> Logger:
    """A logger whose lines carry `logger=name` and the given values."""
    return Logger({"logger": name, **values})
