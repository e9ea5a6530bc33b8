"""What a look at a cluster or a cloud may find, and how a provider takes part in it.

In: nothing; these are values. A `Finding` says what is wrong with which object, and the command or edit that fixes it.
A check that could not be made says so (`unknown`): an answer that did not come is never taken for a good one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from bedplate.api import core

__all__ = ["Diagnosable", "Finding", "Level", "fine", "note", "problem", "unknown"]

Level = Literal["ok", "note", "problem", "unknown"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of one check."""

    check: str
    level: Level
    about: str
    message: str
    fix: str = ""


@runtime_checkable
class Diagnosable(Protocol):
    """A provider that can say what is wrong with its configuration, its API and the machines of these nodes."""

    async def diagnose(self, nodes: Sequence[core.Node]) -> list[Finding]: ...


def fine(check: str, about: str, message: str) -> Finding:
    return Finding(check, "ok", about, message)


def note(check: str, about: str, message: str, fix: str = "") -> Finding:
    """Worth knowing, wrong only perhaps: does not change the exit code."""
    return Finding(check, "note", about, message, fix)


def problem(check: str, about: str, message: str, fix: str) -> Finding:
    return Finding(check, "problem", about, message, fix)


def unknown(check: str, about: str, error: BaseException | str, fix: str = "") -> Finding:
    return Finding(check, "unknown", about, f"could not be checked: {error}", fix)
