"""kubeadm as an errand: a fixed vocabulary, never twice, and begun again where it was left halfway."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from tests.agent.machines import Machine

from bedplate.agent.commands import Ended
from bedplate.agent.kubeadm import Kubeadm, command, refusal, upgrade_command
from bedplate.agent.state import Membership, Record
from bedplate.api.desired import Errand
from bedplate.core.clock import ManualClock

_FAKE = """#!/bin/sh
echo "$@" >> {log}
echo "[phase] $1"
[ ! -e {fails} ] || {{ echo "[ERROR Port-10250]: Port 10250 is in use"; exit 1; }}
case $1 in reset) rm -rf {config} $(dirname {config})/pki/* ;; *) mkdir -p $(dirname {config}); touch {config} ;; esac
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

    async def run(self, action: str, cluster: str = "x", version: str = "") -> tuple[str, str]:
        async def tell(text: str) -> None:
            self.told.append(text)

        work = Errand(id="1", kind="kubeadm", action=action, cluster=cluster, version=version)  # type: ignore[arg-type]
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


async def test_who_begins_again_has_the_files_of_its_head_that_the_reset_took_along(node: Node) -> None:
    path = "/etc/kubernetes/pki/default/ca.crt"
    record = Record(path=path, digest="", mode=0o640, owner="root", group="root")
    node.machine.state.save_record(record)
    node.machine.put(path, "an authority")
    node.machine.put("/etc/kubernetes/pki/apiserver.crt", "kubeadm's own")
    node.machine.state.save_membership(Membership("x"))
    assert (await node.run("join"))[0] == ""
    assert node.machine.at(path).read_text() == "an authority"
    assert stat.S_IMODE(node.machine.at(path).stat().st_mode) == 0o640
    assert not node.machine.at("/etc/kubernetes/pki/apiserver.crt").exists()
    await node.run("reset")
    assert not node.machine.at(path).exists(), "who leaves leaves nothing"


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


def _has(node: Node, version: str) -> None:
    """What the programs of the node say that they are."""
    node.machine.commands.answers["kubeadm"] = Ended(0, f"v{version}\n")
    node.machine.commands.answers["kubelet"] = Ended(0, f"Kubernetes v{version}\n")


async def test_an_upgrade_brings_kubeadm_runs_it_then_brings_the_kubelet_and_restarts_it(node: Node) -> None:
    await node.run("join")
    node.machine.services.did.clear()
    _has(node, "1.35.4")
    assert await node.run("upgrade-apply", version="1.35.4") == ("", "runs Kubernetes 1.35.4")
    assert node.machine.packages.did == ["upgrade kubeadm 1.35.4", "upgrade kubelet 1.35.4", "upgrade kubectl 1.35.4"]
    assert node.log.read_text().splitlines()[-1].startswith("upgrade apply v1.35.4 --yes --etcd-upgrade=false")
    assert node.machine.services.did[-1] == "restart kubelet"


async def test_an_upgrade_that_kubeadm_refuses_leaves_the_kubelet_as_it_is(node: Node) -> None:
    await node.run("join")
    node.machine.services.did.clear()
    _has(node, "1.35.4")
    node.fails.touch()
    why, _ = await node.run("upgrade-node", version="1.35.4")
    assert why.startswith("kubeadm upgrade failed with exit code 1")
    assert node.machine.packages.did == ["upgrade kubeadm 1.35.4"]
    assert "restart kubelet" not in node.machine.services.did


async def test_a_program_that_stays_what_it_was_is_named_with_its_version(node: Node) -> None:
    await node.run("join")
    _has(node, "1.34.4")
    why, _ = await node.run("upgrade-node", version="1.35.4")
    assert why.startswith("kubeadm on this node is 1.34.4, not 1.35.4; update the node's image")
    assert node.calls == ["join"]


async def test_the_check_of_an_upgrade_fetches_packages_and_changes_nothing(node: Node) -> None:
    await node.run("join")
    assert await node.run("upgrade-check", version="1.35.4") == ("", "can have the packages of 1.35.4")
    assert node.machine.packages.did == [f"fetch {name} 1.35.4" for name in ("kubeadm", "kubelet", "kubectl")]
    node.machine.packages.broken["kubelet"] = "apt-get: E: Version '1.35.4-*' for 'kubelet' was not found"
    assert (await node.run("upgrade-check", version="1.35.4"))[0] == node.machine.packages.broken["kubelet"]
    assert node.calls == ["join"]


async def test_a_node_that_is_not_of_the_cluster_is_not_upgraded(node: Node) -> None:
    assert (await node.run("upgrade-node", version="1.35.4"))[0] == "the node is not part of the cluster x"
    await node.run("join", "y")
    assert "part of the cluster y" in (await node.run("upgrade-node", version="1.35.4"))[0]
    assert node.machine.packages.did == []


def test_item_121_an_upgrade_takes_the_patches_of_the_submode_options_along() -> None:
    words = upgrade_command("upgrade-apply", "1.35.4", has_patches=True)
    assert "--patches=/etc/kubernetes/patches" in words
    assert "--patches=/etc/kubernetes/patches" not in upgrade_command("upgrade-node", "1.35.4", has_patches=False)
    with pytest.raises(KeyError):
        upgrade_command("upgrade-check", "1.35.4", has_patches=False)
