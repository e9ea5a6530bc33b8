"""pytest's hooks for the tiers: marks are added while tests are collected, and a run reports to `tools/test.py`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import outcomes, tiers

_outcomes = outcomes.Outcomes()
_TARGET = pytest.StashKey[Path]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First of all: `-m` looks at the marks that are added here."""
    for item in items:
        tiers.add_marks(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    tiers.started(item)
    try:
        return (yield)
    finally:
        tiers.ended()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _outcomes.add(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _outcomes.add(report)


def pytest_configure(config: pytest.Config) -> None:
    # Not for the pytest that some test runs: its report would take the place of this one.
    target = os.environ.pop("BEDPLATE_TEST_REPORT", "")
    if target and not hasattr(config, "workerinput"):
        config.stash[_TARGET] = Path(target)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _TARGET in session.config.stash:
        _outcomes.write(session.config.stash[_TARGET])
