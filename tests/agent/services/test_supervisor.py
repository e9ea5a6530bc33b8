"""Our own supervisor with real processes: started once, kept, reloaded, stopped whole, found by the next agent."""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.waiting import until

from bedplate.agent.files import Root
from bedplate.agent.services import keeper, supervisor
from bedplate.agent.services.supervisor import Supervisor

DAEMON = """\
import os, signal, sys, time
log = open(os.environ["BEDPLATE_ROOT"] + "/log", "a", buffering=1)
def say(word):
    log.write(f"{word} {os.getpid()}\\n")
def stop(number, frame):
    say("stopped")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGHUP, lambda number, frame: say("reloaded"))
say("started " + os.environ.get("WORD", "-"))
"""
SLEEP = "while True:\n    time.sleep(60)\n"
FORKS = """\
if os.fork():
    sys.exit(0)
os.setsid()
open(os.environ["BEDPLATE_ROOT"] + "/pid", "w").write(str(os.getpid()))
say("forked")
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
"""


class Node:
    """A sandbox with units."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = Root(str(folder))
        self.supervisor = self.agent()

    def agent(self) -> Supervisor:
        """Another agent's supervisor of the same node."""
        environ = {"BEDPLATE_ROOT": str(self.folder)}
        return Supervisor(self.root, str(self.folder / "run"), str(self.folder / "logs"), environ=environ)

    def unit(self, name: str, *lines: str, program: str = DAEMON + SLEEP, unit: tuple[str, ...] = ()) -> None:
        script = self.folder / f"{name}.py"
        script.write_text(program)
        start = (
            [] if any(line.startswith("ExecStart=") for line in lines) else [f"ExecStart={sys.executable} -S {script}"]
        )
        place = self.folder / f"etc/systemd/system/{name}.service"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("\n".join(["[Unit]", *unit, "[Service]", *start, *lines, ""]))

    def said(self) -> list[str]:
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []

    def words(self) -> list[str]:
        return [line.rpartition(" ")[0] for line in self.said()]

    async def pid(self, name: str = "app") -> int:
        return (await self.supervisor.status([name]))[name].pid

    async def condition(self, name: str = "app") -> str:
        return (await self.supervisor.status([name]))[name].condition

    def processes(self) -> list[int]:
        """All that carry this node's mark."""
        mark = f"BEDPLATE_ROOT={self.folder}".encode()
        pids = []
        for entry in os.listdir("/proc"):
            if entry.isdecimal():
                try:
                    if mark in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                        pids.append(int(entry))
                except OSError:
                    continue
        return pids


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    made = Node(tmp_path)
    yield made
    for name in [place.stem for place in (tmp_path / "etc/systemd/system").glob("*.service")]:
        await made.supervisor.stop(name, 5.0)
    await until(lambda: not made.processes())


async def test_a_service_is_started_once_and_stopped_whole(node: Node) -> None:
    node.unit("app", "Environment=WORD=hello")
    assert await node.supervisor.start("app") is None
    await until(lambda: node.words() == ["started hello"])
    assert await node.supervisor.start("app") is None
    assert await node.condition() == "running"
    assert os.path.exists(f"/proc/{await node.pid()}")
    assert await node.supervisor.stop("app") is None
    assert node.words() == ["started hello", "stopped"]
    assert await node.condition() == "stopped"
    assert node.processes() == []


async def test_the_next_agent_finds_it_and_does_not_start_it_again(node: Node) -> None:
    node.unit("app")
    assert await node.supervisor.start("app") is None
    pid = await node.pid()
    await until(lambda: node.words() == ["started -"])
    node.supervisor = node.agent()
    assert await node.supervisor.start("app") is None
    assert await node.pid() == pid
    assert await node.supervisor.restart("app") is None
    assert await node.pid() != pid
    await until(lambda: node.words().count("started -") == 2)


async def test_a_link_in_the_name_of_a_program_counts_at_each_start(node: Node) -> None:
    """As that to the version of the agent that runs: nobody tells the keeper that it leads elsewhere."""
    for version in ("1", "2"):
        program = node.folder / "opt" / version / "app"
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\necho "version {version} $$" >> "$BEDPLATE_ROOT/log"\nexec sleep 600\n')
        program.chmod(0o755)
    current = node.folder / "opt/current"
    current.symlink_to("1")
    node.unit("app", "ExecStart=/opt/current/app", "Restart=always", "RestartSec=0.01")
    assert await node.supervisor.start("app") is None
    await until(lambda: node.words() == ["version 1"])
    current.unlink()
    current.symlink_to("2")
    os.kill(await node.pid(), signal.SIGKILL)
    await until(lambda: node.words() == ["version 1", "version 2"])


async def test_two_agents_at_once_start_it_once(node: Node) -> None:
    node.unit("app")
    answers = await asyncio.gather(*(node.agent().start("app") for _ in range(4)))
    assert answers == [None] * 4
    await until(lambda: node.words() == ["started -"])


async def test_what_a_killed_keeper_left_is_killed_before_a_new_start(node: Node) -> None:
    node.unit("app")
    assert await node.supervisor.start("app") is None
    pid = await node.pid()
    os.kill(node.supervisor._look("app").holder, signal.SIGKILL)
    await until(lambda: not node.supervisor._look("app").holder)
    assert await node.condition() == "failed"
    assert os.path.exists(f"/proc/{pid}")
    assert await node.supervisor.start("app") is None
    await until(lambda: len(node.processes()) == 1)
    assert await node.pid() in node.processes()


async def test_a_service_that_dies_is_started_again_by_its_policy(node: Node) -> None:
    node.unit("app", "Restart=on-failure", "RestartSec=10ms")
    assert await node.supervisor.start("app") is None
    await until(lambda: node.words() == ["started -"])
    for count in (2, 3):
        os.kill(await node.pid(), signal.SIGKILL)
        await until(lambda count=count: node.words().count("started -") == count)
        await until(lambda: _is(node, "running"))
    assert (await node.supervisor.status(["app"]))["app"].restarts == 2


async def test_one_that_ends_well_is_left_alone_unless_always(node: Node) -> None:
    node.unit("app", "Restart=on-failure", program="pass")
    assert await node.supervisor.start("app") is None
    await until(lambda: _is(node, "stopped"))


@pytest.mark.parametrize(
    ("policy", "after"),
    [
        ("no", []),
        ("", []),
        ("always", ["a good end", "a bad code", "a signal", "no sign of readiness"]),
        ("on-success", ["a good end"]),
        ("on-failure", ["a bad code", "a signal", "no sign of readiness"]),
        ("on-abnormal", ["a signal", "no sign of readiness"]),
        ("on-abort", ["a signal"]),
        ("on-watchdog", []),
    ],
)
def test_a_policy_says_when_a_service_is_started_again(policy: str, after: list[str]) -> None:
    ends = {
        "a good end": "",
        "a bad code": keeper.outcome(3),
        "a signal": keeper.outcome(-11),
        "no sign of readiness": "it is not ready after 90 s",
    }
    assert [end for end, why in ends.items() if keeper.restarts(policy, why)] == after


async def test_one_that_fails_is_left_alone_unless_its_policy_says_otherwise(node: Node) -> None:
    node.unit("app", "Restart=no", "RestartSec=0", program=DAEMON + "sys.exit(3)\n")
    await node.supervisor.start("app")

    async def failed() -> bool:
        return await node.condition() == "failed"

    await until(failed)
    assert node.words() == ["started -"]


async def test_an_exit_code_that_the_unit_calls_a_success_is_one(node: Node) -> None:
    lines = ("Restart=on-failure", "RestartSec=0", "SuccessExitStatus=3")
    node.unit("app", *lines, program=DAEMON + "sys.exit(3)\n")
    await node.supervisor.start("app")

    async def stopped() -> bool:
        return bool(node.words()) and await node.condition() == "stopped"

    await until(stopped)
    assert node.words() == ["started -"]


def test_a_service_that_dies_again_and_again_waits_longer_until_it_has_lasted() -> None:
    waits, wait_s = [], -1.0
    for lasted_s in (1, 1, 1, 1, 61, 1):
        wait_s = keeper.pause(wait_s, 0.5, lasted_s)
        waits.append(wait_s)
    assert waits == [0.5, 1.0, 2.0, 4.0, 0.5, 1.0]
    assert [keeper.pause(0.0, 0.0, 1), keeper.pause(50.0, 0.5, 1)] == [0.2, 60.0]


async def test_restarts_are_further_apart_each_time(node: Node) -> None:
    program = DAEMON + "say(f'at {time.monotonic()}')\nsys.exit(1)\n"
    node.unit("app", "Restart=always", "RestartSec=0.1", program=program)
    await node.supervisor.start("app")

    def times() -> list[float]:
        return [float(words[3:]) for words in node.words() if words.startswith("at ")]

    await until(lambda: len(times()) >= 4)
    first, second, third, fourth = times()[:4]
    assert second - first >= 0.1 and third - second >= 0.2 and fourth - third >= 0.4


async def test_a_program_that_fails_is_told_with_its_last_words(node: Node) -> None:
    node.unit("app", "Type=notify", program="import sys; sys.exit('no such cluster')")
    why = await node.supervisor.start("app")
    assert why == "it ended before it was ready: exit code 1; no such cluster"
    assert await node.condition() == "failed"
    node.unit("app", "ExecStart=/none/program")
    assert await node.supervisor.start("app") == "/none/program: no such file or directory; no such cluster"


async def test_a_service_without_a_unit_says_what_to_do(node: Node) -> None:
    (node.folder / "etc/systemd/system").mkdir(parents=True)
    why = await node.supervisor.start("none")
    assert why is not None
    assert "install the package" in why
    assert await node.condition("none") == "missing"


async def test_a_reload_is_a_signal_or_a_command(node: Node) -> None:
    node.unit("app")
    await node.supervisor.start("app")
    await until(lambda: node.words() == ["started -"])
    assert await node.supervisor.reload("app") is None
    await until(lambda: node.words() == ["started -", "reloaded"])
    node.unit("two", "ExecReload=/bin/sh -c 'echo reload $MAINPID >> $BEDPLATE_ROOT/log'")
    await node.supervisor.start("two")
    assert await node.supervisor.reload("two") is None
    assert f"reload {await node.pid('two')}" in node.said()
    node.unit("bad", "ExecReload=/bin/false")
    await node.supervisor.start("bad")
    assert await node.supervisor.reload("bad") == "ExecReload /bin/false: exit code 1"
    assert await node.condition("bad") == "running"


async def test_a_daemon_that_forks_is_found_and_stopped_with_its_children(node: Node) -> None:
    node.unit("app", "Type=forking", "PIDFile=/pid", "TimeoutStopSec=200ms", program=DAEMON + FORKS + SLEEP)
    assert await node.supervisor.start("app") is None
    assert str(await node.pid()) == (node.folder / "pid").read_text()
    await until(lambda: len(node.processes()) == 2)
    # The child ignores SIGTERM and is killed when its time is up.
    assert await node.supervisor.stop("app") is None
    assert node.processes() == []


async def test_a_service_is_up_when_it_says_so(node: Node) -> None:
    ready = """\
import socket
time.sleep(0.2)
say("ready")
place = os.environ["NOTIFY_SOCKET"]
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"READY=1\\nSTATUS=fine", place)
"""
    node.unit("app", "Type=notify", program=DAEMON + ready + SLEEP)
    assert await node.supervisor.start("app") is None
    assert node.words() == ["started -", "ready"]


async def test_only_a_process_of_its_own_is_taken_for_the_main_process(node: Node) -> None:
    """What a service names is killed with it in the end."""
    script = """\
import socket
link = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
link.connect(os.environ["NOTIFY_SOCKET"])
child = os.fork()
if not child:
    time.sleep(600)
link.send(b"MAINPID=" + (os.environ["VICTIM"] if os.environ["VICTIM"] else str(child)).encode())
link.send(b"READY=1")
"""
    with subprocess.Popen(["sleep", "600"]) as stranger:
        try:
            for victim in (str(stranger.pid), ""):
                node.unit("app", "Type=notify", f"Environment=VICTIM={victim}", program=DAEMON + script + SLEEP)
                assert await node.supervisor.start("app") is None
                own = int(node.said()[-1].split()[-1])
                pid = await node.pid()
                assert pid == own if victim else pid != own
                await node.supervisor.stop("app")
            assert stranger.poll() is None
        finally:
            stranger.kill()


@pytest.mark.root
async def test_another_user_does_not_speak_for_a_service() -> None:
    script = """\
import socket, subprocess
child = os.fork()
if not child:
    time.sleep(600)
open(os.environ["BEDPLATE_ROOT"] + "/child", "w").write(str(child))
while not os.path.exists(os.environ["BEDPLATE_ROOT"] + "/go"):
    time.sleep(0.01)
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
"""
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        os.chmod(folder, 0o755)
        node = Node(Path(folder))
        node.unit("app", "Type=notify", program=DAEMON + script + SLEEP)
        child, place = node.folder / "child", node.folder / "run/app/notify"
        starting = asyncio.create_task(node.supervisor.start("app"))
        try:
            await until(lambda: child.exists() and child.read_text() != "")
            words = (
                "import os, socket, sys; os.setuid(int(sys.argv[1]));"
                " link = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM);"
                " link.sendto(sys.argv[2].encode(), sys.argv[3])"
            )
            user = str(pwd.getpwnam("nobody").pw_uid)
            stranger = [sys.executable, "-I", "-S", "-c", words, user, f"MAINPID={child.read_text()}", str(place)]
            subprocess.run(stranger, check=True)
            (node.folder / "go").touch()
            assert await starting is None
            assert await node.pid() != int(child.read_text())
        finally:
            await node.supervisor.stop("app", 5.0)
            await asyncio.wait([starting])


async def test_one_that_is_stopped_while_what_it_left_is_cleared_away_is_not_started_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = """\
if os.fork() == 0:
    signal.signal(signal.SIGTERM, lambda number, frame: say("asked"))
    while not os.path.exists(os.environ["BEDPLATE_ROOT"] + "/go"):
        time.sleep(0.01)
    os._exit(0)
while not os.path.exists(os.environ["BEDPLATE_ROOT"] + "/die"):
    time.sleep(0.01)
os._exit(1)
"""
    node.unit("app", "Restart=always", "RestartSec=0.01", "TimeoutStopSec=600", program=DAEMON + left)
    assert await node.supervisor.start("app") is None
    await until(lambda: "started -" in node.words())
    (node.folder / "die").touch()
    await until(lambda: "asked" in node.words())
    sent: list[int] = []

    def send(pid: int, number: int) -> None:
        os.kill(pid, number)
        sent.append(number)

    monkeypatch.setattr(supervisor, "_send", send)
    stopping = asyncio.create_task(node.supervisor.stop("app", 30.0))
    await until(lambda: sent == [signal.SIGTERM])
    (node.folder / "go").touch()
    assert await stopping is None
    assert node.words().count("started -") == 1


async def test_a_task_that_is_done_is_not_done_again(node: Node) -> None:
    node.unit("task", "Type=oneshot", program=DAEMON)
    assert await node.supervisor.start("task") is None
    assert await node.condition("task") == "running"
    assert await node.supervisor.start("task") is None
    assert node.words() == ["started -"]
    node.unit("rules", "Type=oneshot", "RemainAfterExit=yes", "ExecStop=/bin/sh -c 'echo away 1 >> $BEDPLATE_ROOT/log'")
    (node.folder / "rules.py").write_text(DAEMON)
    assert await node.supervisor.start("rules") is None
    assert await node.condition("rules") == "running"
    await node.supervisor.stop("rules")
    assert node.words()[-1] == "away"


async def test_what_a_service_needs_is_started_first(node: Node) -> None:
    node.unit("base", "Environment=WORD=base")
    node.unit("app", "Environment=WORD=app", unit=("Requires=base.service", "After=base.service"))
    assert node.supervisor.ordered(["app", "base"]) == ["base", "app"]
    assert await node.supervisor.start("app") is None
    await until(lambda: sorted(node.words()) == ["started app", "started base"])
    node.unit("bad", "ExecStart=/none")
    node.unit("top", unit=("Requires=bad.service",))
    why = await node.supervisor.start("top")
    assert why is not None
    assert why.startswith("top needs bad: /none: no such file")


ASKED = """\
import resource
before = os.umask(0)
say(f"umask {before:o}")
say(f"in {os.getcwd()}")
say(f"files {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}")
"""


async def test_a_service_runs_as_its_unit_says_and_what_follows_its_end_is_done(node: Node) -> None:
    place = node.folder / "data/work"
    place.mkdir(parents=True)
    (node.folder / "srv").symlink_to("/data/work")
    lines = ("UMask=0077", "WorkingDirectory=/srv", "LimitNOFILE=321", "ExecStopPost=/bin/touch over")
    node.unit("app", *lines, program=DAEMON + ASKED + SLEEP)
    assert await node.supervisor.start("app") is None
    await until(lambda: len(node.words()) == 4)
    assert node.words()[1:] == ["umask 77", f"in {place}", "files 321"]
    assert not (place / "over").exists()
    assert await node.supervisor.stop("app") is None
    assert (place / "over").exists()


async def test_a_folder_that_is_missing_is_not_taken_for_the_program(node: Node) -> None:
    node.unit("app", "WorkingDirectory=/srv/none")
    why = await node.supervisor.start("app")
    assert why is not None and why.startswith(f"{node.folder}/srv/none: no such file or directory")


@pytest.mark.root
async def test_a_service_runs_as_its_user_and_with_no_group_of_the_agent() -> None:
    # Folders of tests are closed to other users.
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        os.chmod(folder, 0o755)
        node = Node(Path(folder))
        node.unit("app", "User=nobody", "Group=daemon", 'ExecStart=/bin/sh -c "id -u; id -g; id -G; exec sleep 1000"')
        user, group = pwd.getpwnam("nobody"), grp.getgrnam("daemon")
        log = node.folder / "logs/app.log"
        try:
            assert await node.supervisor.start("app") is None
            await until(lambda: len(log.read_text().splitlines()) == 3, describe=log.read_text)
        finally:
            await node.supervisor.stop("app", 5.0)
        uid, gid, groups = log.read_text().splitlines()
        assert (uid, gid) == (str(user.pw_uid), str(group.gr_gid))
        assert gid in groups.split() and "0" not in groups.split()


async def test_commands_before_the_start_must_succeed(node: Node) -> None:
    node.unit("app", "ExecStartPre=-/bin/false", "ExecStartPre=/bin/sh -c 'exit 3'")
    why = await node.supervisor.start("app")
    assert why is not None
    assert why.startswith("ExecStartPre /bin/sh: exit code 3")
    assert node.words() == []


async def test_a_restart_with_a_broken_unit_leaves_what_runs(node: Node) -> None:
    node.unit("app")
    await node.supervisor.start("app")
    pid = await node.pid()
    (node.folder / "etc/systemd/system/app.service").write_text("[Service]\nType=odd\n")
    assert await node.supervisor.restart("app") == "app.service: Type=odd is not known"
    assert os.path.exists(f"/proc/{pid}")


async def test_a_log_that_is_too_long_is_kept_aside(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    from bedplate.agent.services import keeper

    log = node.folder / "x.log"
    log.write_text("a" * 100)
    spec = {"log": str(log), "log_bytes": 50}
    made = keeper.Keeper.__new__(keeper.Keeper)
    made.spec = spec
    made._rotate()
    assert (log.read_text(), (node.folder / "x.log.1").read_text()) == ("", "a" * 100)


async def _is(node: Node, condition: str) -> bool:
    return await node.condition() == condition
