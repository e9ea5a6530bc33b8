"""Kernels for tests of the operator, and the operator itself on a real and on the embedded API server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests import servers
from tests.operators.jupyter.worlds import World, world_on


@pytest.fixture
async def world(server: servers.Server) -> AsyncIterator[World]:
    async with world_on(server) as made:
        yield made
