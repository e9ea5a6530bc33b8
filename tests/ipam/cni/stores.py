"""The recorded stores: their calls played on an empty store, and what of the file must be equal afterwards."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.ipam.cni import calls
from tests.ipam.controller.worlds import World
from tests.ipam.node.daemons import daemon

FILES = sorted((calls.VECTORS / "stores").glob("*.json"))


def written_out(call: dict[str, Any]) -> dict[str, Any]:
    """A call of the short form in the long one."""
    if "env" in call:
        return call
    env = {
        "CNI_COMMAND": call["command"],
        "CNI_CONTAINERID": call["container"],
        "CNI_NETNS": "$NETNS",
        "CNI_IFNAME": "net0",
        "CNI_PATH": "$CNI_PATH",
        "CNI_ARGS": "K8S_POD_NAMESPACE=default;K8S_POD_NAME=p",
    }
    ipam = {"type": "nv-ipam", "confDir": "$CONFDIR", "poolName": "v4"}
    return call | {"env": env, "stdin": {"cniVersion": "1.0.0", "name": "net", "type": "bridge", "ipam": ipam}}


def comparable(text: str, *, has_pods: bool) -> dict[str, Any]:
    """A store without what is another every time."""
    document: dict[str, Any] = json.loads(text) if text else {"version": 1, "pools": {}}
    document.pop("checksum", None)
    for pool in document["pools"].values():
        for entry in pool["entries"].values():
            entry["metadata"].pop("create_time")
            if not has_pods:
                entry["metadata"] = {"pool_config_snapshot": entry["metadata"]["pool_config_snapshot"]}
    # A DEL of nothing leaves no record.
    document["pools"] = {
        key: pool for key, pool in document["pools"].items() if pool["entries"] or pool["last_reserved_ip"]
    }
    return document


async def played(
    world: World, netns: str, folder: Path, file: Path, plugin: Path, program: Path | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The store that the recorded calls leave behind, and the recorded one; the daemon is ours without a `program`."""
    recorded = json.loads(file.read_text())
    more = [] if program else ["--cleaner=off"]
    node = world.node(recorded["node"])
    with daemon(folder, world.server.kubeconfig, node, world.namespace, *more, program=program) as running:
        scene = calls.Scene(world, running, plugin, netns, plugin == calls.OURS, program is None)
        await scene.make(recorded["pools"])
        await scene.known(recorded["pools"])
        for call in map(written_out, recorded["calls"]):
            answer = await scene.invoke(call)
            if "address" in call:
                found = answer.document["ips"][0]["address"] if answer.stdout else None
                assert (answer.exit, found) == (call["exit"], call["address"]), call
            else:
                scene.judge(call, answer)
        await asyncio.to_thread(running.stop)
        made = running.store.read_text() if running.store.exists() else ""
    has_pods = all("env" in call for call in recorded["calls"])
    wanted = file.with_name(recorded["store"]).read_text()
    return comparable(made, has_pods=has_pods), comparable(wanted, has_pods=has_pods)
