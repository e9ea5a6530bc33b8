"""`bedplate up` as a user runs it: starts, prints a line that works, stops with Ctrl-C, finds its data again."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import forkserver, programs, servers
from tests.waiting import DEADLINE_S, wait_until


class Up:
    """A running `bedplate up --plain`."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._out = folder / "out"
        command = [str(servers.bedplate_program()), "up", "--plain", *arguments]
        with self._out.open("wb") as out:
            self.process = forkserver.Process(command, cwd=folder, stdout=out, stderr=out)

    def text(self) -> str:
        return self._out.read_text()

    def wait_for(self, pattern: str) -> re.Match[str]:
        def find() -> re.Match[str] | None:
            has_ended = self.process.poll() is not None
            found = re.search(pattern, self.text())
            assert found or not has_ended, self.text()
            return found

        found = wait_until(find, f"{pattern!r} is printed", step_s=0.05, describe=self.text)
        assert found is not None
        return found

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(DEADLINE_S)


@pytest.fixture
def kubectl() -> str:
    return str(programs.built("kubectl"))


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Up]]:
    found: list[Up] = []
    yield found
    for one in found:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def test_up_prints_a_kubeconfig_that_works_stops_on_ctrl_c_and_keeps_its_data(
    tmp_path: Path, kubectl: str, started: list[Up]
) -> None:
    first = Up(tmp_path, "--nodes", "50", "--calm", "--no-head")
    started.append(first)
    kubeconfig = first.wait_for(r"export KUBECONFIG=(\S+)")[1]
    first.wait_for("50 simulated nodes ready")
    environ = os.environ | {"KUBECONFIG": kubeconfig}

    def run(*arguments: str) -> str:
        return subprocess.run([kubectl, *arguments], env=environ, check=True, capture_output=True, text=True).stdout

    lines = run("get", "nodes", "--no-headers").splitlines()
    assert len(lines) == 50
    assert all(" Ready " in line for line in lines)
    run("create", "configmap", "kept", "--from-literal=a=b")
    url = run("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}")
    assert first.interrupt() == 0
    assert "Traceback" not in first.text()

    second = Up(tmp_path, "--nodes", "50", "--calm", "--no-head")
    started.append(second)
    second.wait_for("50 simulated nodes ready")
    assert run("get", "configmap", "kept", "-o", "jsonpath={.data.a}") == "b"
    assert run("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}") == url, "the port should be the same"
    assert second.interrupt() == 0


def test_a_deployment_rolls_out_on_the_simulated_nodes(tmp_path: Path, kubectl: str, started: list[Up]) -> None:
    up = Up(tmp_path, "--nodes", "3", "--calm", "--no-head")
    started.append(up)
    kubeconfig = up.wait_for(r"export KUBECONFIG=(\S+)")[1]
    up.wait_for("3 simulated nodes ready")
    environ = os.environ | {"KUBECONFIG": kubeconfig}
    for command in (
        "create deployment web --image=nginx --replicas=6",
        "rollout status deployment/web --timeout=100s",
        "set image deployment/web nginx=nginx:2",
        "rollout status deployment/web --timeout=100s",
        "rollout undo deployment/web",
        "rollout status deployment/web --timeout=100s",
        "drain node001 --force --timeout=100s",
    ):
        done = subprocess.run([kubectl, *command.split()], env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


SIX_LABELS = {
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/region",
}


def test_the_main_job_nodes_are_initialised_tainted_when_stopped_deleted_when_gone_and_initialised_again(
    tmp_path: Path, kubectl: str, started: list[Up]
) -> None:
    up = Up(tmp_path, "--nodes", "5", "--calm", "--no-head")
    started.append(up)
    environ = os.environ | {"KUBECONFIG": up.wait_for(r"export KUBECONFIG=(\S+)")[1]}
    up.wait_for("5 simulated nodes ready")
    site = up.wait_for(r"NVIDIA BMM site at (\S+),")[1]

    def node(name: str) -> dict[str, Any] | None:
        command = [kubectl, "get", "node", name, "-o", "json", "--ignore-not-found"]
        found = subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout
        return json.loads(found) if found else None

    def until(name: str, is_so: Callable[[dict[str, Any] | None], bool]) -> dict[str, Any] | None:
        def seen() -> list[dict[str, Any] | None]:
            return [found] if is_so(found := node(name)) else []

        return wait_until(seen, f"{name} has changed", step_s=0.3, describe=lambda: node(name))[0]

    def machine(name: str, action: str) -> None:
        request = urllib.request.Request(f"{site}/__sim/machines/{name}/{action}", method="POST")
        urllib.request.urlopen(request, timeout=30).close()

    first = node("node002")
    assert first is not None
    assert first["spec"]["providerID"].startswith("nvidia-bmm://")
    assert set(first["metadata"]["labels"]) >= SIX_LABELS
    assert {one["type"] for one in first["status"]["addresses"]} == {"Hostname", "InternalIP"}
    assert "taints" not in first["spec"]

    machine("node002", "stop")
    until("node002", lambda one: one is not None and "shutdown" in json.dumps(one["spec"].get("taints", [])))
    machine("node002", "start")
    until("node002", lambda one: one is not None and not one["spec"].get("taints"))

    machine("node003", "remove")
    until("node003", lambda one: one is None)
    request = urllib.request.Request(f"{site}/__sim/machines", data=b'{"name": "node003"}', method="POST")
    urllib.request.urlopen(request, timeout=30).close()
    again = until("node003", lambda one: one is not None and bool(one["spec"].get("providerID")))
    assert again is not None and again["spec"]["providerID"].startswith("nvidia-bmm://")
    up.wait_for("node003: DeletingNode")
    assert up.interrupt() == 0
    assert "Traceback" not in up.text()


def test_a_second_up_on_the_same_data_is_refused_with_the_reason(tmp_path: Path, started: list[Up]) -> None:
    up = Up(tmp_path, "--nodes", "1", "--no-head")
    started.append(up)
    up.wait_for("1 simulated nodes ready")
    other = forkserver.run(
        [str(servers.bedplate_program()), "up", "--plain"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert other.returncode != 0
    assert str(up.process.pid) in other.stderr, other.stderr
    assert "Traceback" not in other.stderr


PODS = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "pods"},
    "spec": {
        "replicas": 6,
        "selector": {"matchLabels": {"app": "pods"}},
        "template": {
            "metadata": {"labels": {"app": "pods"}, "annotations": {"k8s.v1.cni.cncf.io/networks": "rail, storage"}},
            "spec": {"containers": [{"name": "c", "image": "none"}]},
        },
    },
}


def test_pools_fill_as_pods_come_and_empty_when_they_go(tmp_path: Path, kubectl: str, started: list[Up]) -> None:
    # Calm, so that no machine takes its pods' addresses with it while they are counted.
    up = Up(tmp_path, "--nodes", "4", "--calm", "--no-head")
    started.append(up)
    environ = os.environ | {"KUBECONFIG": up.wait_for(r"export KUBECONFIG=(\S+)")[1]}
    up.wait_for("4 simulated nodes ready")

    def run(*command: str, stdin: str = "") -> str:
        start = forkserver.run if forkserver.is_ours(command) else subprocess.run
        done = start(command, env=environ, input=stdin, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    program = str(servers.bedplate_program())
    run(kubectl, "create", "-f", "-", stdin=json.dumps(PODS))
    up.wait_for("rail 6 of 31 addresses   storage 6 of 20 addresses")
    held = [one["address"] for one in json.loads(run(program, "ipam", "allocations", "-o", "json"))]
    assert len(set(held)) == len(held) == 12
    blocks = json.loads(run(program, "ipam", "blocks", "-o", "json"))
    assert {(one["pool"], one["node"]) for one in blocks} == {
        (pool, f"node00{number}") for pool in ("rail", "storage") for number in range(1, 5)
    }
    run(kubectl, "delete", "deployment", "pods", "--wait=false")
    up.wait_for("rail 0 of 31 addresses   storage 0 of 20 addresses")
    assert up.interrupt() == 0
    assert "Traceback" not in up.text()


def fetched(head: Path, url: str) -> str:
    """What the head says to its administrator."""
    request = urllib.request.Request(
        url, headers={"Authorization": f"Bearer {(head / 'admin.token').read_text()[:-1]}"}
    )
    context = ssl.create_default_context(cafile=str(head / "ca.crt"))
    with urllib.request.urlopen(request, timeout=30, context=context) as answer:
        return str(answer.read().decode())


def test_the_head_has_devices_that_carry_out_what_is_committed_and_keeps_its_tree(
    tmp_path: Path, started: list[Up]
) -> None:
    cmsh = servers.bedplate_program().with_name("cmsh")

    def shell(line: str) -> str:
        command = [str(cmsh), "--data", ".bedplate/head", "-c", line]
        done = forkserver.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    first = Up(tmp_path, "--nodes", "20", "--calm")
    started.append(first)
    url = first.wait_for(r"the head: (https://\S+) \(sign in with the token in (\S+)\), 20 machines")
    assert (tmp_path / url[2]).read_text().startswith("bph_")
    first.wait_for(r"try: \S*cmsh --data \.bedplate/head")
    devices = [line.split() for line in shell("device list").splitlines()]
    assert sum("gpu" in words for words in devices) == 10
    assert sum("default" in words for words in devices) == 10
    head = tmp_path / ".bedplate/head"
    assert "<form" in fetched(head, url[1])
    # A device has to hold its first state before a change of it is news.
    health = f"{url[1]}/api/v1/nodes/node010/health"
    wait_until(lambda: json.loads(fetched(head, health))["state"].get("applied"), "node010 has its state", step_s=0.2)
    shell("configurationoverlay use builders; roles; use docker::host; set iptables no; commit")
    first.wait_for("head: .* node010: Service docker was restarted")
    assert first.interrupt() == 0
    assert "Traceback" not in first.text()

    second = Up(tmp_path, "--nodes", "20", "--calm")
    started.append(second)
    again = second.wait_for(r"the head: (https://\S+) ")
    assert again[1] == url[1], "the port should be the same"
    held = shell("configurationoverlay use builders; roles; use docker::host; get iptables")
    assert held.strip() == "no"
    assert second.interrupt() == 0


def test_the_devices_of_the_head_are_the_machines_of_the_cluster(
    tmp_path: Path, kubectl: str, started: list[Up]
) -> None:
    """What is committed in `cmsh` is seen in Kubernetes, and what happens to a machine is seen in both."""
    up = Up(tmp_path, "--nodes", "4", "--calm")
    started.append(up)
    environ = os.environ | {"KUBECONFIG": up.wait_for(r"export KUBECONFIG=(\S+)")[1]}
    up.wait_for("the head: ")
    cmsh = servers.bedplate_program().with_name("cmsh")

    def shell(line: str) -> str:
        command = [str(cmsh), "--data", ".bedplate/head", "-c", line]
        done = forkserver.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout)

    def node(name: str) -> Any:
        command = [kubectl, "get", "node", name, "-o", "json"]
        return json.loads(subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout)

    def until(name: str, is_so: Callable[[Any], bool], what: str) -> None:
        wait_until(lambda: is_so(node(name)), f"{name} {what}", step_s=0.3, describe=lambda: node(name))

    def condition(found: Any) -> str:
        return str(next(one["status"] for one in found["status"]["conditions"] if one["type"] == "Ready"))

    ip = node("node004")["status"]["addresses"]
    assert {"type": "InternalIP", "address": "10.141.0.4"} in ip
    assert shell("device use node004; get ip").strip() == "10.141.0.4"

    shell("kubernetes use default; labelsets; add mine; set labels rack=r7; set nodes node004; commit")
    until("node004", lambda one: one["metadata"]["labels"].get("rack") == "r7", "has the label of the set")
    shell("kubernetes use default; labelsets; remove mine; commit")
    until("node004", lambda one: "rack" not in one["metadata"]["labels"], "has it no longer")

    shell("configurationoverlay use kube-default-worker; roles; use kubelet; set maxpods 42; commit --wait")
    until("node004", lambda one: one["status"]["capacity"]["pods"] == "42", "takes so many pods")

    (tmp_path / ".bedplate/machines/node004/etc/kubernetes/kubelet.env").write_text("wrong\n")
    up.wait_for(r"node004: File /etc/kubernetes/kubelet.env was restored: it was changed by hand")

    def blocks() -> set[tuple[str, str]]:
        command = [str(servers.bedplate_program()), "ipam", "blocks", "-o", "json"]
        found = forkserver.run(command, env=environ, capture_output=True, text=True, check=True).stdout
        return {(one["pool"], one["block"]) for one in json.loads(found) if one["node"] == "node004"}

    before = blocks()
    assert len(before) == 2
    shell("device power off node004")
    until("node004", lambda one: condition(one) != "True", "is not ready")
    until("node004", lambda one: "shutdown" in json.dumps(one["spec"].get("taints", [])), "has the taint of its cloud")
    assert "DOWN" in shell("device status node004")
    assert blocks() == before
    shell("device power on node004")
    until("node004", lambda one: condition(one) == "True" and "shutdown" not in json.dumps(one["spec"]), "is back")
    assert blocks() == before

    children = [int(pid) for pid in os.listdir("/proc") if pid.isdecimal() and _is_of(pid, tmp_path)]
    assert len(children) > 4
    assert up.interrupt() == 0
    assert "Traceback" not in up.text()
    assert [pid for pid in children if os.path.exists(f"/proc/{pid}")] == [], "something goes on"


def _is_of(pid: str, folder: Path) -> bool:
    """Whether a process belongs to the machines of a folder."""
    try:
        about = Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()
        return f"{folder}/.bedplate/machines".encode() in about
    except OSError:
        return False


def test_without_a_head_there_is_none(tmp_path: Path, started: list[Up]) -> None:
    up = Up(tmp_path, "--nodes", "1", "--calm", "--no-head")
    started.append(up)
    up.wait_for("1 simulated nodes ready")
    up.wait_for("nodes 1 of 1 ready")
    assert "the head:" not in up.text()
    assert not (tmp_path / ".bedplate/head").exists()
    assert up.interrupt() == 0
