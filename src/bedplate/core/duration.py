"""Durations in Go's syntax (`1h30m`, `250ms`, `1.5s`), which every Kubernetes flag and file uses.

In: text. Out: seconds as a float; and back.
"""

from __future__ import annotations

import re

__all__ = ["format_duration", "parse_duration"]

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")


def parse_duration(text: str) -> float:
    """Seconds in `text`; raises ValueError with an example when it is not a Go duration."""
    body = text[1:] if text[:1] in "+-" else text
    if body == "0":
        return 0.0
    total, position = 0.0, 0
    while position < len(body):
        part = _PART.match(body, position)
        if part is None:
            break
        total += float(part[1]) * _UNITS[part[2]]
        position = part.end()
    if position == 0 or position != len(body):
        raise ValueError(f"{text!r} is not a duration (for example 5m, 1h30m or 250ms)")
    return -total if text.startswith("-") else total


def format_duration(seconds: float) -> str:
    """The shortest Go form of a duration: 90 -> `1m30s`, 0.25 -> `250ms`."""
    if seconds == 0:
        return "0s"
    sign, rest = ("-", -seconds) if seconds < 0 else ("", seconds)
    if rest < 1:
        milliseconds = rest * 1000
        return f"{sign}{milliseconds:.6g}ms" if milliseconds >= 1 else f"{sign}{rest * 1e6:.6g}µs"
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    text = (f"{int(hours)}h" if hours else "") + (f"{int(minutes)}m" if minutes else "")
    return sign + text + (f"{rest:.9g}s" if rest or not text else "")
