"""Histories of checks as SVG, drawn by the server so that they show without JavaScript.

In: samples, oldest first. Out: marks with coordinates for the templates; colours are the style sheet's. A check that
measures gives a line, one that passes or fails a strip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bedplate.api.states import TONES

__all__ = ["HEIGHT", "WIDTH", "Mark", "Plot", "Reading", "plot"]

WIDTH, HEIGHT = 240, 40
_MARGIN = 3
_MOST, _FEWEST = 120, 40


class Reading(NamedTuple):
    """One point of a history: when, the result, and what was measured where something is."""

    time: str
    result: str
    value: float | None = None
    detail: str = ""


class Mark(NamedTuple):
    """One sample as a bar of the strip; `tone` is a class of the style sheet."""

    x: float
    width: float
    tone: str
    words: str


@dataclass(frozen=True, slots=True)
class Plot:
    """What a template draws. `line` is the points of a polyline, empty for a strip."""

    words: str
    marks: tuple[Mark, ...]
    line: str = ""
    low: str = ""
    high: str = ""
    width: int = WIDTH
    height: int = HEIGHT


def plot(name: str, readings: Sequence[Reading]) -> Plot:
    """The newest samples as marks from left to right; where there are few, they stand at the right."""
    shown = readings[-_MOST:]
    step = WIDTH / max(len(shown), _FEWEST)
    left = WIDTH - step * len(shown)
    marks = tuple(
        Mark(round(left + at * step, 2), round(max(step - 0.6, 0.6), 2), _tone(reading.result), _words(reading))
        for at, reading in enumerate(shown)
    )
    failed = sum(reading.result == "FAIL" for reading in shown)
    summary = f"{name}: {len(shown)} results, {failed} failed" if shown else f"{name}: no results yet"
    measured = [(at, reading.value) for at, reading in enumerate(shown) if reading.value is not None]
    if len(measured) < 2:
        return Plot(summary, marks)
    values = [value for _, value in measured]
    low, high = min(values), max(values)
    points = " ".join(f"{_number(left + (at + 0.5) * step)},{_number(_y(value, low, high))}" for at, value in measured)
    return Plot(f"{summary}, between {_number(low)} and {_number(high)}", marks, points, _number(low), _number(high))


def _y(value: float, low: float, high: float) -> float:
    share = 0.5 if high == low else (value - low) / (high - low)
    return HEIGHT - _MARGIN - share * (HEIGHT - 2 * _MARGIN)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _tone(result: str) -> str:
    return TONES[result]


def _words(reading: Reading) -> str:
    value = f" {_number(reading.value)}" if reading.value is not None else ""
    detail = f": {reading.detail}" if reading.detail else ""
    return f"{reading.time} {reading.result}{value}{detail}"
