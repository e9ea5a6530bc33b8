"""How much one node may report: the rate of its reports, and how many notices they make.

In: the reports of nodes, by name. Out: `TooManyReports` for a node that reports too often; the news of a report that
become notices, the rest of which is counted in one line. What nodes report costs the head memory and disk, and a single
one must not have all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.head.notices import News

__all__ = ["NOTICES", "REPORTS", "Intake", "Rate", "TooManyReports"]

_PER_REPORT = 20


class TooManyReports(errors.Unavailable):
    """A node reports more often than it may."""


class Rate(NamedTuple):
    """So many at once, and so many more in each second."""

    burst: int
    per_s: float


REPORTS = Rate(60, 1.0)
"""How often a node may report."""
NOTICES = Rate(100, 1 / 3)
"""How many notices the reports of a node may make."""


@dataclass(slots=True)
class _Allowance:
    level: float
    at_s: float

    def refill(self, rate: Rate, now_s: float) -> None:
        self.level = min(rate.burst, self.level + (now_s - self.at_s) * rate.per_s)
        self.at_s = now_s


@dataclass(slots=True)
class _Node:
    reports: _Allowance
    notices: _Allowance
    left_out: int = 0


class Intake:
    """What each node has used of its share."""

    def __init__(self, clock: Clock, reports: Rate, notices: Rate) -> None:
        self._clock = clock
        self._reports = reports
        self._notices = notices
        self._nodes: dict[str, _Node] = {}

    def admit(self, name: str) -> None:
        """Count a report. Raises `TooManyReports` with the time after which the next one is taken."""
        node = self._node(name)
        if node.reports.level < 1:
            burst, per_s = self._reports
            raise TooManyReports(
                f"{name} reports too often: it may send {burst} reports at once, then {per_s:g} per second",
                hint="report less often, with more in each report",
                retry_after_s=max(1.0, (1 - node.reports.level) / self._reports.per_s),
            )
        node.reports.level -= 1

    def told(self, name: str, news: Sequence[News]) -> list[News]:
        """The news of a report that become notices: warnings before the others, and a line about those left out."""
        node = self._node(name)
        room = min(_PER_REPORT, int(node.notices.level))
        if len(news) + bool(node.left_out) <= room:
            kept = list(news)
        else:
            first = sorted(range(len(news)), key=lambda index: (news[index].severity == "notice", index))
            kept = [news[index] for index in sorted(first[: max(room - 1, 0)])]
        node.left_out += len(news) - len(kept)
        if node.left_out and len(kept) < room:
            kept.append(News(name, f"{node.left_out} more events of this node were left out", "warning"))
            node.left_out = 0
        node.notices.level -= len(kept)
        return kept

    def _node(self, name: str) -> _Node:
        now_s = self._clock.monotonic()
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = _Node(
                _Allowance(self._reports.burst, now_s), _Allowance(self._notices.burst, now_s)
            )
        node.reports.refill(self._reports, now_s)
        node.notices.refill(self._notices, now_s)
        return node
