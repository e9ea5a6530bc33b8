"""A real and an embedded API server for the runtime's tests, each started once."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest
from tests import servers

from bedplate.api.resources import NAMESPACES
from bedplate.kube import Client, config


@pytest.fixture(params=[pytest.param("real", marks=pytest.mark.real), "embedded-forgetful"])
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


@pytest.fixture
async def namespace(client: Client) -> str:
    name = f"runtime-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    return name
