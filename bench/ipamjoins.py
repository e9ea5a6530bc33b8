"""What a pool's controller costs: many nodes join one pool through a real API server, then few, then none.

Joining: the controller runs and is idle, then the nodes are created; time runs from the last create until the pool's
status has them all. Counted on the way: writes of the status (the API server's own metrics, refused ones included),
the bytes that one watcher of the pool receives, the controller's processor time. Late: more nodes, twenty a second.
Steady: heartbeats of nodes at the same rate, which change nothing that a pool depends on. The contenders take turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bedplate.api.resources import NAMESPACES, NODES
from bedplate.core import errors
from bedplate.ipam.pools import IPPOOLS
from bedplate.kube import client as clients
from bench import ipamnodes, managers

__all__ = ["Controller", "Joined", "controllers", "join"]

PER_S = 20.0
SETTLE_S = 4.0
QUIET_S = 3.0
DEADLINE_S = 600.0
WRITERS = 24
POOL = "joins"
_METRIC = re.compile(r"^apiserver_request_total\{([^}]*)\} (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Controller:
    """A controller to measure."""

    name: str
    command: tuple[str, ...]


@dataclass(slots=True)
class Joined:
    """What one controller needed."""

    seconds: float = 0.0
    writes: int = 0
    megabytes: float = 0.0
    cpu_s: float = 0.0
    late_cpu_s: float = 0.0
    late_writes: int = 0
    beat_cpu_s: float = 0.0
    beat_writes: int = 0
    peak_mb: float = 0.0


@dataclass(slots=True)
class Pool:
    """The pool as a watcher sees it."""

    client: clients.Client
    namespace: str
    allocations: int = 0
    received: int = 0
    _watching: asyncio.Task[None] | None = field(default=None)

    async def __aenter__(self) -> Pool:
        await self.client.create(NAMESPACES.raw(), {"metadata": {"name": self.namespace}})
        spec = {"subnet": "10.0.0.0/8", "perNodeBlockSize": 128, "gateway": "10.0.0.1"}
        await self.client.create(IPPOOLS.raw(), {"metadata": {"name": POOL}, "spec": spec}, self.namespace)
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self.client.delete(IPPOOLS.raw(), POOL, self.namespace)

    async def _watch(self) -> None:
        async for event in self.client.watch(IPPOOLS.raw(), self.namespace, bookmarks=False):
            pool: dict[str, Any] = event.object
            self.received += len(msgspec.json.encode(pool))
            self.allocations = len(pool.get("status", {}).get("allocations", ()))

    async def until(self, count: int) -> None:
        end = time.monotonic() + DEADLINE_S
        while self.allocations != count:
            if self._watching is None or self._watching.done() or time.monotonic() > end:
                raise errors.Unavailable(f"the pool has {self.allocations} blocks, {count} were to come")
            await asyncio.sleep(0.005)

    async def writes(self) -> int:
        """Writes of pools' statuses so far."""
        text = (await self.client.request("GET", "/metrics")).body.decode()
        total = 0
        for labels, count in _METRIC.findall(text):
            pairs = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            if pairs.get("resource") == "ippools" and pairs.get("verb") in ("PUT", "PATCH", "APPLY"):
                total += int(float(count))
        return total


def controllers() -> list[Controller]:
    """Ours, and the original where it is available."""
    contenders = [Controller("ours", (sys.executable, "-m", "bedplate.apps.ipamcontroller"))]
    original = pathlib.Path(os.environ.get("BEDPLATE_PEERS") or "/nonexistent", "ipam-controller")
    if os.access(original, os.X_OK):
        contenders.append(Controller("original", (str(original),)))
    return contenders


def _node(number: int) -> dict[str, Any]:
    name = f"joining-{number:05d}"
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]},
    }


async def _create(client: clients.Client, first: int, count: int) -> None:
    numbers = iter(range(first, first + count))

    async def write() -> None:
        for number in numbers:
            await client.create(NODES.raw(), _node(number))

    async with asyncio.TaskGroup() as group:
        for _ in range(WRITERS):
            group.create_task(write())


async def _paced(count: int, act: Callable[[int], Any]) -> None:
    begin = time.monotonic()
    for number in range(count):
        await act(number)
        await asyncio.sleep(max(0.0, begin + (number + 1) / PER_S - time.monotonic()))


async def join(
    controller: Controller, world: ipamnodes.World, folder: pathlib.Path, counts: tuple[int, int], turn: int
) -> Joined:
    """One controller's way through all three."""
    client, (many, few) = world.client, counts
    namespace = f"bench-{controller.name}-{turn}"
    flags = [
        f"--kubeconfig={world.kubeconfig}", f"--ippools-namespace={namespace}", "--leader-elect=false",
        "--metrics-bind-address=0", "--health-probe-bind-address=0",
    ]  # fmt: skip
    joined = Joined()
    log = folder / f"{namespace}.log"
    async with Pool(client, namespace) as pool:
        with managers.running([*controller.command, *flags], {}, log) as usage, _cleared(log):
            await asyncio.sleep(SETTLE_S)
            writes, cpu = await pool.writes(), usage.cpu_s()
            await _create(client, 0, many)
            begin = time.perf_counter()
            await pool.until(many)
            joined.seconds = time.perf_counter() - begin
            await asyncio.sleep(QUIET_S)
            joined.cpu_s, joined.writes = usage.cpu_s() - cpu, await pool.writes() - writes
            joined.megabytes = pool.received / 1e6

            writes, cpu = await pool.writes(), usage.cpu_s()
            await _paced(few, lambda number: client.create(NODES.raw(), _node(many + number)))
            await pool.until(many + few)
            await asyncio.sleep(QUIET_S)
            joined.late_cpu_s, joined.late_writes = usage.cpu_s() - cpu, await pool.writes() - writes

            writes, cpu = await pool.writes(), usage.cpu_s()
            await _paced(few, lambda number: _beat(client, number % many))
            await asyncio.sleep(QUIET_S)
            joined.beat_cpu_s, joined.beat_writes = usage.cpu_s() - cpu, await pool.writes() - writes
            joined.peak_mb = usage.peak_mb()
    await client.request("DELETE", "/api/v1/nodes")
    return joined


async def _beat(client: clients.Client, number: int) -> None:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": stamp}
    name = _node(number)["metadata"]["name"]
    await client.patch(NODES.raw(), name, {"status": {"conditions": [condition]}}, subresource="status")


@contextlib.contextmanager
def _cleared(log: pathlib.Path) -> Any:
    """The log is kept only while it may be needed."""
    yield
    log.unlink(missing_ok=True)
