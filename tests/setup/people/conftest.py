"""A cluster of the test's own on the embedded API server, with somebody in the permission manager's place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests import programs, servers
from tests.setup.people.worlds import People, World, install, stand_in

from bedplate.kube import Client, config


@pytest.fixture
async def empty_world(tmp_path: Path) -> AsyncIterator[World]:
    """A cluster on which nothing was installed."""
    with programs.own_server("embedded") as server:
        async with Client(config.load(server.kubeconfig, environ={}).with_rate(-1, 1)) as client:
            yield World(server, client, People(tmp_path), authority_of(server))


@pytest.fixture
async def bare_world(empty_world: World) -> World:
    """Nobody is in the manager's place."""
    await install(empty_world.client)
    return empty_world


@pytest.fixture
async def world(bare_world: World) -> AsyncIterator[World]:
    async with stand_in(bare_world.client):
        yield bare_world


def authority_of(server: servers.Server) -> tuple[Path, Path]:
    """The authority of the embedded API server, which signs no requests by itself."""
    folder = server.kubeconfig.parent / "data" / "pki"
    return folder / "ca.crt", folder / "ca.key"
