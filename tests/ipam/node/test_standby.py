"""Two daemons on one node: the second one waits until the first one has ended, and knows what that one wrote."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import forkserver
from tests.ipam.node.daemons import NodeDaemon
from tests.ipam.node.storekit import owner, pool
from tests.waiting import DEADLINE_S, until, wait_until

from bedplate.core import errors
from bedplate.core.clock import ManualClock, SystemClock
from bedplate.ipam.node import daemon as daemons
from bedplate.ipam.node import standby
from bedplate.ipam.node.daemon import Daemon
from bedplate.ipam.node.ledger import Ledger
from bedplate.ipam.node.options import read
from bedplate.ipam.node.reservations import StoreBusy, Wanted

IS_TOLD = tuple(int(part) for part in os.uname().release.split(".")[:2]) >= (6, 5)
# It listens when it has written a line, no longer listens after a first one it reads, and ends after a second one.
_OTHER = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print(flush=True)
sys.stdin.readline()
listener.close()
os.unlink(sys.argv[1])
print(flush=True)
sys.stdin.readline()
"""


class Begun:
    """Counts."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> None:
        self.count += 1


@contextlib.contextmanager
def listening(path: Path, backlog: int = 100) -> Iterator[socket.socket]:
    """A daemon of this process that never accepts by itself."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(backlog)
        listener.setblocking(False)
        yield listener
    path.unlink(missing_ok=True)


@contextlib.contextmanager
def other_process(path: Path) -> Iterator[Callable[[], None]]:
    """A daemon in a process of its own, and what makes it take its next step."""
    words = [sys.executable, "-S", "-c", _OTHER, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None

        def step() -> None:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            process.stdout.readline()

        try:
            process.stdout.readline()
            yield step
        finally:
            process.kill()


def open_files() -> set[tuple[str, str]]:
    """Each open file of this process: its number and what it is."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        # The folder itself was open while it was listed.
        with contextlib.suppress(FileNotFoundError):
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return found


async def turns() -> None:
    """Let everything happen that waits for nothing."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_without_a_listener_nothing_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(tmp_path / "left"))
    begun = Begun()
    for name in ("none", "file", "left", "no/folder", "x" * 200):
        assert not await standby.wait(str(tmp_path / name), time=ManualClock(), begin=begun), name
    assert begun.count == 0


async def test_a_listener_is_looked_at_until_it_is_gone_for_a_moment(tmp_path: Path) -> None:
    path, time, begun = tmp_path / "s", ManualClock(), Begun()
    with listening(path) as listener:
        waiting = asyncio.ensure_future(standby.wait(str(path), time=time, begin=begun))
        for _ in range(3):
            await turns()
            # It ends every connection and goes on listening; none is held open, which would keep it from ending.
            connection, _ = listener.accept()
            connection.settimeout(DEADLINE_S)
            assert connection.recv(1) == b""
            connection.close()
            await time.advance(standby.POLL_S)
    await time.advance(standby.POLL_S)
    assert not waiting.done(), "its last calls may not have ended yet"
    with listening(path):
        await time.advance(standby.SETTLE_S)
        assert not waiting.done()
    await time.advance(standby.POLL_S)
    await time.advance(standby.SETTLE_S)
    assert await waiting
    assert begun.count == 1


async def test_a_listener_that_is_behind_is_a_listener(tmp_path: Path) -> None:
    with listening(tmp_path / "s", 0), contextlib.ExitStack() as stack:
        with contextlib.suppress(BlockingIOError):
            while True:
                one = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
                one.connect(str(tmp_path / "s"))
        assert standby.look(str(tmp_path / "s")) == standby.Listener(None)


# Not with the tests that must run everywhere: `make test` is for older kernels, too.
@pytest.mark.external
@pytest.mark.skipif(not IS_TOLD, reason="Linux tells the end of a socket's process since 6.5")
async def test_the_end_of_its_process_counts_not_that_of_its_listening(tmp_path: Path) -> None:
    path, time, begun = tmp_path / "s", ManualClock(), Begun()
    with other_process(path) as step:
        waiting = asyncio.ensure_future(standby.wait(str(path), time=time, begin=begun))
        await turns()
        await asyncio.to_thread(step)
        await time.advance(60)
        assert not path.exists() and not waiting.done(), "it may still write"
        step()
        # The clock stands still.
        assert await asyncio.wait_for(waiting, DEADLINE_S)
    assert begun.count == 1


async def test_who_is_told_to_stop_meanwhile_stops(tmp_path: Path) -> None:
    before = open_files()
    with other_process(tmp_path / "s"):
        waiting = asyncio.ensure_future(standby.wait(str(tmp_path / "s"), time=ManualClock(), begin=Begun()))
        await turns()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    # Not their number: what an earlier test forgot may be collected, and so closed, meanwhile.
    assert not open_files() - before


class Node:
    """Daemons in this process on one socket and one store; the API server does not answer."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.socket, self.store = folder, folder / "s", folder / "store"
        cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
        context = {"name": "c", "context": {"cluster": "c"}}
        config = {"clusters": [cluster], "contexts": [context], "current-context": "c"}
        (folder / "config").write_text(json.dumps(config))
        self.attempts = 0
        self.ledgers: list[Ledger] = []
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, *more: str) -> tuple[Daemon, asyncio.Task[None]]:
        words = ["--node-name=n", f"--kubeconfig={self.folder}/config", f"--store-file={self.store}"]
        words += [f"--bind-address=unix://{self.socket}", "--health-probe-bind-address=0", "--metrics-bind-address=0"]
        words += ["--cni-skip-nv-ipam-binary-copy", "--cni-skip-nv-ipam-config-creation", *more]
        daemon = Daemon(read(words).options, {})
        task = asyncio.ensure_future(daemon.run())
        self.tasks.append(task)
        return daemon, task

    async def standing_by(self, *more: str) -> tuple[Daemon, asyncio.Task[None]]:
        daemon, task = self.start(*more)
        await until(lambda: daemon.readiness.is_standing_by or task.done(), "it stands by")
        assert daemon.readiness.is_standing_by
        return daemon, task

    async def reserve(self, number: int) -> None:
        """What another daemon does with the store."""
        ledger = await Ledger.open(self.store, clock=SystemClock())
        await ledger.allocate(owner(number), [Wanted(pool("p"))])
        await ledger.close()

    def knows(self, number: int) -> bool:
        asker = owner(number)
        return self.ledgers[-1].find("p", asker.container_id, asker.interface_name) is not None


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    made = Node(tmp_path)
    monkeypatch.setattr(standby, "POLL_S", 0.01)
    monkeypatch.setattr(standby, "SETTLE_S", 0.01)
    really: Callable[..., Awaitable[Ledger]] = Ledger.open

    async def open_(*args: Any, **kwargs: Any) -> Ledger:
        made.attempts += 1
        ledger = await really(*args, **kwargs)
        made.ledgers.append(ledger)
        return ledger

    monkeypatch.setattr(daemons.Ledger, "open", open_)
    yield made
    for task in made.tasks:
        if not task.done():
            await stop(task)


async def test_the_store_is_read_after_the_other_daemons_end(node: Node) -> None:
    with listening(node.socket):
        daemon, task = await node.standing_by()
        assert not node.store.exists(), "the store is not even opened"
        assert daemon.readiness.note().startswith("stand-by")
        await node.reserve(1)
    await until(lambda: daemon.readiness.has_socket or task.done(), "it serves")
    assert node.knows(1) and not node.knows(2)
    assert node.socket.exists() and daemon.readiness.note() == ""


async def test_a_daemon_that_is_killed_leaves_its_socket_and_the_next_one_serves(node: Node) -> None:
    with other_process(node.socket):
        daemon, task = await node.standing_by()
    assert node.socket.exists(), "nobody has removed it"
    await until(lambda: daemon.readiness.has_socket or task.done(), "it serves")
    assert isinstance(standby.look(str(node.socket)), standby.Listener)


async def test_a_file_in_the_place_of_the_socket_is_an_error_and_is_left_alone(node: Node) -> None:
    node.socket.write_text("someone's")
    _, task = node.start()
    with pytest.raises(errors.Invalid, match="is not a socket"):
        await asyncio.wait_for(task, DEADLINE_S)
    assert node.socket.read_text() == "someone's"
    # The store is free again.
    await node.reserve(1)


async def test_of_three_daemons_one_serves_at_a_time(node: Node) -> None:
    first, first_task = node.start()
    await until(lambda: first.readiness.has_socket, "the first one serves")
    await node.ledgers[-1].allocate(owner(1), [Wanted(pool("p"))])
    others = [await node.standing_by(), await node.standing_by()]
    await stop(first_task)
    await until(lambda: any(one.readiness.has_socket for one, _ in others), "one of them serves")
    assert node.knows(1)
    (left, left_task) = next(each for each in others if not each[0].readiness.has_socket)
    (serving_task,) = (task for one, task in others if one is not left)
    await until(lambda: left.readiness.is_standing_by, "the other one stands by again")
    await stop(serving_task)
    await until(lambda: left.readiness.has_socket or left_task.done(), "the last one serves")
    assert node.knows(1)


async def test_a_daemon_that_stands_by_stops_when_it_is_told(node: Node) -> None:
    with listening(node.socket):
        _, task = await node.standing_by()
        await stop(task)
        assert task.cancelled()
        assert node.socket.exists() and not node.store.exists()


async def test_a_part_that_fails_meanwhile_ends_it(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = asyncio.Event()

    async def settle(*args: object) -> None:
        await fails.wait()
        raise errors.Unavailable("broken")

    monkeypatch.setattr(Daemon, "_settle", settle)
    with listening(node.socket):
        _, task = await node.standing_by()
        fails.set()
        with pytest.raises(Exception, match="broken"):
            await asyncio.wait_for(task, DEADLINE_S)
        assert not node.store.exists()


async def test_a_store_that_is_still_locked_is_waited_for(node: Node) -> None:
    """A daemon of ours has given up its socket, and writes."""
    ending = await Ledger.open(node.store, clock=SystemClock())
    daemon, task = node.start()
    await until(lambda: node.attempts >= 4, "it is tried again")
    assert not task.done() and not daemon.readiness.has_store
    await ending.allocate(owner(3), [Wanted(pool("p"))])
    await ending.close()
    await until(lambda: daemon.readiness.has_socket or task.done(), "it serves")
    assert node.knows(3)


@pytest.mark.parametrize("address", ["unix", "tcp"])
async def test_a_store_that_stays_locked_is_an_error(node: Node, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    if address == "unix":
        monkeypatch.setattr(daemons, "LOCK_S", 0.1)
    more = [] if address == "unix" else ["--bind-address=tcp://127.0.0.1:0", "--allow-tcp"]
    holder = await Ledger.open(node.store, clock=SystemClock())
    _, task = node.start(*more)
    with pytest.raises(StoreBusy, match="in use"):
        await task
    # The holder's own one, and of the daemon on a port just one.
    assert (node.attempts == 2) == (address == "tcp")
    await holder.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_program_leaves_everything_to_the_other_one_when_it_ends_while_it_stands_by(
    tmp_path: Path, number: int
) -> None:
    Node(tmp_path)
    made = NodeDaemon(tmp_path, tmp_path / "config", "n", "default")
    with listening(made.socket), made.log.open("wb") as out:
        process = forkserver.Process(made.words(), stdout=out, stderr=out)
        try:
            wait_until(lambda: "standby.begun" in made.tail() or process.poll() is not None, "it stands by")
            assert made.tail().count("another daemon serves this node") == 1
            wait_until(lambda: made.probe("/healthz")[0] == 200, "it is alive", describe=made.tail)
            status, text = made.probe("/readyz?verbose")
            # Without the API server the node is better off with the other one.
            assert (status, "[+]store ok" in text, "[-]caches failed" in text) == (500, True, True)
            assert "stand-by: another daemon serves this node" in text
            process.send_signal(number)
            assert process.wait(DEADLINE_S) == (0 if number == signal.SIGTERM else -number)
        finally:
            process.kill()
        assert made.socket.exists() and not list(tmp_path.glob("store*"))
