"""Shared by all tests: a record of what was skipped, for `make test`; and no cluster but the tests' own."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from tests import servers

from bedplate.core import logging

# A busy machine is no failure: no deadline per example. Where a run decides over a change (CI=true, as CI systems set
# it), the examples are the same every time; everywhere else each run tries new ones, and `make soak` many.
hypothesis.settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize=os.environ.get("CI") == "true",
)
hypothesis.settings.load_profile("patient")

# Tests start processes while gRPC (the etcd store's tests) has threads. Its fork handlers would run in the child,
# before it becomes another program, and end or hang it there.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

# Whoever runs the tests may have a cluster and a proxy: neither is for the servers that tests start on this machine.
os.environ.pop("KUBECONFIG", None)
for _name in ("no_proxy", "NO_PROXY"):
    os.environ[_name] = ",".join(filter(None, (os.environ.get(_name), "127.0.0.1", "localhost", "::1")))

_reasons: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def _log_goes_to_standard_error() -> Iterator[None]:
    """After every test: one that sent the log elsewhere must not leave a stream behind that is closed by then."""
    yield
    logging.configure(logging.LogOptions(), sys.__stderr__)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _note(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _note(report)


def _note(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and isinstance(report.longrepr, tuple):
        # A reason is one line in the list, even when it quotes what some program printed.
        lines = report.longrepr[2].removeprefix("Skipped: ").splitlines() or ["no reason given"]
        _reasons[lines[0][:160]] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    servers.shared.close()
    target = os.environ.get("BEDPLATE_SKIP_REPORT")
    worker: Any = getattr(session.config, "workerinput", None)
    if target and worker is None:
        Path(target).write_text(json.dumps(dict(_reasons)))
