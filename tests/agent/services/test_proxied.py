"""A machine without nginx does with the agent's own balancer, until there is an nginx."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.agent.machines import Commands, Packages, desired
from tests.agent.services.test_docker import Machine
from tests.servers import free_port
from tests.waiting import until

from bedplate.agent import trial
from bedplate.agent.apply import Applier, Effects
from bedplate.agent.checks import SERVICES, Checks
from bedplate.agent.files import Written
from bedplate.agent.observe import Watch
from bedplate.agent.services.proxied import Proxied, StandIn, WithBalancer, trials
from bedplate.agent.services.supervisor import Supervisor
from bedplate.agent.services.systemd import is_pid_1
from bedplate.agent.settings import Settings, effects
from bedplate.agent.state import State
from bedplate.api.desired import File
from bedplate.head.render import proxy

UNIT = "run/bedplate-agent/units/nginx.service"
APT = "apt-get: E: Unable to locate package nginx"
# What stands for nginx once there is one: a program of the package's unit.
THEIRS = "[Service]\nExecStart={} -S -c 'import time; time.sleep(1000)'\n"


class Node:
    """A machine in a folder; `has_nginx` says whether it has the program."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.has_nginx = folder, False
        self.root = Machine(str(folder), is_privileged=False)
        self.port, self.server = free_port(), free_port()
        self.packages = Packages()
        self.packages.broken["nginx"] = APT
        self.agent()

    def agent(self) -> None:
        """Another agent of the same machine."""
        supervisor = Supervisor(self.root, str(self.folder / "run/services"), str(self.folder / "logs"))
        self.stand_in = StandIn(self.root, lambda name: "/usr/sbin/nginx" if self.has_nginx else None)
        self.services = Proxied(supervisor, self.stand_in)
        self.with_balancer = WithBalancer(self.packages, self.stand_in)
        state = State(str(self.folder / "state"))
        state.open()
        self.effects = Effects(self.root, state, self.services, self.with_balancer, run=trials(self.stand_in))
        self.applier = Applier(self.effects, Watch(self.root, state))

    def file(self, port: int = 0) -> File:
        listener = proxy.Listener("kube-x-api", port or self.port, (f"127.0.0.1:{self.server}",))
        text = proxy.nginx_conf([listener])
        return File(
            path=proxy.CONF, content=text, services=("nginx",), action="RELOAD", test=("nginx", "-t", "-c", "{}")
        )

    def install(self) -> None:
        """Somebody brings nginx."""
        self.has_nginx = True
        self.packages.broken.clear()
        place = self.folder / "usr/lib/systemd/system/nginx.service"
        place.parent.mkdir(parents=True)
        place.write_text(THEIRS.format(sys.executable))

    async def answers(self, port: int = 0) -> bool:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port or self.port)
            answer = await reader.read()
            writer.close()
            return answer == b"served"
        return False


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"served")
    await writer.drain()
    writer.close()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    made = Node(tmp_path)
    server = await asyncio.start_server(_serve, "127.0.0.1", made.server)
    yield made
    await made.services.stop("nginx", 20.0)
    server.close()


async def test_without_nginx_the_role_is_carried_out_by_the_balancer_and_goes_without_a_trace(node: Node) -> None:
    outcome = await node.applier.apply(None, wanted := desired(node.file(), services=["nginx"], packages=("nginx",)))
    node.effects.state.end()
    assert outcome.failed == ()
    assert await node.answers()
    status = (await node.services.status(["nginx"]))["nginx"]
    assert status.is_up and status.why == f"the agent's own balancer, in the place of nginx: {APT}"
    result = await Checks(node.root, node.services).measure(SERVICES, wanted)
    assert result is not None and result.status == "PASS" and APT in result.info
    other = free_port()
    changed = desired(node.file(other), services=["nginx"], packages=("nginx",), revision=2)
    outcome = await node.applier.apply(wanted, changed)
    node.effects.state.end()
    assert [(step.kind, step.verb) for step in outcome.done] == [
        ("file", "test"),
        ("file", "write"),
        ("service", "reload"),
    ]
    await until(lambda: node.answers(other), "the new port answers")
    assert (await node.services.status(["nginx"]))["nginx"].pid == status.pid, "reloaded, not started again"
    outcome = await node.applier.apply(changed, desired(revision=3))
    assert outcome.failed == ()
    assert not await node.answers(other)
    assert not (node.folder / UNIT).exists() and not (node.folder / "etc").exists()


async def test_what_the_balancer_would_not_do_is_never_in_place(node: Node) -> None:
    wanted = desired(node.file(), services=["nginx"])
    await node.applier.apply(None, wanted)
    node.effects.state.end()
    good = (node.folder / "etc/nginx/nginx.conf").read_bytes()
    file = File(path=proxy.CONF, content=good.decode().replace("proxy_pass", "proxy_gass"), services=("nginx",),
                action="RELOAD", test=("nginx", "-t", "-c", "{}"))  # fmt: skip
    outcome = await node.applier.apply(wanted, desired(file, services=["nginx"], revision=2))
    (failed,) = outcome.failed
    assert failed.why.startswith("nginx refuses it: exit code 1: line ") and "proxy_gass" in failed.why
    assert (node.folder / "etc/nginx/nginx.conf").read_bytes() == good
    assert await node.answers()


async def test_nginx_takes_over_once_it_can_be_installed(node: Node) -> None:
    await node.applier.apply(None, desired(node.file(), services=["nginx"], packages=("nginx",)))
    node.agent()
    assert await node.with_balancer.installed(["nginx"]) == {"nginx"}, "nothing has to be repaired"
    assert node.packages.did == ["install nginx"], "a look changes nothing"
    await node.with_balancer.again()
    assert node.packages.did == ["install nginx"] * 2
    assert (await node.services.status(["nginx"]))["nginx"].is_up
    node.install()
    assert await node.with_balancer.installed(["nginx", "other"]) == set()
    status = (await node.services.status(["nginx"]))["nginx"]
    assert not status.is_up and "takes over" in status.why
    assert await node.services.start("nginx", 60.0) is None
    status = (await node.services.status(["nginx"]))["nginx"]
    assert status.is_up and not status.why
    assert not (node.folder / UNIT).exists() and not await node.answers()


async def test_a_reload_and_a_restart_find_an_nginx_that_has_come(node: Node) -> None:
    for act in (node.services.reload, node.services.restart):
        await node.applier.apply(None, desired(node.file(), services=["nginx"]))
        node.effects.state.end()
        assert (node.folder / UNIT).exists()
        if not (node.folder / "usr").exists():
            node.install()
        node.has_nginx = True
        assert await act("nginx", 60.0) is None
        assert not (node.folder / UNIT).exists()
        assert (await node.services.status(["nginx"]))["nginx"].is_up
        await node.services.stop("nginx", 20.0)
        node.has_nginx = False


async def test_a_package_that_fails_on_a_machine_with_nginx_or_another_one_is_a_failure(node: Node) -> None:
    node.packages.broken["other"] = "no"
    assert await node.with_balancer.install("other") == "no"
    node.has_nginx = True
    assert await node.with_balancer.install("nginx") == APT


async def test_a_machine_with_nginx_is_asked_and_started_as_ever(node: Node) -> None:
    node.install()
    commands = Commands()
    file = node.file()
    why = await trial.refusal(
        node.root, trials(node.stand_in, commands), file, file.content.encode(), Written(0o644, "root", "root"),
        folder_mode=0o755,
    )  # fmt: skip
    assert why == "" and [words[:3] for words in commands.ran] == [["nginx", "-t", "-c"]]
    assert await node.services.start("nginx", 60.0) is None
    assert not (node.folder / UNIT).exists()
    assert await node.services.enable("nginx") is None and not await node.services.is_enabled("nginx")


def test_nothing_of_ours_makes_a_machine_look_as_if_systemd_ran_it(tmp_path: Path) -> None:
    """Where systemd does, its folder is there, and the unit is where systemd finds it."""
    node = Node(tmp_path)
    assert node.stand_in.write() and not node.stand_in.write()
    assert (tmp_path / UNIT).exists() and not is_pid_1(str(tmp_path / "run/systemd/system"))
    assert node.stand_in.remove() and not node.stand_in.remove()
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    assert node.stand_in.write() and node.stand_in.has_unit
    assert (tmp_path / "run/systemd/system/nginx.service").exists() and not (tmp_path / UNIT).exists()


def test_a_sandbox_gets_no_balancer(tmp_path: Path) -> None:
    made = effects(Settings(root=str(tmp_path), packages="none"))
    assert isinstance(made.packages, WithBalancer) and made.packages.family == "none"
    assert not StandIn(made.root, lambda name: None).is_needed
