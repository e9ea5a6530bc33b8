"""A real and an embedded API server for the doctor."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests import servers

from bedplate.kube import Client, config


@pytest.fixture(params=[pytest.param("real", marks=pytest.mark.real), "embedded"])
def server(request: pytest.FixtureRequest) -> servers.Server:
    try:
        return servers.shared.get(request.param)
    except servers.Missing as err:
        pytest.skip(f"{request.param}: {err}")


@pytest.fixture
async def client(server: servers.Server) -> AsyncIterator[Client]:
    async with Client(config.load(server.kubeconfig, environ={}).with_rate(-1, 1)) as opened:
        yield opened
