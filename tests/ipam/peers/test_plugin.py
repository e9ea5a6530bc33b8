"""Plugin and daemon of different makes: the recorded calls with one of them the original's, on a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests import programs
from tests.ipam.cni import calls, stores
from tests.ipam.controller.worlds import World, world_on
from tests.ipam.node.daemons import daemon

pytestmark = pytest.mark.real


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with world_on(programs.server("real")) as made:
        yield made


@pytest.fixture
def netns(tmp_path: Path) -> Iterator[str]:
    with calls.other_netns(tmp_path) as path:
        yield path


async def test_our_plugin_with_the_originals_daemon(world: World, netns: str, tmp_path: Path) -> None:
    await play(world, netns, tmp_path, programs.nv_ipam(), programs.original("ipam-node"))


async def test_the_originals_plugin_with_our_daemon(world: World, netns: str, tmp_path: Path) -> None:
    await play(world, netns, tmp_path, programs.original("nv-ipam"), None)


async def test_the_originals_plugin_with_its_own_daemon(world: World, netns: str, tmp_path: Path) -> None:
    """The recording is still what the originals do: otherwise the other tests mean nothing."""
    await play(world, netns, tmp_path, programs.original("nv-ipam"), programs.original("ipam-node"))


@pytest.mark.parametrize("file", stores.FILES, ids=lambda file: file.stem)
async def test_our_plugin_leaves_the_recorded_store_with_the_originals_daemon(
    world: World, netns: str, tmp_path: Path, file: Path
) -> None:
    made, wanted = await stores.played(world, netns, tmp_path, file, programs.nv_ipam(), programs.original("ipam-node"))
    assert made == wanted


async def play(world: World, netns: str, folder: Path, plugin: Path, program: Path | None) -> None:
    recorded = calls.recorded()
    node = world.node(recorded["node"])
    more = [] if program else ["--cleaner=off"]
    with daemon(folder, world.server.kubeconfig, node, world.namespace, *more, program=program) as running:
        scene = calls.Scene(
            world, running, plugin, netns, is_our_plugin=plugin == programs.nv_ipam(), is_our_daemon=program is None
        )
        await scene.make(recorded["pools"])
        await scene.known(recorded["pools"])
        assert await scene.play(recorded["calls"]) == 204
