"""Docker's link goes with Docker where the agent brought it, and stays where it was there before."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests import programs
from tests.agent.machines import Commands, Services

from bedplate.agent.commands import Ended
from bedplate.agent.files import Root
from bedplate.agent.services.docker import Bridged

DELETE = ["ip", "link", "delete", "docker0", "type", "bridge"]


class Machine(Root):
    """A sandbox that counts as the machine itself."""

    @property
    def is_machine(self) -> bool:
        return True


class Node:
    """A machine whose links are folders; `daemon` makes its link, as dockerd does when it starts."""

    def __init__(self, folder: Path, *, is_machine: bool = True) -> None:
        self.links, self.memory = folder / "links", folder / "memory"
        self.commands, self.services = Commands(), Services()
        self._root = (Machine if is_machine else Root)(str(folder), is_privileged=False)
        self.links.mkdir()

    def agent(self) -> Bridged:
        return Bridged(self.services, self._root, str(self.memory), self.commands, str(self.links))

    def daemon(self, *ports: str) -> None:
        (self.links / "docker0/brif").mkdir(parents=True, exist_ok=True)
        for port in ports:
            (self.links / "docker0/brif" / port).touch()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_a_link_that_came_with_the_daemon_goes_with_it(node: Node) -> None:
    assert await node.agent().start("docker") is None
    node.daemon()
    # Another agent after a restart, and of the daemon: the link is there by now, and still not the machine's.
    assert await node.agent().restart("docker") is None
    assert await node.agent().stop("docker") is None
    assert node.commands.ran == [], "a stop is not the end of the role"
    assert await node.agent().retire("docker") is None
    assert node.commands.ran == [DELETE] and not node.memory.exists()
    assert node.services.did == ["start docker", "restart docker", "stop docker", "stop docker"]


async def test_a_link_that_was_there_before_stays(node: Node) -> None:
    node.daemon()
    assert await node.agent().start("docker") is None
    assert await node.agent().retire("docker") is None
    assert node.commands.ran == []


async def test_a_link_that_something_is_attached_to_stays(node: Node) -> None:
    assert await node.agent().start("docker") is None
    node.daemon("veth1")
    assert await node.agent().retire("docker") is None
    assert node.commands.ran == []


async def test_a_link_that_cannot_be_removed_does_not_keep_the_role(node: Node) -> None:
    assert await node.agent().start("docker") is None
    node.daemon()
    node.commands.answers["ip"] = Ended(2, "", "RTNETLINK answers: Operation not permitted")
    assert await node.agent().retire("docker") is None
    assert node.memory.exists(), "it is tried again when the role goes the next time"


async def test_the_links_of_the_machine_are_no_business_of_a_sandbox_and_of_other_services(tmp_path: Path) -> None:
    (tmp_path / "sandbox").mkdir()
    sandbox = Node(tmp_path / "sandbox", is_machine=False)
    assert await sandbox.agent().start("docker") is None
    sandbox.daemon()
    assert await sandbox.agent().retire("docker") is None
    other = Node(tmp_path)
    assert await other.agent().start("nginx") is None
    other.daemon()
    assert await other.agent().retire("nginx") is None
    assert sandbox.commands.ran == other.commands.ran == [] and not other.memory.exists()


@pytest.mark.external
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: links of a network namespace of its own")
def test_the_command_removes_a_real_bridge() -> None:
    """In a network namespace that ends with the command."""
    ip = programs.on_path("ip")
    script = (
        f'"{ip}" link add docker0 type bridge && "{ip}" link set docker0 up && {" ".join(DELETE)} && "{ip}" -o link'
    )
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0 and "docker0" not in done.stdout, done.stdout + done.stderr
