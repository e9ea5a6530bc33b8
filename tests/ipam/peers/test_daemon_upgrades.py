"""One store, two makes of daemon in turn: upgrade, downgrade, upgrade, with addresses in use all the time."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests import programs, servers
from tests.ipam.cni.calls import Answer, invoke
from tests.ipam.controller.worlds import World, world_on
from tests.ipam.node.daemons import Caller, NodeDaemon, code_of
from tests.waiting import wait_until

pytestmark = pytest.mark.real

SPEC = {"subnet": "10.60.0.0/16", "perNodeBlockSize": 4000, "gateway": "10.60.0.1"}
BLOCK = {"nodeName": "a", "startIP": "10.60.0.1", "endIP": "10.60.15.160"}
WHOLE_BELOW = 256 << 10


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with world_on(programs.server("real")) as made:
        await made.pool("IPPool", "p", SPEC)
        await made.damage("IPPool", "p", [BLOCK])
        yield made


class Node:
    """A node whose daemon is replaced again and again."""

    def __init__(self, world: World, folder: Path) -> None:
        where = (world.server.kubeconfig, world.node("a"), world.namespace)
        self.makes = {
            "ours": NodeDaemon(folder, *where),
            "theirs": NodeDaemon(folder, *where, program=programs.original("ipam-node")),
        }
        self.held: dict[str, str] = {}
        self.number = 1
        self.current: NodeDaemon | None = None

    def start(self, make: str) -> None:
        """Start a daemon of this make; it knows the pool, and every address that is held."""
        self.current = self.makes[make]
        self.current.start(*(["--cleaner=off"] if make == "ours" else []))
        with self.current.caller() as caller:
            # The original answers before it knows the pool; the address is taken all the same, by its index.
            wait_until(
                lambda: code_of(lambda: caller.allocate("p", container="probe", index=3998)) == "OK",
                "the pool is known",
            )
            caller.deallocate("p", container="probe")
            for container in self.held:
                assert caller.is_allocated("p", container=container), container

    def work(self, count: int) -> None:
        """Give addresses, each the next of the rotation, and free every third."""
        assert self.current is not None
        with self.current.caller() as caller:
            for _ in range(count):
                self.number += 1
                self._give(caller, f"{self.number:064x}")
                if self.number % 3 == 0:
                    gone = next(iter(self.held))
                    caller.deallocate("p", container=gone)
                    del self.held[gone]

    def _give(self, caller: Caller, container: str) -> None:
        high, low = divmod(self.number, 256)
        address = caller.address("p", container=container, pod=f"pod-{self.number}")
        assert address == f"10.60.{high}.{low}/16"
        self.held[container] = address

    def stop(self, number: int) -> None:
        assert self.current is not None
        code = self.current.stop(number)
        assert code == (0 if number == signal.SIGTERM else -signal.SIGKILL)

    def kill(self) -> None:
        for one in self.makes.values():
            if one.process is not None and one.process.poll() is None:
                one.process.kill()
                one.process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_upgrade_downgrade_upgrade(world: World, tmp_path: Path, number: int) -> None:
    node = Node(world, tmp_path)

    def play() -> None:
        for make in ("theirs", "ours", "theirs", "ours", "theirs"):
            node.start(make)
            node.work(20)
            node.stop(number)

    try:
        await asyncio.to_thread(play)
    finally:
        node.kill()


class Pods:
    """Pods that come and go, by our plugin, one after the other."""

    def __init__(self, socket: Path, folder: Path) -> None:
        self.outcomes: list[Answer] = []
        self._folder, self._has_ended = folder, threading.Event()
        # Time for a machine that is busy: how long it takes is not what is asked here.
        conf = {"daemonSocket": f"unix://{socket}", "logFile": str(folder / "cni.log"), "daemonCallTimeoutSeconds": 60}
        (folder / "nv-ipam.conf").write_text(json.dumps(conf))
        self._thread = threading.Thread(target=self._come_and_go)

    def __enter__(self) -> Pods:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._has_ended.set()
        self._thread.join()

    def more(self) -> None:
        """Wait for some more of them."""
        count = len(self.outcomes)
        wait_until(lambda: len(self.outcomes) >= count + 4, "pods come and go")

    def _come_and_go(self) -> None:
        network = {"cniVersion": "1.1.0", "name": "p", "type": "macvlan", "ipam": {"type": "nv-ipam"}}
        env = {
            "CNI_CONTAINERID": "f" * 64,
            "CNI_NETNS": "/no/such/netns",
            "CNI_IFNAME": "net1",
            "CNI_PATH": "/opt/cni/bin",
            "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAME=visitor;K8S_POD_NAMESPACE=ns;K8S_POD_UID=uid",
            "NV_IPAM_CONF_DIR": str(self._folder),
        }
        while not self._has_ended.is_set():
            for command in ("ADD", "DEL"):
                raw = json.dumps(network).encode()
                self.outcomes.append(invoke(programs.nv_ipam(), env | {"CNI_COMMAND": command}, raw, cwd=self._folder))


@pytest.mark.parametrize("first", ["theirs", "ours"])
async def test_ours_stands_by_and_no_call_of_the_plugin_fails(world: World, tmp_path: Path, first: str) -> None:
    node = Node(world, tmp_path)
    successor = Node(world, tmp_path).makes["ours"]

    def play() -> None:
        node.start(first)
        node.work(10)
        node.makes["successor"] = successor
        # What answers is the first one.
        successor.start("--cleaner=off")
        wait_until(lambda: "standby.begun" in successor.log.read_text(), "it stands by", describe=successor.tail)
        successor.ready()
        with Pods(successor.socket, tmp_path) as pods:
            pods.more()
            with node.makes[first].caller() as caller:
                caller.allocate("p", container="last", index=3900)
            node.stop(signal.SIGTERM)
            wait_until(lambda: "standby.ended" in successor.log.read_text(), "it serves", describe=successor.tail)
            pods.more()
        assert [each for each in pods.outcomes if each.exit != 0] == []
        with successor.caller() as caller:
            for container in (*node.held, "last"):
                assert caller.is_allocated("p", container=container), container
        assert successor.stop() == 0

    try:
        await asyncio.to_thread(play)
    finally:
        node.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_large_store_is_brought_up_to_date_before_the_original_takes_over(
    world: World, tmp_path: Path, number: int
) -> None:
    node = Node(world, tmp_path)

    def play() -> None:
        node.start("ours")
        node.work(900)
        store = node.makes["ours"].store
        wait_until(lambda: store.stat().st_size > WHOLE_BELOW, "the file is large")
        node.work(60)
        node.stop(number)
        if number == signal.SIGKILL:
            program = servers.bedplate_program()
            subprocess.run([str(program), "ipam", "store", "sync", str(store)], check=True, timeout=120)
        node.start("theirs")
        node.work(5)
        node.stop(signal.SIGTERM)
        node.start("ours")
        node.work(5)
        node.stop(signal.SIGTERM)

    try:
        await asyncio.to_thread(play)
    finally:
        node.kill()


async def test_the_original_does_not_start_while_ours_holds_the_store(world: World, tmp_path: Path) -> None:
    node = Node(world, tmp_path)

    def play() -> None:
        node.start("ours")
        # Also after ours replaced the file several times, which is when the original loses its own lock.
        node.work(3)
        other = node.makes["theirs"].words()
        ended = subprocess.run(other, capture_output=True, text=True, timeout=120, check=False)
        assert ended.returncode == 1
        assert "store lock" in ended.stdout + ended.stderr
        node.work(1)
        node.stop(signal.SIGTERM)

    try:
        await asyncio.to_thread(play)
    finally:
        node.kill()
