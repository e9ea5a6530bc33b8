"""The contenders on one node: daemons with their CNI plugins, and host-local, each in folders of its own.

In: a `World` (a real API server with the pool, the node's block and the pods). Out: `Contender`s, and a context manager
that runs one with as many reservations in its store as wanted. All see the same node, pool and pods; what they give
away lies in stores of their own. The original is found in the folder BEDPLATE_PEERS names.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ipaddress
import json
import os
import pathlib
import shutil
import site
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import yaml

from bedplate.api.resources import NAMESPACES, PODS
from bedplate.core import errors
from bedplate.ipam.node import poolconfig, reservations, storefile
from bedplate.ipam.pools import IPPOOLS
from bedplate.kube import client as clients
from bench import ipamload, managers

__all__ = ["Contender", "Node", "World", "contenders", "held"]

ROOT = pathlib.Path(__file__).parents[1]
HOST_LOCAL = pathlib.Path("/usr/lib/cni/host-local")
SUBNET, FIRST, LAST, GATEWAY = "10.64.0.0/12", "10.64.0.1", "10.64.64.0", "10.64.0.1"
POOL, NODE = "bench", "bench-ipam-node"
POOLS_NAMESPACE, PODS_NAMESPACE = "bench-ipam", "bench-ipam-pods"
INTERFACES = 16
READY_DEADLINE_S = 180.0
WRITERS = 24


@dataclass(slots=True)
class World:
    """What all contenders share."""

    kubeconfig: pathlib.Path
    client: clients.Client
    uids: dict[str, str] = field(default_factory=dict)
    """Of the pods that exist, by name."""

    async def prepare(self, pods: int) -> None:
        """The custom resources, the pool with the node's block, and pods on the node."""
        await install_resources(self.client)
        for name in (POOLS_NAMESPACE, PODS_NAMESPACE):
            await self.client.create(NAMESPACES.raw(), {"metadata": {"name": name}})
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        path = f"/api/v1/namespaces/{PODS_NAMESPACE}/serviceaccounts"
        await self.client.request("POST", path, body=msgspec.json.encode(account))
        spec = {"subnet": SUBNET, "perNodeBlockSize": 16384, "gateway": GATEWAY}
        pool = await self.client.create(IPPOOLS.raw(), {"metadata": {"name": POOL}, "spec": spec}, POOLS_NAMESPACE)
        pool["status"] = {"allocations": [{"nodeName": NODE, "startIP": FIRST, "endIP": LAST}]}
        await self.client.update(IPPOOLS.raw(), pool, POOLS_NAMESPACE, subresource="status")
        numbers = iter(range(pods))

        async def write() -> None:
            for number in numbers:
                pod = await self.client.create(PODS.raw(), _pod(number), PODS_NAMESPACE)
                self.uids[pod["metadata"]["name"]] = pod["metadata"]["uid"]

        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(write())

    def call(self, command: str, pod: int, interface: int, *, salt: str = "", at_s: float = 0.0) -> ipamload.Call:
        name = pod_name(pod)
        uid = self.uids.get(name, "")
        return ipamload.Call(
            command, container(name + salt), f"net{interface}", name, PODS_NAMESPACE, uid=uid, at_s=at_s
        )

    def prior(self, count: int, first_pod: int) -> list[reservations.Reservation]:
        """Reservations of pods that exist, sixteen each."""
        return [
            _reservation(number, pod_name(pod), f"net{interface}", self.uids[pod_name(pod)])
            for number in range(count)
            for pod, interface in [(first_pod + number // INTERFACES, number % INTERFACES)]
        ]


async def install_resources(client: clients.Client) -> None:
    """The custom resource definitions of `deploy/crds`, known to the server when this ends."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for file in sorted((ROOT / "deploy" / "crds").glob("nv-ipam*.yaml")):
        document = yaml.safe_load(file.read_text())
        with contextlib.suppress(errors.AlreadyExists):
            await client.request("POST", path, body=msgspec.json.encode(document))
    end = time.monotonic() + READY_DEADLINE_S
    while True:
        with contextlib.suppress(errors.BedplateError):
            await client.list(IPPOOLS.raw(), "default")
            return
        if time.monotonic() > end:
            raise errors.Unavailable("the server does not come to know the pools' kinds")
        await asyncio.sleep(0.1)


def pod_name(number: int) -> str:
    return f"pod-{number:05d}"


def container(name: str) -> str:
    """A sandbox's id as containerd makes them: 64 hexadecimal digits."""
    return hashlib.sha256(name.encode()).hexdigest()


def _pod(number: int) -> dict[str, Any]:
    spec = {"nodeName": NODE, "containers": [{"name": "c", "image": "none"}], "automountServiceAccountToken": False}
    return {"metadata": {"name": pod_name(number)}, "spec": spec}


def stale(count: int) -> list[reservations.Reservation]:
    """Reservations of pods that are gone."""
    return [_reservation(number, f"gone-{number:05d}", "net0", f"uid-{number:05d}") for number in range(count)]


def _reservation(number: int, pod: str, interface: str, uid: str) -> reservations.Reservation:
    return reservations.Reservation(
        pool=POOL,
        container_id=container(pod),
        interface_name=interface,
        address=str(ipaddress.ip_address(FIRST) + 1 + number),
        create_time="2026-11-01T12:00:00.123456789Z",
        pod_uid=uid,
        pod_name=pod,
        pod_namespace=PODS_NAMESPACE,
        device_id="",
        config=_config(),
    )


def _config() -> str:
    return poolconfig.document_of(SUBNET, FIRST, LAST, GATEWAY, (), (), default_gateway=False)


def held(reservations_: Sequence[reservations.Reservation]) -> bytes:
    """A store file that holds these."""
    record = storefile.PoolRecord(POOL, {}, _config(), reservations_[-1].address if reservations_ else "")
    for reservation in reservations_:
        key = reservations.key_of(reservation.container_id, reservation.interface_name)
        record.entries[key] = storefile.Entry(reservation, storefile.encode_entry(key, reservation))
    return storefile.encode(storefile.Document({POOL: record})) if reservations_ else b""


@dataclass(frozen=True, slots=True)
class Node:
    """A contender that can be called. `usage` is its daemon's, if it has one, which was started at `started_s`."""

    name: str
    plugin: pathlib.Path
    config: pathlib.Path
    folder: pathlib.Path
    usage: managers.Usage | None = None
    started_s: float = 0.0

    async def drive(self, calls: Sequence[ipamload.Call], at_once: int) -> list[ipamload.Outcome]:
        return await ipamload.drive(self.plugin, self.config, calls, at_once, self.folder)


@dataclass(frozen=True, slots=True)
class Contender:
    """A plugin to measure, with the daemon behind it."""

    name: str
    plugin: pathlib.Path
    daemon: tuple[str, ...] = ()

    @contextlib.asynccontextmanager
    async def running(
        self, world: World, folder: pathlib.Path, prior: Sequence[reservations.Reservation], *, is_patient: bool = True
    ) -> AsyncIterator[Node]:
        """The contender with these reservations in its store. `is_patient`: wait until an ADD succeeds."""
        if not self.daemon:
            with _files(folder):
                yield _host_local(self, folder, prior)
            return
        # A socket's path must not be long, and the folder's may be.
        with (
            _files(folder),
            tempfile.TemporaryDirectory(prefix="ipam-") as short,
            self._daemon(world, folder, pathlib.Path(short, "sock"), prior) as node,
        ):
            await _until_listening(pathlib.Path(short, "sock"))
            if is_patient:
                await _until_served(world, node)
            yield node

    @contextlib.contextmanager
    def _daemon(
        self, world: World, folder: pathlib.Path, listening: pathlib.Path, prior: Sequence[reservations.Reservation]
    ) -> Iterator[Node]:
        for name in ("bin", "conf"):
            (folder / name).mkdir()
        (folder / "store").write_bytes(held(prior))
        address = f"unix://{listening}"
        flags = [
            f"--node-name={NODE}", f"--ippools-namespace={POOLS_NAMESPACE}", f"--kubeconfig={world.kubeconfig}",
            f"--bind-address={address}", f"--cni-daemon-socket={address}", f"--store-file={folder / 'store'}",
            f"--cni-bin-dir={folder / 'bin'}", f"--cni-nv-ipam-bin-file={self.plugin}",
            f"--cni-conf-dir={folder / 'conf'}", f"--cni-log-file={folder / 'cni.log'}",
            "--metrics-bind-address=0", "--health-probe-bind-address=0", "--v=1", "--logging-format=json",
        ]  # fmt: skip
        network = {
            "cniVersion": "1.0.0", "name": "bench", "type": "macvlan",
            "ipam": {"type": "nv-ipam", "poolName": POOL, "confDir": str(folder / "conf")},
        }  # fmt: skip
        config = folder / "network.json"
        config.write_text(json.dumps(network))
        started_s = time.perf_counter()
        with managers.running([*self.daemon, *flags], {}, folder / "log") as usage:
            yield Node(self.name, folder / "bin" / "nv-ipam", config, folder, usage, started_s)


def _host_local(contender: Contender, folder: pathlib.Path, prior: Sequence[reservations.Reservation]) -> Node:
    data = folder / "data" / "bench"
    data.mkdir(parents=True)
    for taken in prior:
        (data / taken.address).write_text(f"{taken.container_id}\r\n{taken.interface_name}")
    if prior:
        (data / "last_reserved_ip.0").write_text(prior[-1].address)
    block = {"subnet": SUBNET, "rangeStart": FIRST, "rangeEnd": LAST, "gateway": GATEWAY}
    network = {
        "cniVersion": "1.0.0", "name": "bench", "type": "macvlan",
        "ipam": {"type": "host-local", "dataDir": str(folder / "data"), "ranges": [[block]]},
    }  # fmt: skip
    config = folder / "network.json"
    config.write_text(json.dumps(network))
    return Node(contender.name, contender.plugin, config, folder)


@contextlib.contextmanager
def _files(folder: pathlib.Path) -> Iterator[None]:
    folder.mkdir(parents=True)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _until_listening(path: pathlib.Path) -> None:
    end = time.monotonic() + READY_DEADLINE_S
    while time.monotonic() < end:
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.connect(str(path))
            return
        await asyncio.sleep(0.01)
    raise errors.Unavailable(f"nothing listens on {path}")


async def _until_served(world: World, node: Node) -> None:
    """Until an address was given, and taken back."""
    end = time.monotonic() + READY_DEADLINE_S
    while time.monotonic() < end:
        added = await node.drive([world.call("ADD", 0, 0, salt="ready")], 1)
        await node.drive([world.call("DEL", 0, 0, salt="ready")], 1)
        if added[0].is_ok:
            return
        await asyncio.sleep(0.1)
    raise errors.Unavailable(f"{node.name} gives no address: {added[0].printed}")


def _program() -> tuple[str, ...]:
    """Our daemon with the interpreter's options that it has in the image (tools/rootfs.py)."""
    places = [str(ROOT / "src"), *site.getsitepackages()]
    text = f"import sys; sys.path += {places!r}; from bedplate.apps.ipamnode import main; main()"
    return sys.executable, "-ISXutf8", "-c", text


def contenders(tell: Callable[[str], None]) -> list[Contender]:
    """Ours first; host-local and the original where they are available."""
    ours = pathlib.Path(sys.executable).with_name("nv-ipam")
    if not ours.exists():
        raise errors.Unavailable("the plugin nv-ipam is not built (make setup builds it)")
    known = [Contender("ours", ours, _program())]
    folder = pathlib.Path(os.environ.get("BEDPLATE_PEERS") or "/nonexistent")
    if all(os.access(folder / name, os.X_OK) for name in ("ipam-node", "nv-ipam")):
        known.append(Contender("original", folder / "nv-ipam", (str(folder / "ipam-node"),)))
    else:
        tell("no original ipam-node and nv-ipam in the folder that BEDPLATE_PEERS names")
    if os.access(HOST_LOCAL, os.X_OK):
        known.append(Contender("host-local", HOST_LOCAL))
    else:
        tell(f"no {HOST_LOCAL}: the package containernetworking-plugins has it")
    return known
