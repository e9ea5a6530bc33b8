"""kubeadm as an errand: a fixed vocabulary, never twice, and begun again where it was left halfway."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from tests.agent.machines import Machine

from bedplate.agent.kubeadm import Kubeadm, command, refusal
from bedplate.agent.state import Membership
from bedplate.api.desired import Errand
from bedplate.core.clock import ManualClock

_FAKE = """#!/bin/sh
echo "$@" >> {log}
echo "[phase] $1"
[ ! -e {fails} ] || {{ echo "[ERROR Port-10250]: Port 10250 is in use"; exit 1; }}
case $1 in reset) rm -f {config} ;; *) mkdir -p $(dirname {config}); touch {config} ;; esac
"""


class Node:
    """A sandbox with a kubeadm that notes how it is called."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.machine = Machine(folder / "node")
        self.machine.state.open()
        self.log, self.fails = folder / "log", folder / "fails"
        self.config = self.machine.at("/etc/kubernetes/kubelet.conf")
        program = folder / "bin" / "kubeadm"
        program.parent.mkdir()
        program.write_text(_FAKE.format(log=self.log, fails=self.fails, config=self.config))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        self.kubeadm = Kubeadm(self.machine.effects, ManualClock(), is_machine=True)
        self.told: list[str] = []

    async def run(self, action: str, cluster: str = "x") -> tuple[str, str]:
        async def tell(text: str) -> None:
            self.told.append(text)

        work = Errand(id="1", kind="kubeadm", action=action, cluster=cluster)  # type: ignore[arg-type]
        done = await self.kubeadm.run(work, tell)
        return done.why, done.text

    @property
    def calls(self) -> list[str]:
        return [line.split()[0] for line in self.log.read_text().splitlines()] if self.log.exists() else []


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def test_command_lines_are_fixed_and_other_words_have_none() -> None:
    assert command("init") == ("kubeadm", "init", "--config=/etc/kubernetes/kubeadm-init.yaml")
    assert command("join") == ("kubeadm", "join", "--config=/etc/kubernetes/kubeadm-join.yaml")
    assert "--skip-phases=remove-etcd-member" in command("reset")
    with pytest.raises(KeyError):
        command("init; reboot")


@pytest.mark.parametrize(
    ("action", "known", "is_member", "is_refused"),
    [
        ("join", Membership(), False, False),
        ("join", Membership(), True, True),
        ("join", Membership("x"), True, False),
        ("join", Membership("y", is_whole=True), True, True),
        ("init", Membership("y"), True, True),
        ("reset", Membership("y"), True, False),
        ("reset", Membership(), True, False),
    ],
)
def test_a_node_of_another_cluster_is_left_alone(
    action: str, known: Membership, is_member: bool, is_refused: bool
) -> None:
    work = Errand(id="1", kind="kubeadm", action=action, cluster="x")  # type: ignore[arg-type]
    assert bool(refusal(work, known, is_member=is_member)) == is_refused


async def test_a_join_is_done_once_and_tells_its_phase(node: Node) -> None:
    assert await node.run("join") == ("", "is part of the cluster x")
    assert node.told == ["[phase] join"]
    assert node.machine.state.membership() == Membership("x", is_whole=True)
    assert node.machine.services.did == ["stop kubelet"]
    assert await node.run("join") == ("", "is part of the cluster x already")
    assert node.calls == ["join"]


async def test_a_failure_says_what_kubeadm_said_and_the_next_try_begins_anew(node: Node) -> None:
    node.fails.touch()
    why, _ = await node.run("init")
    assert why == "kubeadm init failed with exit code 1: [ERROR Port-10250]: Port 10250 is in use"
    assert node.machine.state.membership() == Membership("x")
    node.fails.unlink()
    assert (await node.run("init"))[0] == ""
    assert node.calls == ["init", "reset", "init"]


async def test_what_was_left_halfway_is_reset_first(node: Node) -> None:
    node.machine.state.save_membership(Membership("x"))
    node.machine.put("/etc/kubernetes/kubelet.conf", "")
    assert (await node.run("join"))[0] == ""
    assert node.calls == ["reset", "join"]


async def test_a_reset_takes_links_tables_routes_and_folders_along(node: Node) -> None:
    await node.run("join")
    node.machine.put("/var/lib/cni/networks/kube-x/172.29.0.2", "")
    node.machine.at("/etc/kubernetes/manifests").mkdir()
    assert await node.run("reset") == ("", "is part of no cluster")
    assert node.machine.state.membership() == Membership()
    assert not node.machine.at("/var/lib/cni").exists()
    assert not node.machine.at("/etc/kubernetes/manifests").exists()
    assert await node.run("reset") == ("", "is part of no cluster"), "a second reset does no harm"


@pytest.mark.parametrize("known", [Membership(), Membership("y", is_whole=True)])
async def test_a_node_of_another_cluster_is_not_reset(node: Node, known: Membership) -> None:
    node.machine.state.save_membership(known)
    node.machine.put("/etc/kubernetes/kubelet.conf", "theirs")
    assert await node.run("reset") == ("", "is not part of the cluster x, and was left alone")
    assert node.machine.at("/etc/kubernetes/kubelet.conf").read_text() == "theirs"
    assert node.machine.state.membership() == known


async def test_a_sandbox_cannot_be_part_of_a_cluster(tmp_path: Path) -> None:
    machine = Machine(tmp_path)

    async def tell(text: str) -> None: ...

    work = Errand(id="1", kind="kubeadm", action="join", cluster="x")
    assert "sandbox" in (await Kubeadm(machine.effects, ManualClock()).run(work, tell)).why
