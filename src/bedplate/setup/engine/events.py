"""What happens in a run, as values that `formats` turns into lines. Texts are masked before they get here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Began", "Event", "Failed", "Finished", "Line", "Message", "Mode", "Output", "Progress", "StageBegan"]

Mode = Literal["run", "undo"]


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence that belongs to no stage, such as the one about the connection."""

    text: str
    level: str = "info"


@dataclass(frozen=True, slots=True)
class Began:
    title: str
    count: int
    plugins: tuple[str, ...]
    mode: Mode = "run"


@dataclass(frozen=True, slots=True)
class Progress:
    percent: int


@dataclass(frozen=True, slots=True)
class StageBegan:
    plugin: str
    name: str
    mode: Mode = "run"


@dataclass(frozen=True, slots=True)
class Message:
    plugin: str
    stage: str
    text: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A critical error of a stage; `hint` is what to do about it."""

    plugin: str
    stage: str
    text: str
    hint: str = ""
    mode: Mode = "run"


@dataclass(frozen=True, slots=True)
class Finished:
    title: str
    status: str
    percent: int
    took_s: float


@dataclass(frozen=True, slots=True)
class Output:
    """Lines of an action without stages, such as a list of versions."""

    text: str


Event = Line | Began | Progress | StageBegan | Message | Failed | Finished | Output
