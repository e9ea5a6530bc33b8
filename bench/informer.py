"""How fast and how lean our informer is: reflector and cache against client-go's, on a real API server.

Both are processes of their own that fill themselves with all nodes of one cluster. They take turns, so that a busy
moment of the machine meets both; the middle of the turns counts. Time runs from the reading of the kubeconfig to a
synced cache. Memory is what the process holds afterwards, once after a collection (`gc.collect()`, `runtime.GC()`) and
once more after all free memory was given back to the system (`malloc_trim`, `debug.FreeOSMemory()`), which neither does
by itself at once.
"""

from __future__ import annotations

import asyncio
import pathlib
import statistics
import sys
from collections.abc import Callable
from typing import Any

from bedplate.api.resources import NODES
from bedplate.kube import client as clients
from bedplate.kube import config
from bench import programs, report, servers

__all__ = ["run"]

NODES_FULL, NODES_QUICK = 5000, 50
WRITERS = 24
PEER_MODES = ("json", "streaming", "protobuf")
OUR_MODES = ("lean", "raw")


def node(number: int) -> dict[str, Any]:
    """A node as kubelets report themselves, with as many images as make it 10 KB with what the server adds."""
    name = f"node-{number:05}"
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    stamp = "2026-01-01T00:00:00Z"
    pressures = ("MemoryPressure", "DiskPressure", "PIDPressure")
    status = {"lastHeartbeatTime": stamp, "lastTransitionTime": stamp}
    conditions = [{"type": kind, "status": "False", "reason": f"KubeletHasNo{kind}", **status} for kind in pressures]
    conditions.append({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready", **status})
    resources = {"cpu": "64", "memory": "527873472Ki", "pods": "110", "ephemeral-storage": "959786032Ki"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/zone": f"zone-{number % 3}",
                "node.kubernetes.io/instance-type": "gpu-8",
            },
        },
        "spec": {"podCIDR": f"10.128.{number & 255}.0/24", "providerID": f"bedplate://{name}"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "capacity": resources,
            "allocatable": resources,
            "conditions": conditions,
            "nodeInfo": {
                "machineID": f"{number:032x}",
                "systemUUID": f"{number:032x}",
                "bootID": f"{number:032x}",
                "kernelVersion": "6.12.0",
                "osImage": "Debian GNU/Linux 13",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kubeletVersion": "v1.35.4",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
            "images": [image(number, index) for index in range(39)],
        },
    }


def image(node_number: int, index: int) -> dict[str, Any]:
    repository = f"registry.example.com/team-{index}/service-{index * 31}"
    digest = f"{node_number * 1000 + index:064x}"
    return {"names": [f"{repository}@sha256:{digest}", f"{repository}:v1.{index}"], "sizeBytes": 50_000_000 + index}


async def fill(kubeconfig: pathlib.Path, count: int) -> int:
    """Create the nodes; the size of one as the server gives it back."""
    settings = config.load(kubeconfig=kubeconfig).with_rate(-1, 1)
    async with clients.Client(settings) as client:
        numbers = iter(range(count))

        async def write() -> None:
            for number in numbers:
                await client.create(NODES, node(number))

        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(write())
        answer = await client.request("GET", "/api/v1/nodes/node-00001")
    return len(answer.body)


async def run(folder: pathlib.Path, *, is_quick: bool, tell: Callable[[str], None]) -> report.Topic:
    program = programs.build("informer", tell)
    count, turns = (NODES_QUICK, 1) if is_quick else (NODES_FULL, 3)
    ours: dict[str, list[Any]] = {mode: [] for mode in OUR_MODES}
    theirs: dict[str, list[Any]] = {mode: [] for mode in PEER_MODES}
    async with servers.real(folder / "real", tell) as running:
        tell(f"creating {count:,} nodes")
        size = await fill(running.kubeconfig, count)
        for turn in range(turns):
            tell(f"informers, turn {turn + 1} of {turns}")
            for mode, figures in ours.items():
                command = [sys.executable, "-m", "bench.informer_ours", str(running.kubeconfig), mode]
                figures.append(await asyncio.to_thread(programs.call, command))
            for mode, figures in theirs.items():
                command = [str(program), f"--kubeconfig={running.kubeconfig}", f"--mode={mode}"]
                figures.append(await asyncio.to_thread(programs.call, command))
    for figures in (*ours.values(), *theirs.values()):
        assert all(each["objects"] == count for each in figures), "an informer is synced without all nodes"
    return _topic(ours, theirs, f"{count:,} nodes of {size:,} bytes on {running.version}")


def _topic(ours: dict[str, list[Any]], theirs: dict[str, list[Any]], what: str) -> report.Topic:
    def middle(figures: list[Any], key: str, scale: float = 1.0) -> float:
        return float(statistics.median(each[key] for each in figures)) / scale

    def row(name: str, mode: str, peer: str, key: str, goal: float) -> report.Row:
        unit, scale = ("s", 1.0) if key == "seconds" else ("MB", 1e6)
        mine, other = middle(ours[mode], key, scale), middle(theirs[peer], key, scale)
        return report.Row(name, mine, other, unit, goal=goal, is_less_better=True)

    says = f"cold sync and steady memory, {what}; the middle of {len(ours['lean'])} turns"
    return report.Topic(
        "informer",
        says,
        "client-go",
        [
            row("sync time, client-go lists JSON", "lean", "json", "seconds", 1.0),
            row("sync time, client-go streams JSON", "lean", "streaming", "seconds", 1.0),
            row("sync time, client-go lists protobuf", "lean", "protobuf", "seconds", 0.5),
            row("steady memory, client-go lists JSON", "lean", "json", "rss_bytes", 1 / 0.7),
            row("steady memory, client-go lists protobuf", "lean", "protobuf", "rss_bytes", 0.0),
            row("memory given back, client-go lists JSON", "lean", "json", "least_bytes", 1 / 0.7),
            row("peak memory, client-go lists JSON", "lean", "json", "peak_bytes", 0.0),
            row("whole objects: sync time, JSON", "raw", "json", "seconds", 0.0),
            row("whole objects: memory, JSON", "raw", "json", "rss_bytes", 0.0),
        ],
        ["ours keeps the fields that our controllers read (api.core.Node); whole objects are dictionaries"],
    )
