"""What the head is measured with: a site of any size, a daemon over it and readers of its events as processes.

In: how many nodes. Out: objects for a data folder; a running `bedplate head serve`; counts of what event streams gave.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass

from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.head.folder import creation, datafolder
from bedplate.head.objects import Obj, Value
from bedplate.head.policy import Identity
from bedplate.head.session import Edit
from bedplate.lab import processes

__all__ = ["CATEGORIES", "OVERLAYS", "Daemon", "cold_cpu_s", "fill", "node", "objects", "readers", "serving"]

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
    roles_by_key = {role.key: role for role in roles}
    return "configurationoverlay", Obj("ConfigurationOverlay", name, values, children={"roles": roles_by_key})


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
    await creation.make(data, name="bench", nodes=0)
    async with datafolder.open_head(data) as opened:
        edits = [Edit(mode, obj.key, None, obj) for mode, obj in objects(count)]
        await opened.head.commit_as(Identity.local("bench"), edits, "all nodes")


@dataclass(frozen=True, slots=True)
class Daemon:
    """A head that serves a data folder."""

    data: pathlib.Path
    url: str
    pid: int

    def client(self) -> HeadClient:
        token = datafolder.Folder(self.data).admin_token()
        return HeadClient(self.url, token=token, ca_file=str(self.data / "ca.crt"))


@contextlib.asynccontextmanager
async def serving(data: pathlib.Path, *options: str) -> AsyncIterator[Daemon]:
    """`bedplate head serve` as a process, once it is ready."""
    log = data.with_suffix(".log")
    child = _start(data, log, *options)
    try:
        yield Daemon(data, await _ready(child, data, log), child.pid)
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(child.wait, STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _start(data: pathlib.Path, log: pathlib.Path, *options: str) -> subprocess.Popen[bytes]:
    command = [str(_program("bedplate")), "head", "serve", "--data", str(data), "--port", "0", *options]
    with log.open("ab") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, preexec_fn=processes.die_with_parent(os.getpid()))


def _program(name: str) -> pathlib.Path:
    return pathlib.Path(sys.executable).with_name(name)


async def _ready(child: subprocess.Popen[bytes], data: pathlib.Path, log: pathlib.Path) -> str:
    folder, end = datafolder.Folder(data), time.monotonic() + READY_DEADLINE_S
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
    stderr = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.stderr.close()
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise errors.Terminal(f"cmsh -c {line!r} failed: {stderr.decode(errors='replace')[-500:]}")
    return usage.ru_utime + usage.ru_stime


@contextlib.asynccontextmanager
async def readers(daemon: Daemon, count: int, each: int) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Many clients of the event stream in a process of their own, once their streams are open. Out: what waits until
    every one of them has `each` revisions."""
    command = [sys.executable, "-m", "bench.headreaders", daemon.url, str(daemon.data), str(count), str(each)]
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)

    async def until(word: str) -> None:
        assert child.stdout is not None
        async with asyncio.timeout(DELIVERY_DEADLINE_S):
            line = (await child.stdout.readline()).decode().strip()
        if line != word:
            raise errors.Unavailable(f"the readers of events said {line or 'nothing'} instead of {word}")

    try:
        await until("open")
        yield lambda: until("done")
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
