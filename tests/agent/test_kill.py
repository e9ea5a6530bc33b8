"""kill -9 of the agent, at every call by which it changes anything: the node ends in the wanted state, no file is half
written, no service is started twice.

Each round forks this process: the child is the agent, whose n-th change of the machine is preceded by a SIGKILL of
itself. The next child goes on, and may be killed as well; the last one must find nothing that it cannot finish."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.machines import FakeHead, Machine, desired
from tests.waiting import wait_until

from bedplate.agent.apply import Effects
from bedplate.agent.files import Root
from bedplate.agent.loop import Agent
from bedplate.agent.packages.folder import Folder
from bedplate.agent.services.supervisor import Supervisor
from bedplate.agent.state import State
from bedplate.api.desired import Desired, File
from bedplate.client import Wanted

UNIT = """\
[Service]
ExecStart=/bin/sh -c 'echo {name} $$$$ >> $BEDPLATE_ROOT/starts; exec sleep 1000'
"""
POINTS = ("open", "write", "rename", "unlink", "mkdir", "rmdir", "fsync", "fchmod", "symlink", "utime")
_SEEN = {"calls": 0}


def unit(name: str) -> File:
    return File(path=f"/etc/systemd/system/{name}.service", content=UNIT.format(name=name))


def states() -> tuple[Desired, Desired]:
    """Files that stay, change, come and go; services that are restarted, started and stopped; a package each."""
    first = desired(
        unit("app"),
        unit("old"),
        File(path="/etc/app/app.conf", content="one\n", services=("app",), action="RESTART"),
        File(path="/etc/app/gone.conf", content="gone\n"),
        File(path="/etc/hosts", content="10.0.0.1 a\n", block=True),
        File(path="/etc/site.conf", content="ours\n"),
        services=["app", "old"],
        packages=("first",),
    )
    second = desired(
        unit("app"),
        unit("new"),
        File(path="/etc/app/app.conf", content="two\n" * 1000, mode="0600", services=("app",), action="RESTART"),
        File(path="/etc/app/deep/er/new.conf", content="new\n", services=("new",), action="RELOAD"),
        File(path="/etc/hosts", content="10.0.0.2 b\n", block=True),
        services=["app", "new"],
        packages=("second",),
        revision=2,
    )
    return first, second


def node(folder: Path) -> Effects:
    root = Root(str(folder), is_privileged=False)
    state = State(str(folder / "var/lib/bedplate-agent"))
    services = Supervisor(
        root, str(folder / "run/services"), str(folder / "run/logs"), environ={"BEDPLATE_ROOT": str(folder)}
    )
    return Effects(root, state, services, Folder(str(folder.parent / "packages"), root, f"{state.folder}/packages"))


async def become(folder: Path, state: Desired) -> None:
    """What an agent does when the head says something else, without waiting for a head."""
    agent = Agent(node(folder), FakeHead(state))
    await agent.recover()
    await agent._settle(Wanted(state.digest, state))
    assert agent.held.is_whole


def child(work: Callable[[], Any]) -> int:
    """Do something in a process of its own: its exit code, negative for a signal."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_at(number: int, folder: Path, state: Desired) -> int:
    """Let an agent go until its `number`th change of the machine."""

    def work() -> None:
        plant(number)
        asyncio.run(become(folder, state))

    return child(work)


def plant(number: int) -> None:
    """Count the calls that change the machine, and kill this process before the `number`th."""

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **more: Any) -> Any:
            _SEEN["calls"] += 1
            if _SEEN["calls"] == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **more)

        return wrapped

    _SEEN["calls"] = 0
    for name in POINTS:
        setattr(os, name, counted(getattr(os, name)))
    subprocess.Popen = counted(subprocess.Popen)  # type: ignore[misc, assignment]


def points(folder: Path, state: Desired) -> int:
    """How many changes a whole run makes."""
    reader, writer = os.pipe()

    def work() -> None:
        plant(-1)
        asyncio.run(become(folder, state))
        os.write(writer, str(_SEEN["calls"]).encode())

    assert child(work) == 0
    count = int(os.read(reader, 100))
    os.close(reader)
    os.close(writer)
    return count


class Site:
    """A folder with packages, in which nodes are made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("first", "second"):
            place = folder / f"packages/{name}/opt/{name}/program"
            place.parent.mkdir(parents=True)
            place.write_text(name)

    def node(self, name: str) -> Path:
        """A node that holds the first state."""
        folder = self.folder / name
        machine = Machine(folder)
        machine.put("/etc/site.conf", "theirs\r\n")
        machine.put("/etc/hosts", "127.0.0.1 localhost\n")
        assert child(lambda: asyncio.run(become(folder, states()[0]))) == 0
        return folder


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    for folder in tmp_path.iterdir():
        if (folder / "run").exists():
            end(folder)


def end(folder: Path) -> None:
    """Stop what runs on a node."""

    async def stop() -> None:
        for name in ("app", "old", "new"):
            await node(folder).services.stop(name, 10.0)

    assert child(lambda: asyncio.run(stop())) == 0


def running(folder: Path) -> list[str]:
    """The services of a node, by their processes."""
    mark = f"{folder}/run/services/"
    names = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                environ = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            names += [
                word.decode().rpartition("/")[2]
                for word in environ
                if word.startswith(f"BEDPLATE_SERVICE={mark}".encode())
            ]
    return sorted(names)


def tree(folder: Path) -> dict[str, tuple[str, str]]:
    """Modes and contents, without times."""
    found = Machine(folder).tree("/run", "/starts")
    return {path: (mode, content.partition(" ")[0]) for path, (mode, content) in found.items()}


def check(folder: Path, expected: dict[str, tuple[str, str]], context: str) -> None:
    assert tree(folder) == expected, context
    wait_until(lambda: running(folder) == ["app", "new"], f"one of each service runs ({context})")
    starts = [line.split()[0] for line in (folder / "starts").read_text().splitlines()]
    assert sorted(starts) == ["app", "app", "new", "old"], context


def rounds(site: Site, numbers: list[int], rng: random.Random, expected: dict[str, tuple[str, str]]) -> int:
    """Kill at each of these calls; every second time the one that goes on as well. How many were killed."""
    _, second = states()
    kills = 0
    for turn, number in enumerate(numbers):
        folder = site.node(f"node{turn}")
        wait_until(lambda folder=folder: running(folder) == ["app", "old"])
        context = f"killed at call {number}"
        ended = killed_at(number, folder, second)
        # How often it looks for a process depends on the time: the last calls are not made every time.
        assert ended in (0, -signal.SIGKILL), context
        kills += ended != 0
        if turn % 2:
            again = rng.randrange(1, 100)
            context += f", then at {again}"
            kills += killed_at(again, folder, second) == -signal.SIGKILL
        assert child(lambda folder=folder: asyncio.run(become(folder, second))) == 0, context
        check(folder, expected, context)
        end(folder)
        shutil.rmtree(folder)
    return kills


def whole(site: Site) -> tuple[int, dict[str, tuple[str, str]]]:
    """A run without a kill: how many calls it makes, and what it leaves."""
    folder = site.node("whole")
    wait_until(lambda: running(folder) == ["app", "old"])
    count = points(folder, states()[1])
    expected = tree(folder)
    check(folder, expected, "not killed")
    end(folder)
    assert expected["/etc/site.conf"][1] == hashlib.sha256(b"theirs\r\n").hexdigest()
    return count, expected


def test_an_agent_that_is_killed_at_some_steps_leaves_nothing_half_done(site: Site, rng: random.Random) -> None:
    count, expected = whole(site)
    assert count > 60
    assert rounds(site, sorted(rng.sample(range(1, count), 4)), rng, expected) >= 3


@pytest.mark.soak
def test_an_agent_that_is_killed_at_every_step_leaves_nothing_half_done(site: Site, rng: random.Random) -> None:
    count, expected = whole(site)
    numbers = [1 + number % (count - 1) for number in range(max(200, count - 1))]
    assert rounds(site, numbers, rng, expected) >= 200
