"""What a pytest run reports to `tools/test.py`: how many tests ran, what was skipped and why, what failed.

In: pytest's reports, on the process that all workers report to. Out: one JSON document in the file that
`BEDPLATE_TEST_REPORT` names:

    {"ran": 812, "skips": {"no cargo here": 3}, "failures": [{"test": …, "program": true, "seed": "…", "text": "…"}]}

`program` says whether the test is marked as talking to an external program, `seed` which random seed it used.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path

import pytest
from tests import tiers

SEED = "seed"
"""Name of the property of a report that carries the random seed of its test."""
LONGEST_REASON = 160


@dataclasses.dataclass
class Outcomes:
    """Collects reports; a test that fails while it runs and again while it is torn down is one failure."""

    skips: Counter[str] = dataclasses.field(default_factory=Counter)
    failures: dict[str, dict[str, object]] = dataclasses.field(default_factory=dict)
    ran: int = 0

    def add(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            # A reason is one line in the list, even when it quotes what some program printed.
            lines = report.longrepr[2].removeprefix("Skipped: ").splitlines() or ["no reason given"]
            self.skips[lines[0][:LONGEST_REASON]] += 1
        elif report.failed and report.nodeid not in self.failures:
            self.failures[report.nodeid] = _failure(report)
        if isinstance(report, pytest.TestReport) and report.when == "call" and not report.skipped:
            self.ran += 1

    def write(self, path: Path) -> None:
        document = {"ran": self.ran, "skips": dict(self.skips), "failures": list(self.failures.values())}
        path.write_text(json.dumps(document, indent=1))


def _failure(report: pytest.TestReport | pytest.CollectReport) -> dict[str, object]:
    keywords = getattr(report, "keywords", {})
    properties = dict(getattr(report, "user_properties", ()))
    return {
        "test": report.nodeid,
        "program": not tiers.PROGRAM_MARKS.isdisjoint(keywords),
        "seed": str(properties.get(SEED, "")),
        "text": report.longreprtext,
    }
