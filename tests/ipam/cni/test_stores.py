"""The recorded stores through the plugin: equal calls leave an equal file, an equal file gives equal answers."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests import programs, servers
from tests.ipam.cni import calls, stores
from tests.ipam.controller.worlds import World, world_on
from tests.ipam.node.daemons import daemon

pytestmark = pytest.mark.external


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with world_on(servers.shared.get("embedded")) as made:
        yield made


@pytest.mark.parametrize("file", stores.FILES, ids=lambda file: file.stem)
async def test_the_recorded_calls_make_the_recorded_store(world: World, netns: str, tmp_path: Path, file: Path) -> None:
    made, wanted = await stores.played(world, netns, tmp_path, file, programs.nv_ipam(), None)
    assert made == wanted


@pytest.mark.parametrize("file", stores.FILES, ids=lambda file: file.stem)
async def test_the_recorded_store_gives_the_recorded_answers(
    world: World, netns: str, tmp_path: Path, file: Path
) -> None:
    plugin, recorded = programs.nv_ipam(), json.loads(file.read_text())
    store = file.with_name(recorded["store"])
    shutil.copy(store, tmp_path / "store")
    if "before_reopening" in recorded:
        (pool,) = recorded["pools"]
        pool["allocations"] = recorded["before_reopening"]["allocations"]
    node = world.node(recorded["node"])
    with daemon(tmp_path, world.server.kubeconfig, node, world.namespace, "--cleaner=off") as running:
        scene = calls.Scene(world, running, plugin, netns, is_our_plugin=True, is_our_daemon=True)
        await scene.make(recorded["pools"])
        await scene.known(recorded["pools"])
        for key, pool in json.loads(store.read_text() or '{"pools": {}}')["pools"].items():
            for entry in pool["entries"].values():
                answer = await scene.invoke(check_of(key, entry))
                assert (answer.exit, answer.stdout) == (0, b""), answer
        found = [await scene.invoke(call) for call in recorded["next"]]
    addresses = [answer.document["ips"][0]["address"] for answer in found if answer.exit == 0]
    wanted = [call["stdout"]["ips"][0]["address"] for call in recorded["next"] if call["exit"] == 0]
    assert addresses in (wanted, recorded.get("next_alternative"))
    assert [answer.exit for answer in found] == [call["exit"] for call in recorded["next"]]


def check_of(key: str, entry: dict[str, Any]) -> dict[str, Any]:
    """CHECK of a reservation."""
    kind, _, name = key.rpartition("/")
    ipam = {"type": "nv-ipam", "confDir": "$CONFDIR", "poolName": name, "poolType": kind or "ippool"}
    env = {
        "CNI_COMMAND": "CHECK",
        "CNI_CONTAINERID": entry["container_id"],
        "CNI_NETNS": "$NETNS",
        "CNI_IFNAME": entry["interface_name"],
        "CNI_PATH": "$CNI_PATH",
        "CNI_ARGS": "K8S_POD_NAMESPACE=default;K8S_POD_NAME=p",
    }
    return {"env": env, "stdin": {"cniVersion": "1.0.0", "name": "net", "type": "bridge", "ipam": ipam}}
