"""A world of its own for every test of the daemon, on a real and on the embedded API server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests import servers
from tests.ipam.controller.worlds import World, world_on


@pytest.fixture
async def world(server: servers.Server) -> AsyncIterator[World]:
    async with world_on(server) as made:
        yield made
