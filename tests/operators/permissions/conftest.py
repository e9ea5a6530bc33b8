"""A cluster with the permission manager's manifests, on a real and on the embedded API server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests import servers
from tests.operators.permissions.worlds import World, world_on


@pytest.fixture
async def world(own_server: servers.Server) -> AsyncIterator[World]:
    async with world_on(own_server) as made:
        yield made
