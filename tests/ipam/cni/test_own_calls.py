"""STATUS, GC and errors with a meaning: the plugin and our daemon together, beyond what the original does."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests import programs, servers
from tests.ipam.cni import calls
from tests.ipam.cni.calls import Answer
from tests.ipam.controller.worlds import World
from tests.ipam.node.daemons import NodeDaemon, daemon

pytestmark = pytest.mark.external

ARGS = "IgnoreUnknown=1;K8S_POD_NAME=p;K8S_POD_NAMESPACE=default;K8S_POD_UID=u"


async def ask(running: NodeDaemon, command: str, pool: str, container: str = "c1", **more: Any) -> Answer:
    """One call about one pool."""
    env = {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": container,
        "CNI_NETNS": "/no/such/netns",
        "CNI_IFNAME": "net1",
        "CNI_PATH": "/opt/cni/bin",
        "CNI_ARGS": ARGS,
    }
    ipam = {"type": "nv-ipam", "confDir": str(running.conf_dir), "poolName": pool, **more.pop("ipam", {})}
    network = {"cniVersion": "1.1.0", "name": "net", "type": "bridge", "ipam": ipam, **more}
    return await asyncio.to_thread(calls.invoke, programs.nv_ipam(), env, json.dumps(network).encode())


async def test_status_tells_whether_a_pod_could_be_served(world: World, tmp_path: Path) -> None:
    await world.pool("IPPool", "tiny", {"subnet": "10.90.0.0/24", "perNodeBlockSize": 1})
    await world.damage("IPPool", "tiny", [{"nodeName": "n1", "startIP": "10.90.0.9", "endIP": "10.90.0.9"}])
    await world.pool("IPPool", "elsewhere", {"subnet": "10.91.0.0/24", "perNodeBlockSize": 4})
    await world.damage("IPPool", "elsewhere", [{"nodeName": "n2", "startIP": "10.91.0.1", "endIP": "10.91.0.4"}])
    with daemon(tmp_path, world.server.kubeconfig, world.node("n1"), world.namespace, "--cleaner=off") as running:
        await asyncio.to_thread(running.ready)
        fine = await ask(running, "STATUS", "tiny")
        assert (fine.exit, fine.stdout) == (0, b"")
        for pool, code in (("elsewhere", "NOT_FOUND"), ("nosuch", "NOT_FOUND"), ("tiny,nosuch", "NOT_FOUND")):
            error = (await ask(running, "STATUS", pool)).error
            assert (error["code"], error["details"]) == (50, f"gRPC code {code}")
        assert (await ask(running, "ADD", "tiny")).exit == 0
        full = (await ask(running, "STATUS", "tiny")).error
        assert (full["code"], full["details"]) == (50, "gRPC code RESOURCE_EXHAUSTED")
        assert (await ask(running, "DEL", "tiny")).exit == 0
        assert (await ask(running, "STATUS", "tiny")).exit == 0
        await asyncio.to_thread(running.stop)
        assert (await ask(running, "STATUS", "tiny")).error["code"] == 50


async def test_gc_keeps_what_is_listed_and_what_is_not_proven_dead(world: World, tmp_path: Path) -> None:
    await world.pool("IPPool", "net", {"subnet": "10.92.0.0/24", "perNodeBlockSize": 9})
    await world.damage("IPPool", "net", [{"nodeName": "n1", "startIP": "10.92.0.1", "endIP": "10.92.0.9"}])
    with daemon(tmp_path, world.server.kubeconfig, world.node("n1"), world.namespace, "--cleaner=off") as running:
        await asyncio.to_thread(running.ready)
        for container in ("c1", "c2"):
            assert (await ask(running, "ADD", "net", container)).exit == 0
        valid = [{"containerID": "c1", "ifname": "net1"}]
        answer = await ask(running, "GC", "net", **{"cni.dev/valid-attachments": valid})
        assert (answer.exit, answer.stdout) == (0, b"")
        assert (await ask(running, "CHECK", "net", "c1")).exit == 0


@pytest.mark.parametrize("server", ["embedded"], indirect=True)
async def test_a_daemon_that_is_not_ready_is_worth_another_try(world: World, tmp_path: Path) -> None:
    """No API server, no pools: ADD is to be asked again, DEL is served."""
    nowhere = servers.write_kubeconfig(
        tmp_path / "kubeconfig", f"https://127.0.0.1:{servers.free_port()}", world.server.ca_file, {"token": "x"}
    )
    with daemon(tmp_path, nowhere, world.node("n1"), world.namespace, "--cleaner=off") as running:
        ipam = {"daemonCallTimeoutSeconds": 1}
        assert (await ask(running, "ADD", "net", ipam=ipam)).error["code"] == 11
        assert (await ask(running, "STATUS", "net", ipam=ipam)).error["code"] == 50
        assert (await ask(running, "DEL", "net")).exit == 0
