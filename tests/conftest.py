"""Shared by all tests: a record of what was skipped, for the last lines of `make test`."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

_reasons: Counter[str] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and isinstance(report.longrepr, tuple):
        _reasons[report.longrepr[2].removeprefix("Skipped: ")] += 1


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped and isinstance(report.longrepr, tuple):
        _reasons[report.longrepr[2].removeprefix("Skipped: ")] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    target = os.environ.get("BEDPLATE_SKIP_REPORT")
    worker: Any = getattr(session.config, "workerinput", None)
    if target and worker is None:
        Path(target).write_text(json.dumps(dict(_reasons)))
