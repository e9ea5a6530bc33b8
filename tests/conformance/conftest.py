"""Fixtures of the conformance suite: the two servers, a client, a namespace per test; and the report of what ran where.

A case is written once and runs on every server of `SERVERS`. Servers live as long as the pytest process (one set per
xdist worker). `CONFORMANCE_SERVER=real` or `=embedded` runs one side only.
"""

from __future__ import annotations

import collections
import contextlib
import os
import pathlib
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from tests import programs, servers
from tests.conformance import http, objects

SERVERS = ("real", "embedded")
HERE = pathlib.Path(__file__).parent
RAN_PROPERTY = "conformance_topic"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server" in metafunc.fixturenames:
        chosen = os.environ.get("CONFORMANCE_SERVER")
        names = [chosen] if chosen else SERVERS
        metafunc.parametrize("server", names, indirect=True, scope="session")


@pytest.fixture(scope="session", autouse=True)
def planted_fault() -> None:
    """`CONFORMANCE_FAULT=<topic>`: the embedded servers of this run have that fault (see `test_teeth`)."""
    if topic := os.environ.get("CONFORMANCE_FAULT"):
        servers.shared.use((sys.executable, "-m", "tests.conformance.faulty_server", topic))


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> servers.Server:
    return programs.server(request.param)


@pytest.fixture
async def api(server: servers.Server) -> AsyncIterator[http.Api]:
    """The server under test, as its administrator."""
    async with connect(server) as client:
        yield client


@pytest.fixture
async def forgetful(server: servers.Server) -> AsyncIterator[http.Api]:
    """A server whose old revisions can be made to expire: the embedded one runs with a history of one second."""
    name = "real" if server.name == "real" else "embedded-forgetful"
    async with connect(programs.server(name)) as client:
        yield client


@pytest.fixture
async def stranger(server: servers.Server) -> AsyncIterator[http.Api]:
    """The server under test, without any credentials."""
    async with connect(server, as_admin=False) as client:
        yield client


@contextlib.asynccontextmanager
async def connect(server: servers.Server, *, as_admin: bool = True) -> AsyncIterator[http.Api]:
    headers = {"Authorization": f"Bearer {server.token}"} if as_admin and server.token else {}
    connector = aiohttp.TCPConnector(ssl=server.ssl_context(as_admin=as_admin), limit=0)
    async with aiohttp.ClientSession(connector=connector, skip_auto_headers=["User-Agent"]) as session:
        yield http.Api(server, session, {"User-Agent": "conformance/1.0", **headers})


@pytest.fixture
async def ns(api: http.Api) -> str:
    """A namespace of the test's own; it goes with the server."""
    return await new_namespace(api)


async def new_namespace(api: http.Api) -> str:
    name = objects.unique("case")
    await api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Leave on the item where it ran, so that the report of the last phase carries it to the xdist controller."""
    callspec = getattr(item, "callspec", None)
    if call.when == "setup" and callspec is not None and "server" in callspec.params and item.path.parent == HERE:
        topic = item.path.stem.removeprefix("test_")
        item.user_properties.append((RAN_PROPERTY, f"{topic} {callspec.params['server']}"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how many cases ran on which server, by topic."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for outcome in ("passed", "failed", "skipped", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            for key, value in getattr(report, "user_properties", ()):
                if key == RAN_PROPERTY:
                    topic, server = value.split()
                    counts[topic][f"{server} {outcome}"] += 1
    if not counts:
        return
    terminalreporter.section("conformance: cases by topic and server")
    for topic in sorted(counts):
        terminalreporter.write_line(f"{topic:<22} {_line(counts[topic])}")
    total = sum(counts.values(), collections.Counter())
    terminalreporter.write_line(f"{'all topics':<22} {_line(total)}")


def _line(counter: collections.Counter[str]) -> str:
    return "   ".join(f"{key}: {count}" for key, count in sorted(counter.items(), reverse=True))
