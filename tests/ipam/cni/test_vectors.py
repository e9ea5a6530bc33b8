"""Our plugin with our daemon answers every recorded call as the original's did, or better where that is marked."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import programs
from tests.ipam.cni import calls
from tests.ipam.controller.worlds import World
from tests.ipam.node.daemons import daemon

pytestmark = pytest.mark.external


async def test_the_recorded_calls(world: World, netns: str, tmp_path: Path) -> None:
    plugin = programs.nv_ipam()
    recorded = calls.recorded()
    node = world.node(recorded["node"])
    with daemon(tmp_path, world.server.kubeconfig, node, world.namespace, "--cleaner=off") as running:
        scene = calls.Scene(world, running, plugin, netns, is_our_plugin=True, is_our_daemon=True)
        await scene.make(recorded["pools"])
        await scene.known(recorded["pools"])
        assert await scene.play(recorded["calls"]) == 204
