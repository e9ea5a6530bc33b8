"""A real and an embedded API server for the simulated nodes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest
from tests import servers

from bedplate.kube import Client, config


@pytest.fixture(scope="module", params=[pytest.param("real", marks=pytest.mark.real), "embedded"])
def server(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    with contextlib.ExitStack() as stack:
        try:
            opener = servers.real() if request.param == "real" else servers.embedded()
            yield stack.enter_context(opener)
        except servers.Missing as err:
            pytest.skip(f"{request.param}: {err}")


@pytest.fixture
async def client(server: servers.Server) -> AsyncIterator[Client]:
    async with Client(config.load(server.kubeconfig, environ={}).with_rate(-1, 1)) as opened:
        yield opened
