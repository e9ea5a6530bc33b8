"""What a measurement found, and how it is shown.

In: `Row`s (a figure of ours, the same figure of the peer, the goal). Out: lines of text with a ratio for each row, and
the same as JSON. Nothing is measured here.
"""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import platform
from dataclasses import dataclass, field
from typing import Any

from bedplate.core import errors

__all__ = ["Row", "Topic", "filled", "machine"]

_BEGIN, _END = "<!-- figures -->", "<!-- end of figures -->"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. `goal` is the least ratio wanted (0: none); `limit` the most that ours may be."""

    name: str
    ours: float
    peer: float | None
    unit: str
    goal: float = 0.0
    limit: float | None = None
    is_less_better: bool = False

    @property
    def ratio(self) -> float | None:
        """How many times better ours is: above 1 is ahead."""
        if not self.peer or not self.ours:
            return None
        return self.peer / self.ours if self.is_less_better else self.ours / self.peer

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is reached; None without one."""
        if self.limit is not None:
            return self.ours <= self.limit
        if not self.goal or self.ratio is None:
            return None
        return self.ratio >= self.goal

    def verdict(self) -> str:
        if self.is_met is None:
            return ""
        goal = f"at most {number(self.limit)} {self.unit}" if self.limit is not None else f"at least {self.goal:.2g}x"
        return f"{goal}: {'met' if self.is_met else 'MISSED'}"


@dataclass(slots=True)
class Topic:
    """The table of one topic. `says` is the one line that tells what is measured."""

    name: str
    says: str
    peer: str
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        wide = max([len(row.name) for row in self.rows], default=0) + 2
        text = ["", f"{self.name}: {self.says}", f"{'':<{wide}}{'bedplate':>12}{self.peer:>22}{'ratio':>9}  goal"]
        for row in self.rows:
            peer = "-" if row.peer is None else number(row.peer)
            ratio = "-" if row.ratio is None else f"{row.ratio:.2f}x"
            text.append(
                f"{row.name:<{wide}}{number(row.ours):>12}{peer:>22}{ratio:>9}  {row.verdict()}".rstrip()
                + f" [{row.unit}]"
            )
        return text + [f"  {note}" for note in self.notes]

    def document(self) -> dict[str, Any]:
        rows = [
            {
                "name": row.name, "unit": row.unit, "bedplate": row.ours, self.peer: row.peer,
                "ratio": row.ratio, "goal": row.verdict(),
            }
            for row in self.rows
        ]  # fmt: skip
        return {"says": self.says, "rows": rows, "notes": self.notes}


def filled(page: str, printed: list[str]) -> str:
    """The page with what was printed between its two marks."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise errors.Invalid(f"the page has no place for figures: {_BEGIN} … {_END}")
    return f"{before}{begin}\n```text\n" + "\n".join(printed) + f"\n```\n{end}{after}"


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def machine() -> str:
    """One line on what the figures were made with."""
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("uvloop", "httptools", "msgspec"))
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} cores ({_processor()}), {memory_gb:.0f} GB, load {load:.1f} before the run; "
        f"Linux {platform.release().split('-')[0]}, Python {platform.python_version()}, {packages}"
    )


def _processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return " ".join(line.partition(":")[2].split())
    return platform.machine()
