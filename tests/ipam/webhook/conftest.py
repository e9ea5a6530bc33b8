"""A world of its own for every test, on a real and on the embedded API server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests import servers
from tests.ipam.controller.worlds import World, world_on


@pytest.fixture(params=[pytest.param("real", marks=pytest.mark.real), "embedded"])
def server(request: pytest.FixtureRequest) -> servers.Server:
    try:
        return servers.shared.get(request.param)
    except servers.Missing as err:
        pytest.skip(f"{request.param}: {err}")


@pytest.fixture
async def world(server: servers.Server) -> AsyncIterator[World]:
    async with world_on(server) as made:
        yield made
