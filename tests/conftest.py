"""Shared by all tests: what hypothesis does, and no cluster but the tests' own.

Fixtures that all tests may use are in `tests/fixtures.py` and `tests/seeds.py`; the tiers are in `tests/tiers.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import hypothesis
import pytest
from tests import servers

from bedplate.core import logging

pytest_plugins = ("tests.fixtures", "tests.hooks", "tests.seeds")

# No deadline per example: the machine may be busy. Where a run decides over a change (CI=true, as CI systems set
# it), the examples are the same every time; everywhere else each run tries new ones, and `make soak` many. What failed
# is kept in .hypothesis/ and tried first the next time; the line that brings it back elsewhere is printed.
hypothesis.settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize=os.environ.get("CI") == "true",
    print_blob=True,
)
hypothesis.settings.load_profile("patient")

# Tests start processes while gRPC (the etcd store's tests) has threads. Its fork handlers would run in the child,
# before it becomes another program, and end or hang it there.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

# The user who runs the tests may have a cluster and a proxy: neither is for the servers that tests start on this
# machine.
os.environ.pop("KUBECONFIG", None)
for _name in ("no_proxy", "NO_PROXY"):
    os.environ[_name] = ",".join(filter(None, (os.environ.get(_name), "127.0.0.1", "localhost", "::1")))


@pytest.fixture(autouse=True)
def _log_goes_to_standard_error() -> Iterator[None]:
    """After every test: one that sent the log elsewhere must not leave a stream behind that is closed by then."""
    yield
    logging.configure(logging.LogOptions(), sys.__stderr__)


def pytest_sessionfinish() -> None:
    servers.shared.close()
