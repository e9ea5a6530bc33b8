"""A cluster of nodes for the cloud controllers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests import servers
from tests.cloud.controllers.nodecluster import CountingClient, NodeCluster

from bedplate.kube import Client, config


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
