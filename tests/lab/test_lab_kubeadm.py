"""A real cluster made by kubeadm: static pods, joined nodes, and the same cleanliness."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.waiting import wait_until

pytestmark = [pytest.mark.root, pytest.mark.lab, pytest.mark.xdist_group("lab")]


@pytest.fixture(scope="module")
def ground(new_lab: Callable[..., Any], look: Callable[..., Any]) -> Iterator[tuple[Any, Any]]:
    lab = new_lab("a")
    before = look(lab.name, lab.state)
    lab.ok("up", "--control-plane", "kubeadm", "--nodes", "2")
    yield lab, before
    lab.run("down")


@pytest.fixture(scope="module")
def lab(ground: tuple[Any, Any]) -> Any:
    return ground[0]


def test_the_control_plane_is_made_of_static_pods(lab: Any) -> None:
    pods = lab.get("pods", "-n", "kube-system", "-l", "tier=control-plane")["items"]
    assert {pod["metadata"]["labels"]["component"] for pod in pods} == {
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
    }
    for pod in pods:
        assert pod["metadata"]["annotations"]["kubernetes.io/config.source"] == "file"
    nodes = {item["metadata"]["name"]: item for item in lab.get("nodes")["items"]}
    assert "node-role.kubernetes.io/control-plane" in nodes["node-1"]["metadata"]["labels"]
    assert set(nodes) == {"node-1", "node-2"}


def test_pods_on_two_nodes_talk_through_a_service_and_dns(lab: Any) -> None:
    place = {"spec": {"nodeName": "node-1"}}
    lab.kubectl(
        "run", "web", "--image=bedplate/tool", "--port=80", "--overrides=" + json.dumps(place), "--", "serve", ":80"
    )
    lab.kubectl("expose", "pod", "web", "--port=80")
    lab.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
    # A Service takes a moment until every node's proxy and DNS know it: ask until there is an answer.
    lab.kubectl(
        *("run", "ask", "--image=bedplate/tool", "--restart=OnFailure", "--"),
        *("get", "http://web.default.svc.cluster.local/"),
    )
    assert json.loads(lab.logs_of("ask"))["hostname"] == "web"
    assert lab.get("pod", "ask")["spec"]["nodeName"] == "node-2"


def test_kubeadm_sees_a_healthy_cluster_and_only_the_kubelet_is_a_service(lab: Any) -> None:
    path = "PATH=/run/bedplate/nodes/node-2/bin:$PATH"
    assert lab.ok("exec", "node-2", "--", "sh", "-c", f"{path} systemctl is-active kubelet") == "active\n"
    other = lab.run("exec", "node-2", "--", "sh", "-c", f"{path} systemctl is-active systemd-resolved")
    assert (other.returncode, other.stdout) == (3, "inactive\n")
    lab.ok("exec", "node-2", "--", "sh", "-c", f"{path} systemctl restart kubelet")
    lab.kubectl("wait", "--for=condition=Ready", "node/node-2", "--timeout=60s")


def test_down_leaves_the_machine_as_it_was(ground: tuple[Any, Any], look: Callable[..., Any]) -> None:
    lab, before = ground
    lab.ok("down")
    assert look(lab.name, lab.state).more_than(before) == {}


def test_a_start_killed_inside_kubeadm_is_cleaned_up(new_lab: Callable[..., Any], look: Callable[..., Any]) -> None:
    lab = new_lab("b")
    before = look(lab.name, lab.state)
    child = lab.start("--control-plane", "kubeadm")
    assert child.stderr is not None
    assert any("kubeadm init" in line for line in child.stderr)
    # Once static pods run, containers and their namespaces must go as well.
    wait_until(lambda: _names() & {"coredns", "etcd"}, "there is a pod")
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=60)
    wait_until(lambda: not look(lab.name, lab.state).more_than(before), "nothing of the lab is left")


def _names() -> set[str]:
    from pathlib import Path

    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if "kubepods" in (path / "cgroup").read_text():
                found.add((path / "comm").read_text().strip())
        except OSError:
            continue
    return found
