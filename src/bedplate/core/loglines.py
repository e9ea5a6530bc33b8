"""One log line as text for people or JSON for machines.

In: level, event and values of a line, the time, and the exception that is to be shown, if any. Out: the line, without
its newline. Pure. Tracebacks show where, never the values of variables: those hold tokens and keys.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from datetime import datetime
from typing import Any

__all__ = ["as_json", "as_text"]

EVENT_WIDTH, LEVEL_WIDTH = 28, 9
MOST_FRAMES = 50
_NEEDS_QUOTES = frozenset(" \t=\r\n\"'")
_RESET, _BRIGHT, _DIM = "\x1b[0m", "\x1b[1m", "\x1b[2m"
_RED, _GREEN, _YELLOW, _BLUE, _MAGENTA, _CYAN = (f"\x1b[3{number}m" for number in (1, 2, 3, 4, 5, 6))
_COLORS = {"error": _RED, "warning": _YELLOW}


def as_text(
    level: str,
    event: str,
    values: Mapping[str, object],
    now: datetime,
    error: BaseException | None = None,
    *,
    has_colors: bool = False,
) -> str:
    """Time, level, event, logger, then values in the order of their names; below it the traceback."""
    rest = sorted((key, _shown(value)) for key, value in values.items() if key != "logger")
    logger = str(values.get("logger", ""))
    if has_colors:
        line = (
            f"{_DIM}{_moment(now)}{_RESET} [{_COLORS.get(level, _GREEN)}{_BRIGHT}{level:<{LEVEL_WIDTH}}{_RESET}] "
            f"{_BRIGHT}{event:<{EVENT_WIDTH}}{_RESET} [{_RESET}{_BRIGHT}{_BLUE}{logger}{_RESET}]{_RESET}"
        )
        parts = [f" {_CYAN}{key}{_RESET}={_MAGENTA}{value}{_RESET}" for key, value in rest]
    else:
        line = f"{_moment(now)} [{level:<{LEVEL_WIDTH}}] {event:<{EVENT_WIDTH}} [{logger}]"
        parts = [f" {key}={value}" for key, value in rest]
    below = "\n" + "".join(traceback.format_exception(error)).rstrip("\n") if error is not None else ""
    return line + "".join(parts) + below


def as_json(
    level: str, event: str, values: Mapping[str, object], now: datetime, error: BaseException | None = None
) -> str:
    """An object with the values in their order, then event, level, timestamp, exception."""
    line: dict[str, object] = {**values, "event": event, "level": level, "timestamp": _moment(now)}
    if error is not None:
        line["exception"] = _stacks(error)
    return json.dumps(line, default=str)


def _moment(now: datetime) -> str:
    return now.isoformat().replace("+00:00", "Z")


def _shown(value: object) -> str:
    if not isinstance(value, str):
        return repr(value)
    # What a terminal would obey is shown, not sent.
    return repr(value) if not _NEEDS_QUOTES.isdisjoint(value) or not value.isprintable() else value


def _stacks(error: BaseException) -> list[dict[str, Any]]:
    """The exception, then what caused it or was being handled when it was raised, and so on."""
    stacks: list[dict[str, Any]] = []
    seen: set[int] = set()
    is_cause = False
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        group = current.exceptions if isinstance(current, BaseExceptionGroup) else ()
        stacks.append(
            {
                "exc_type": type(current).__name__,
                "exc_value": _text(current),
                "exc_notes": [str(note) for note in getattr(current, "__notes__", ())],
                "syntax_error": _syntax_error(current),
                "is_cause": is_cause,
                "frames": _frames(current),
                "is_group": isinstance(current, BaseExceptionGroup),
                "exceptions": [_stacks(member) for member in group],
            }
        )
        is_cause = current.__cause__ is not None
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return stacks


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return f"<a {type(error).__name__} that cannot be written>"


def _syntax_error(error: BaseException) -> dict[str, Any] | None:
    if not isinstance(error, SyntaxError):
        return None
    where = {"offset": error.offset or 0, "filename": error.filename or "?", "line": error.text or ""}
    return {**where, "lineno": error.lineno or 0, "msg": error.msg}


def _frames(error: BaseException) -> list[dict[str, Any]]:
    frames = [
        {"filename": frame.f_code.co_filename, "lineno": number, "name": frame.f_code.co_name}
        for frame, number in traceback.walk_tb(error.__traceback__)
    ]
    half = MOST_FRAMES // 2
    return frames if len(frames) <= MOST_FRAMES else frames[:half] + frames[-half:]
