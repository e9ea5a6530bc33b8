"""The parts of a node that can be judged without one: control groups, state, stand-ins, waiting."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.waiting import wait_until

from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.lab import cgroups, cluster, kubeadm_plane, kubernetes_node, state
from bedplate.lab.nodes import Waiter
from bedplate.lab.plan import Options, make_plan

PLAN = make_plan(Options(name="x", nodes=2, cloud_provider="external", kubelet_args=("--v=4",)), [])


def test_old_and_new_control_groups_are_found_the_new_ones_last() -> None:
    mounts = (
        "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
        "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\n"
    )
    found = cgroups.hierarchies(mounts)
    assert [path.name for path in found] == ["cpu", "pids", "unified"]
    assert cgroups.hierarchies("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n") == [Path("/sys/fs/cgroup")]
    with pytest.raises(errors.Terminal, match="no control group hierarchy"):
        cgroups.Tree("x", [])


def test_groups_inherit_their_processors_and_are_made_in_every_hierarchy(tmp_path: Path) -> None:
    for name, knobs in {"cpuset": {"cpuset.cpus": "0-1", "cpuset.mems": "0"}, "pids": {}}.items():
        (tmp_path / name).mkdir()
        for knob, value in knobs.items():
            (tmp_path / name / knob).write_text(value)
    (tmp_path / "cpuset" / "bedplate-x").mkdir()
    (tmp_path / "cpuset" / "bedplate-x" / "cpuset.cpus").write_text("")
    tree = cgroups.Tree("x", [tmp_path / "cpuset", tmp_path / "pids"])
    tree.create(["node-1"])
    assert (tmp_path / "cpuset/bedplate-x/cpuset.cpus").read_text() == "0-1"
    assert (tmp_path / "cpuset/bedplate-x/node-1").is_dir()
    assert tree.entrance("node-1", "init") == str(tmp_path / "pids/bedplate-x/node-1/init/cgroup.procs")
    assert tree.root_of("node-1") == "/bedplate-x/node-1"


def test_a_record_is_read_back_and_rubbish_is_no_record(tmp_path: Path) -> None:
    shelf = state.Shelf(tmp_path)
    shelf.write(state.Record("starting", 42, PLAN))
    assert shelf.read("x") == state.Record("starting", 42, PLAN)
    assert shelf.names() == ["x"]
    (shelf.folder("x") / "lab.json").write_text("{")
    assert shelf.read("x") is None
    with pytest.raises(errors.NotFound) as caught:
        shelf.need("y")
    assert caught.value.hint == "labs here: x"


def test_two_commands_cannot_hold_one_lab(tmp_path: Path) -> None:
    shelf = state.Shelf(tmp_path)
    with (
        shelf.lock("x"),
        pytest.raises(errors.Conflict, match="another command is working on lab 'x'"),
        shelf.lock("x"),
    ):
        pass
    with shelf.lock("x"), shelf.lock("y"):
        pass


def test_the_state_folder_follows_the_environment() -> None:
    assert state.state_folder({"XDG_STATE_HOME": "/s"}) == Path("/s/bedplate")
    assert state.state_folder({}) == Path.home() / ".local/state/bedplate"


def _systemctl(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    text = kubeadm_plane.systemctl(str(tmp_path / "log"))
    for real, ours in {
        "/run/kubelet.pid": "pid",
        "/run/bedplate/bin/kubelet": "kubelet",
        "/var/lib/kubelet": "lib",
    }.items():
        text = text.replace(real, str(tmp_path / ours))
    script = tmp_path / "systemctl"
    script.write_text(text)
    return subprocess.run(["sh", str(script), *words], capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.external
def test_the_service_stand_in_starts_stops_and_knows_only_the_kubelet(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    kubelet = tmp_path / "kubelet"
    kubelet.write_text('#!/bin/sh\necho "$@"\nexec sleep 600\n')
    kubelet.chmod(0o755)
    assert _systemctl(tmp_path, "is-active", "--quiet", "kubelet.service").returncode == 3
    assert _systemctl(tmp_path, "start", "kubelet").returncode == 0
    assert not (tmp_path / "pid").exists(), "nothing to start before kubeadm has written a configuration"
    (tmp_path / "lib" / "config.yaml").write_text("")
    (tmp_path / "lib" / "kubeadm-flags.env").write_text('KUBELET_KUBEADM_ARGS="--from-kubeadm"\n')
    _systemctl(tmp_path, "restart", "kubelet")
    try:
        assert _systemctl(tmp_path, "is-active", "kubelet").stdout == "active\n"
        for unit in ("systemd-resolved", "firewalld", "containerd"):
            answer = _systemctl(tmp_path, "is-active", unit)
            assert (answer.returncode, answer.stdout) == (3, "inactive\n")
        wait_until(lambda: "--from-kubeadm" in (tmp_path / "log").read_text(), "it has its arguments")
    finally:
        _systemctl(tmp_path, "stop", "kubelet")
    assert _systemctl(tmp_path, "is-active", "kubelet").stdout == "inactive\n"


def test_kubeadm_gets_one_kubelet_document_for_all_nodes_without_a_control_group() -> None:
    documents = {
        each["kind"]: each for each in yaml.safe_load_all(kubeadm_plane.init_config(PLAN, PLAN.nodes[0], "t.t"))
    }
    assert set(documents) == {
        "InitConfiguration",
        "ClusterConfiguration",
        "KubeletConfiguration",
        "KubeProxyConfiguration",
    }
    assert "cgroupRoot" not in documents["KubeletConfiguration"]
    assert documents["KubeletConfiguration"]["failCgroupV1"] is False
    assert documents["KubeProxyConfiguration"]["conntrack"] == {"maxPerCore": 0, "min": 0}
    extra = documents["ClusterConfiguration"]["controllerManager"]["extraArgs"]
    assert extra == [{"name": "cloud-provider", "value": "external"}]
    join = yaml.safe_load(kubeadm_plane.join_config(PLAN, PLAN.nodes[1], "t.t"))
    assert join["nodeRegistration"]["name"] == "node-2"
    assert join["discovery"]["bootstrapToken"]["apiServerEndpoint"] == "10.77.0.11:6443"


def test_flags_of_the_user_come_last() -> None:
    args = kubernetes_node.kubelet_args(PLAN, PLAN.nodes[1])
    assert args[-1] == "--v=4"
    assert "--cloud-provider=external" in args and "--node-ip=10.77.0.12" in args


def test_runc_is_kept_from_oom_scores_only_where_it_may_not_set_them() -> None:
    assert "restrict_oom_score_adj = true" in kubernetes_node.containerd_config(can_raise_limits=False)
    assert "restrict_oom_score_adj = false" in kubernetes_node.containerd_config(can_raise_limits=True)


def test_missing_packages_are_named_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(cluster.shutil, "which", lambda name: None if name in ("containerd", "ctr", "nft") else name)
    with pytest.raises(errors.NotFound, match="containerd nftables") as caught:
        cluster.check_machine()
    assert caught.value.hint.startswith("apt-get install containerd nftables")


async def test_waiting_ends_with_the_last_answer_and_the_log(tmp_path: Path) -> None:
    clock = ManualClock()
    waiter = Waiter(10, clock)
    log = tmp_path / "kubelet.log"
    log.write_text("first\nE1115 cannot do it\n")

    async def probe() -> str:
        return "almost" if waiter.rest_s < 1 else "still thinking"

    task = asyncio.create_task(waiter.until("nodes are Ready", probe, log))
    while not task.done():
        await clock.advance(0.3)
    with pytest.raises(errors.Unavailable) as caught:
        await task
    assert "nodes are Ready: timed out after 10 s (almost)" in str(caught.value)
    assert f"{log}:\nfirst\nE1115 cannot do it" in str(caught.value)
