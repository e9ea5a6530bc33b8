"""What the head is measured with: a site of any size, a daemon over it as a process, and readers of its events.

In: how many nodes. Out: objects for a data folder; a running `bedplate head serve`; counts of what event streams gave.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

import aiohttp

from bedplate.apps import headfolder, headinit
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.head.objects import Obj, Value
from bedplate.head.session import Edit
from bedplate.lab import processes

__all__ = ["CATEGORIES", "OVERLAYS", "Daemon", "Readers", "cold_cpu_s", "fill", "node", "objects", "serving"]

READY_DEADLINE_S = 120.0
STOP_DEADLINE_S = 30.0
DELIVERY_DEADLINE_S = 600.0
CATEGORIES = 20
OVERLAYS = 20
FEW = 5
"""Members of the overlay whose role is changed when `plan` is asked: what it costs must not depend on the others."""


def node(number: int) -> str:
    return f"node{number:05d}"


def objects(count: int) -> Iterator[tuple[str, Obj]]:
    """`count` nodes in 20 categories; 19 overlays over a category each, one over five nodes by name."""
    yield "softwareimage", Obj("SoftwareImage", "bench-image", {"path": "/cm/images/bench-image"})
    yield "etcd", Obj("EtcdCluster", "bench")
    yield "kubernetes", Obj("KubeCluster", "bench", {"etcd_cluster": "bench"})
    for number in range(CATEGORIES):
        yield "category", Obj("Category", f"c{number}", {"software_image": "bench-image"})
    for number in range(count):
        mac = ":".join(f"{byte:02X}" for byte in (2, 0, *number.to_bytes(4, "big")))
        address = f"10.{128 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
        values: dict[str, Value] = {"category": f"c{number % CATEGORIES}", "mac": mac, "ip": address}
        yield "device", Obj("PhysicalNode", node(number), values)
    for number in range(1, OVERLAYS):
        roles = (_kubelet(), _containerd(), _proxy())
        yield _overlay(f"o{number}", 500 + number, {"categories": (f"c{number}",)}, *roles)
    few = tuple(node(number) for number in range(min(FEW, count)))
    yield _overlay("few", 900, {"nodes": few}, _firewall(), _containerd())


def _overlay(name: str, priority: int, members: dict[str, Value], *roles: Obj) -> tuple[str, Obj]:
    values = {"priority": priority, **members}
    held = {role.key: role for role in roles}
    return "configurationoverlay", Obj("ConfigurationOverlay", name, values, children={"roles": held})


def _kubelet() -> Obj:
    return Obj("KubeletRole", "kubelet", {"kubernetes_cluster": "bench"})


def _proxy() -> Obj:
    return Obj("KubernetesApiServerProxyRole", "Kubernetes::ApiServerProxy", {"kubernetes_cluster": "bench"})


def _containerd() -> Obj:
    values: dict[str, Value] = {"filename": "/etc/containerd/conf.d/bench.toml", "content": "[bench]\n"}
    configurations = {"bench": Obj("static", "bench", values)}
    return Obj(
        "GenericRole",
        "generic::containerd",
        {"services_run": ("containerd",)},
        children={"configurations": configurations},
    )


def _firewall() -> Obj:
    ports = {"0": Obj("OpenPort", "0", {"port": "10443"})}
    return Obj("FirewallRole", "firewall", children={"open_ports": ports})


async def fill(data: pathlib.Path, count: int) -> None:
    """A data folder with that many nodes, in two revisions: the first tree, and the rest."""
    await headinit.make(data, name="bench", nodes=0)
    async with headfolder.open_head(data) as opened:
        edits = [Edit(mode, obj.key, None, obj) for mode, obj in objects(count)]
        await opened.head.commit(edits, "bench", "all nodes")


@dataclass(frozen=True, slots=True)
class Daemon:
    """A head that serves a data folder."""

    data: pathlib.Path
    url: str
    pid: int

    def client(self) -> HeadClient:
        token = headfolder.Folder(self.data).admin_token()
        return HeadClient(self.url, token=token, ca_file=str(self.data / "ca.crt"))


@contextlib.asynccontextmanager
async def serving(data: pathlib.Path) -> AsyncIterator[Daemon]:
    """`bedplate head serve` as a process, once it is ready."""
    log = data.with_suffix(".log")
    child = _start(data, log)
    try:
        yield Daemon(data, await _ready(child, data, log), child.pid)
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(child.wait, STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _start(data: pathlib.Path, log: pathlib.Path) -> subprocess.Popen[bytes]:
    command = [str(_program("bedplate")), "head", "serve", "--data", str(data), "--port", "0"]
    with log.open("ab") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, preexec_fn=processes.die_with_parent(os.getpid()))


def _program(name: str) -> pathlib.Path:
    return pathlib.Path(sys.executable).with_name(name)


async def _ready(child: subprocess.Popen[bytes], data: pathlib.Path, log: pathlib.Path) -> str:
    folder, end = headfolder.Folder(data), time.monotonic() + READY_DEADLINE_S
    while time.monotonic() < end:
        if child.poll() is not None:
            raise errors.Terminal(f"the head ended: {processes.tail(log)}")
        if url := folder.daemon_url():
            return url
        await asyncio.sleep(0.02)
    raise errors.Unavailable(f"the head was not ready in time: {processes.tail(log)}")


def cold_cpu_s(data: pathlib.Path, line: str) -> float:
    """Processor time of one `cmsh -c`, from the start of its process to its end."""
    command = [str(_program("cmsh")), "--data", str(data), "-c", line]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert child.stderr is not None
    said = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.stderr.close()
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise errors.Terminal(f"cmsh -c {line!r} failed: {said.decode(errors='replace')[-500:]}")
    return usage.ru_utime + usage.ru_stime


@dataclass(slots=True)
class Readers:
    """Many clients of one event stream. They only look for revisions, so that the daemon is measured, not they."""

    daemon: Daemon
    count: int
    seen: list[int] = field(default_factory=list)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _open: int = 0

    async def __aenter__(self) -> Readers:
        self.seen = [0] * self.count
        self._tasks = [asyncio.create_task(self._read(index)) for index in range(self.count)]
        await self._until(lambda: self._open == self.count, "the streams were not opened")
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, each: int) -> None:
        """Until every client has that many revisions."""
        await self._until(lambda: min(self.seen) >= each, f"not every client got {each} revisions")

    async def _until(self, is_so: Callable[[], bool], otherwise: str) -> None:
        end = time.monotonic() + DELIVERY_DEADLINE_S
        while not is_so():
            ended = [task for task in self._tasks if task.done()]
            if ended:
                ended[0].result()
            if ended or time.monotonic() > end:
                raise errors.Unavailable(otherwise)
            await asyncio.sleep(0.01)

    async def _read(self, index: int) -> None:
        context = ssl.create_default_context(cafile=str(self.daemon.data / "ca.crt"))
        token = headfolder.Folder(self.daemon.data).admin_token()
        headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
        timeout = aiohttp.ClientTimeout(total=None, sock_read=60)
        async with (
            aiohttp.ClientSession(headers=headers, timeout=timeout) as session,
            session.get(f"{self.daemon.url}/api/v1/events?types=revision", ssl=context) as answer,
        ):
            answer.raise_for_status()
            self._open += 1
            last = b""
            async for chunk in answer.content.iter_any():
                text = last + chunk
                lines = text.split(b"\n")
                last = lines.pop()
                self.seen[index] += sum(line.startswith(b"event: revision") for line in lines)
