"""A real and an embedded API server for the cloud controllers, shared by all tests, and names of a test's own."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest
from tests import servers
from tests.cloud.controllers.nodecluster import CountingClient, NodeCluster

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
    """A namespace of the test's own; its name may also prefix nodes."""
    name = f"cloud-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    yield name
    await client.delete(NAMESPACES, name)


@pytest.fixture
async def cluster(server: servers.Server, client: Client) -> AsyncIterator[NodeCluster]:
    """Nodes of this test alone, a scripted cloud, and the node controllers to run."""
    async with CountingClient(config.load(server.kubeconfig, environ={}).with_rate(-1, 1)) as own:
        own.writes = []
        made = NodeCluster(client, own)
        try:
            yield made
        finally:
            await made.clean()
