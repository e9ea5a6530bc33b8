"""A real and an embedded API server, shared by all tests, and a namespace of a test's own."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest
from tests import servers

from bedplate.api.resources import NAMESPACES
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


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    name = f"oxide-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    yield name
    await client.delete(NAMESPACES, name)
