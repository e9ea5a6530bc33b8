"""The two API servers, shared by all tests of this process."""

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
def settings(server: servers.Server) -> config.ClientConfig:
    return config.load(server.kubeconfig, environ={}).with_rate(-1, 1)


@pytest.fixture
async def client(settings: config.ClientConfig) -> AsyncIterator[Client]:
    async with Client(settings) as opened:
        yield opened
