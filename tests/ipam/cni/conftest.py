"""A world of its own for every test of the plugin, on a real and on the embedded API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests import servers
from tests.ipam.cni import calls
from tests.ipam.controller.worlds import World, world_on


@pytest.fixture
async def world(server: servers.Server) -> AsyncIterator[World]:
    async with world_on(server) as made:
        yield made


@pytest.fixture
def netns(tmp_path: Path) -> Iterator[str]:
    with calls.other_netns(tmp_path) as path:
        yield path
