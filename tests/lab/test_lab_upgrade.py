"""A real minor upgrade of a cluster of two control plane nodes and a worker, while a client writes once a second.

The tests follow one another. What proves the upgrade are kubelets and static pods of the new version, writes of which
none was lost, and a run that is killed with kill -9 in the middle and resumed. `make soak` does it with a flag of the
API servers that must be kept, with control plane nodes that are the workers as well, and with three of them.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from tests.lab.test_lab_managed import Site
from tests.lab.test_lab_setup import EXAMPLE, Lab
from tests.waiting import wait_until

from bedplate.lab import binaries, managed, packages, versions

pytestmark = [pytest.mark.root, pytest.mark.lab, pytest.mark.xdist_group("lab")]

_OLD, _NEW = versions.KNOWN["1.34"].removeprefix("v"), versions.KNOWN["1.35"].removeprefix("v")
_TWO = ("node001", "node002")
_THREE = (*_TWO, "node003")
_FLAG = "event-ttl=2h"
_SET = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: scratch}
spec:
  selector: {matchLabels: {app: scratch}}
  template:
    metadata: {labels: {app: scratch}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: busybox, imagePullPolicy: IfNotPresent, command: [sleep, "3600"]}]
      volumes: [{name: cache, emptyDir: {}}]
"""


class Shape(NamedTuple):
    """A cluster to upgrade."""

    planes: tuple[str, ...] = ("node001", "node002")
    workers: tuple[str, ...] = ("node003",)
    etcd: tuple[str, ...] = ("node001",)
    has_flag: bool = False


class Writer:
    """A client of the cluster in a process of its own; see `tests.lab.writing`."""

    def __init__(self, lab: Lab, result: Path) -> None:
        self._result = result
        config = lab.site.data / "kubernetes" / "default.kubeconfig"
        line = [sys.executable, "-m", "tests.lab.writing", str(config), str(result)]
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(line, stdin=subprocess.PIPE, cwd=root)

    @property
    def told(self) -> dict[str, list[str]]:
        told: dict[str, list[str]] = json.loads(self._result.read_text()) if self._result.exists() else {}
        return told or {"written": [], "retries": []}

    def stop(self) -> dict[str, list[str]]:
        """What it wrote, and each retry."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0
        return self.told

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(Shape(), id="three"),
        pytest.param(Shape(has_flag=True), id="flag", marks=pytest.mark.soak),
        pytest.param(Shape(workers=_TWO), id="two", marks=pytest.mark.soak),
        pytest.param(Shape(_THREE, _THREE, _THREE), id="planes", marks=pytest.mark.soak),
    ],
)
def lab(
    request: pytest.FixtureRequest, new_lab: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    for version in ("1.34", "1.35"):
        binaries.ensure((*packages.TAKEN, *managed.IMAGED), version, progress=print)
    shape: Shape = request.param
    made = new_lab(f"u{request.param_index}")
    count = str(len({*shape.planes, *shape.workers}))
    up = made.ok("up", "--managed", "--nodes", count, "--kubernetes", "1.34", "--next-kubernetes", "1.35")
    lab = Lab(Site(made, up.strip()), {}, {}, "", None)
    answers = yaml.safe_load(EXAMPLE.read_text())
    places = {"masters": shape.planes, "workers": shape.workers, "etcd": shape.etcd}
    nodes = {role: {"nodes": list(names)} for role, names in places.items()}
    answers["kubernetes"].update(version="1.34", nodes=nodes)
    file = tmp_path_factory.mktemp("upgrade") / "answers.yaml"
    file.write_text(yaml.safe_dump(answers))
    lab.setup("-c", str(file), "--on-error-action", "abort")
    if shape.has_flag:
        lab.site.cmsh(
            "configurationoverlay use kube-default-master", "roles", "use kubelet",
            f"options kube-apiserver.yaml set {_FLAG}", "/", "commit --wait",
        )  # fmt: skip
        wait_until(lambda: _is_flagged(lab), "both API servers answer with the flag", step_s=2)
    yield lab
    made.run("down")


@pytest.fixture
def writing(lab: Lab, tmp_path: Path) -> Iterator[Callable[[], Writer]]:
    """Starts the client that writes."""
    writers: list[Writer] = []

    def start() -> Writer:
        writers.append(Writer(lab, tmp_path / "result.json"))
        return writers[-1]

    yield start
    for each in writers:
        each.kill()


def _planes(lab: Lab) -> list[str]:
    """The control plane nodes."""
    items = lab.get("nodes", "-l", "node-role.kubernetes.io/control-plane")["items"]
    return sorted(item["metadata"]["name"] for item in items)


def _commands(lab: Lab) -> dict[str, Any]:
    """The API servers' containers by node."""
    items = lab.get("pods", "-n", "kube-system", "-l", "component=kube-apiserver")["items"]
    return {item["spec"]["nodeName"]: item["spec"]["containers"][0] for item in items}


def _is_flagged(lab: Lab) -> bool:
    """Whether both API servers have restarted for their flag and answer again."""
    with contextlib.suppress(AssertionError):
        answers = [lab.kubectl("get", "--raw=/readyz", node=node) for node in _TWO]
        flags = [each["command"] for each in _commands(lab).values()]
        return answers == ["ok", "ok"] and all(f"--{_FLAG}" in words for words in flags)
    return False


def _versions(lab: Lab) -> dict[str, str]:
    items = lab.get("nodes")["items"]
    return {item["metadata"]["name"]: item["status"]["nodeInfo"]["kubeletVersion"].removeprefix("v") for item in items}


def _dates(lab: Lab, node: str) -> str:
    """When the certificates begin that the cluster's authority has issued for a control plane node."""
    folder = "/etc/kubernetes/pki/default"
    read = "openssl x509 -noout -startdate -in"
    script = f"{read} {folder}/apiserver-kubelet-client.crt; cat /etc/kubernetes/controller-manager.conf"
    return lab.site.on(node, "sh", "-c", script)


def test_items_166_167_170_the_plan_names_every_node_and_what_is_in_the_way_and_nothing_is_changed(lab: Lab) -> None:
    assert "a minor version is never skipped" in lab.setup("--upgrade", "1.36", code=2)
    lab.kubectl("apply", "-f", "-", stdin=_SET)
    wait_until(lambda: lab.get("deployment", "scratch")["status"].get("readyReplicas"), "the pod runs", step_s=1)
    (pod,) = lab.get("pods", "-l", "app=scratch")["items"]
    name = f"default/{pod['metadata']['name']}"
    told = lab.setup("--upgrade", "1.35", "--plan", code=1)
    assert f"1. node001  {_OLD} -> {_NEW}  control plane: drain, kubeadm upgrade apply, kubelet, uncordon" in told
    assert f"2. node002  {_OLD} -> {_NEW}  control plane: drain, kubeadm upgrade node, kubelet, uncordon" in told
    what = "control plane" if "node003" in _planes(lab) else "worker, batch 1"
    third = f"3. node003  {_OLD} -> {_NEW}  {what}: drain, kubeadm upgrade node, kubelet, uncordon"
    assert (third in told) == ("node003" in _versions(lab))
    assert f"In the way: pod {name} loses the content of its emptyDir cache" in told
    told = lab.setup("--upgrade", "1.35", "--on-error-action", "abort", code=1)
    assert name in told and "--delete-emptydir-data" in told and "Nothing was changed." in told
    assert set(_versions(lab).values()) == {_OLD}
    assert not any(item["spec"].get("unschedulable") for item in lab.get("nodes")["items"])


def test_items_168_169_an_upgrade_that_is_killed_is_resumed_and_no_write_is_lost(
    lab: Lab, writing: Callable[[], Writer]
) -> None:
    writer = writing()
    wait_until(lambda: len(writer.told["written"]) > 2, "the client writes", step_s=0.5)
    before = {node: _dates(lab, node) for node in _planes(lab)}
    lab.kill_at("Upgrade node002", "--upgrade", "1.35", "--delete-emptydir-data")
    told = lab.setup("--upgrade", "1.35", code=1)
    assert "did not finish (at the stage Upgrade node002)" in told and "--resume --cluster default" in told
    said = lab.setup("--resume", "--on-error-action", "abort")
    assert "status: completed" in said
    assert set(_versions(lab).values()) == {_NEW}
    told_by_writer = writer.stop()
    print(f"{len(told_by_writer['written'])} writes, retries: {told_by_writer['retries']}")
    present = {item["metadata"]["name"] for item in lab.get("configmaps")["items"]}
    assert [name for name in told_by_writer["written"] if name not in present] == []
    assert len(told_by_writer["retries"]) <= len(before), told_by_writer["retries"]
    assert not any(item["spec"].get("unschedulable") for item in lab.get("nodes")["items"])
    # What this client used all the time: certificates that kubeadm has issued again meanwhile.
    assert all(_dates(lab, node) != before[node] for node in before)


def test_items_121_180_all_control_plane_nodes_serve_the_new_version_with_the_flags_that_they_had(
    lab: Lab, request: pytest.FixtureRequest
) -> None:
    flags = int("flag" in request.node.callspec.id)
    for node in _planes(lab):
        container = _commands(lab)[node]
        assert container["image"].endswith(f":v{_NEW}")
        assert container["command"].count(f"--{_FLAG}") == flags
        assert lab.kubectl("get", "--raw=/readyz", node=node) == "ok"


def test_item_171_the_version_and_the_module_file_follow(lab: Lab) -> None:
    assert _NEW in lab.site.cmsh("kubernetes get default version")
    module = lab.site.data / "modulefiles" / "kubernetes" / "default"
    assert [file.name for file in module.iterdir()] == [_NEW]
    (proxy,) = lab.get("daemonset", "kube-proxy", "-n", "kube-system")["spec"]["template"]["spec"]["containers"]
    assert proxy["image"].endswith(f":v{_NEW}")
    dns = lab.get("deployment", "coredns", "-n", "kube-system")
    assert dns["spec"]["template"]["spec"]["containers"][0]["image"].endswith(":v1.13.1")
    assert "there is nothing to do" in lab.setup("--upgrade", "1.35")
    assert "there is no way back" in lab.setup("--upgrade", "1.34", code=2)


def test_an_upgraded_cluster_is_removed_like_any_other(lab: Lab) -> None:
    nodes = list(_versions(lab))
    said = lab.setup("--remove", "--cluster", "default", "--yes-i-really-mean-it", "--on-error-action", "abort")
    assert "status: completed" in said
    for node in nodes:
        assert lab.site.tries(node, "test", "-e", "/usr/bin/kubelet") != 0
