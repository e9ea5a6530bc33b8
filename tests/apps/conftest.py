"""API servers of the managers' tests: those that all tests share, and one of each kind that nobody else touches."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from tests import servers

from bedplate.kube import Client, config

BOTH = [pytest.param("real", marks=pytest.mark.real), "embedded"]


@pytest.fixture(params=BOTH)
def server(request: pytest.FixtureRequest) -> servers.Server:
    try:
        return servers.shared.get(request.param)
    except servers.Missing as err:
        pytest.skip(f"{request.param}: {err}")


@pytest.fixture(scope="module", params=BOTH)
def own_server(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    """A server of this module alone: a manager without --node-selector looks at every node there is."""
    starters = {"real": servers.real, "embedded": servers.embedded}
    try:
        opened = starters[request.param]()
        found = opened.__enter__()
    except servers.Missing as err:
        pytest.skip(f"{request.param}: {err}")
    try:
        yield found
    finally:
        opened.__exit__(None, None, None)


@pytest.fixture
async def client(server: servers.Server) -> AsyncIterator[Client]:
    async with Client(config.load(server.kubeconfig, environ={}).with_rate(-1, 1)) as opened:
        yield opened


@pytest.fixture
async def own_client(own_server: servers.Server) -> AsyncIterator[Client]:
    async with Client(config.load(own_server.kubeconfig, environ={}).with_rate(-1, 1)) as opened:
        yield opened
