"""A client of the server that a module of managers' tests has for itself."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests import servers

from bedplate.kube import Client, config


@pytest.fixture
async def own_client(own_server: servers.Server) -> AsyncIterator[Client]:
    async with Client(config.load(own_server.kubeconfig, environ={}).with_rate(-1, 1)) as opened:
        yield opened
