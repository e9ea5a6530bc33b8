"""A real three-node cluster with its control plane as processes: what item by item must work, and what must be left."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_until

pytestmark = [pytest.mark.root, pytest.mark.lab, pytest.mark.xdist_group("lab")]


# Outside the range the lab chooses from, and its own for every test process.
SUBNET = f"10.78.{os.getpid() % 250}"


@pytest.fixture(scope="module")
def ground(new_lab: Callable[..., Any], look: Callable[..., Any]) -> Iterator[tuple[Any, Any]]:
    """The lab most tests share, and the machine before it. Named and numbered nodes, a second network."""
    lab = new_lab("p")
    before = look(lab.name, lab.state)
    lab.ok("up", "--nodes", "3", "--node", f"edge={SUBNET}.50", "--subnet", f"{SUBNET}.0/24", "--link", "fabric0",
           "--kubelet-arg", "--node-labels=bedplate.test/shelf=7")  # fmt: skip
    yield lab, before
    lab.run("down")


@pytest.fixture(scope="module")
def lab(ground: tuple[Any, Any]) -> Any:
    return ground[0]


def _place(node: str) -> str:
    return "--overrides=" + json.dumps({"spec": {"nodeName": node}})


def test_all_nodes_are_ready_with_the_names_addresses_and_labels_asked_for(lab: Any) -> None:
    nodes = {item["metadata"]["name"]: item for item in lab.get("nodes")["items"]}
    assert set(nodes) == {"edge", "node-1", "node-2"}
    for node in nodes.values():
        assert {"type": "Ready", "status": "True"}.items() <= next(
            each for each in node["status"]["conditions"] if each["type"] == "Ready"
        ).items()
        assert node["metadata"]["labels"]["bedplate.test/shelf"] == "7"
    addresses = {each["type"]: each["address"] for each in nodes["edge"]["status"]["addresses"]}
    assert addresses["InternalIP"] == f"{SUBNET}.50"


def test_a_pod_runs_from_a_plain_image_name_and_its_log_is_readable(lab: Any) -> None:
    lab.kubectl("run", "hello", "--image=busybox", "--restart=Never", "--", "echo", "from a real kubelet")
    assert lab.logs_of("hello") == "from a real kubelet\n"


def test_pods_talk_across_nodes_through_a_service_and_by_name(lab: Any) -> None:
    lab.kubectl("run", "web", "--image=bedplate/tool", _place("node-1"))
    lab.kubectl("expose", "pod", "web", "--port=80", "--target-port=8080")
    lab.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
    address = lab.get("pod", "web")["status"]["podIP"]
    service = lab.get("service", "web")["spec"]["clusterIP"]
    targets = {"pod": f"{address}:8080", "service": service, "dns": "web.default.svc.cluster.local", "short": "web"}
    for name, target in targets.items():
        lab.kubectl("run", f"ask-{name}", "--image=bedplate/tool", "--restart=OnFailure", _place("node-2"),
                    "--", "get", f"http://{target}/from-node-2")  # fmt: skip
    for name in targets:
        answer = json.loads(lab.logs_of(f"ask-{name}"))
        assert (answer["hostname"], answer["path"]) == ("web", "/from-node-2"), name


def test_a_pod_reaches_itself_through_its_service(lab: Any) -> None:
    lab.kubectl("run", "mirror", "--image=bedplate/tool", "--port=8080", "--expose")
    lab.kubectl("wait", "--for=condition=Ready", "pod/mirror", "--timeout=60s")
    ask = ("kubectl", "--", "exec", "mirror", "--", "/tool", "get", "http://mirror:8080/")
    # A Service takes a moment until the node's proxy and DNS know it.
    answer = wait_until(lambda: lab.run(*ask).stdout, "it answers", describe=lambda: lab.run(*ask))
    assert json.loads(answer)["hostname"] == "mirror"


def test_a_deployment_is_spread_and_scaled_by_the_real_controllers(lab: Any) -> None:
    lab.kubectl("create", "deployment", "many", "--image=bedplate/tool", "--replicas=6")
    lab.kubectl("rollout", "status", "deployment/many", "--timeout=90s")
    pods = lab.get("pods", "-l", "app=many")["items"]
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 3
    lab.kubectl("delete", "deployment", "many", "--wait=true")


def test_exec_runs_in_the_namespaces_of_the_node(lab: Any) -> None:
    assert lab.ok("exec", "edge", "--", "hostname") == "edge\n"
    links = {link["ifname"] for link in json.loads(lab.ok("exec", "edge", "--", "ip", "-json", "link"))}
    assert {"lo", "eth0", "fabric0"} <= links
    assert "lab-only" not in os.listdir("/etc")
    lab.ok("exec", "edge", "--", "touch", "/etc/lab-only")
    assert "lab-only" not in os.listdir("/etc")
    assert lab.run("exec", "edge", "--", "sh", "-c", "exit 7").returncode == 7
    missing = lab.run("exec", "nobody", "--", "true")
    assert missing.returncode == 4 and "no node 'nobody'" in missing.stderr


def test_the_second_network_connects_the_nodes(lab: Any) -> None:
    lab.ok("exec", "node-1", "--", "ip", "address", "add", "192.168.77.1/24", "dev", "fabric0")
    lab.ok("exec", "node-2", "--", "ip", "address", "add", "192.168.77.2/24", "dev", "fabric0")
    script = "busybox nc -l -p 9999 -e echo over-the-fabric >/dev/null 2>&1 &"
    lab.ok("exec", "node-2", "--", "busybox", "sh", "-c", script)
    ask = ("exec", "node-1", "--", "busybox", "nc", "-w", "5", "192.168.77.2", "9999")
    # Until it listens, it refuses.
    assert wait_until(lambda: lab.run(*ask).stdout, "it answers") == "over-the-fabric\n"


def test_a_loaded_image_runs_with_every_pull_policy(lab: Any, tmp_path: Path) -> None:
    archive = tmp_path / "own.tar"
    _write_docker_archive(archive, "example.org/own:1.0", Path("/bin/busybox"))
    assert lab.ok("load-image", str(archive)) == "example.org/own:1.0\n"
    for policy in ("Never", "Always"):
        name = f"own-{policy.lower()}"
        lab.kubectl("run", name, "--image=example.org/own:1.0", f"--image-pull-policy={policy}", "--restart=Never",
                    _place("edge"), "--command", "--", "/busybox", "echo", policy)  # fmt: skip
        assert lab.logs_of(name) == f"{policy}\n"


def test_an_image_nobody_has_is_refused_at_once_and_not_sought_elsewhere(lab: Any) -> None:
    lab.kubectl("run", "absent", "--image=no-such-image")

    def reasons() -> set[str]:
        states = lab.get("pod", "absent")["status"].get("containerStatuses", [])
        return {state["state"].get("waiting", {}).get("reason") for state in states}

    wait_until(lambda: reasons() & {"ErrImagePull", "ImagePullBackOff"}, "the pull has failed", describe=reasons)
    lab.kubectl("delete", "pod", "absent", "--grace-period=0", "--force")


def test_a_file_that_is_no_image_is_refused(lab: Any, tmp_path: Path) -> None:
    (tmp_path / "junk.tar").write_bytes(b"junk")
    refused = lab.run("load-image", str(tmp_path / "junk.tar"))
    assert refused.returncode == 2
    assert "cannot be read as an image archive" in refused.stderr


def test_status_and_list_tell_what_runs(lab: Any) -> None:
    status = json.loads(lab.ok("status", "-o", "json"))
    assert (status["phase"], status["api"], status["controlPlane"]) == ("ready", "ready", "process")
    first = next(node for node in status["nodes"] if node["name"] == "edge")
    assert {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"} <= set(first["programs"])
    assert "edge" in lab.ok("status")
    listing = subprocess.run(lab.command("list", "-o", "json"), env=lab.environ, capture_output=True, check=True)
    assert [row["name"] for row in json.loads(listing.stdout)] == [lab.name]


def test_a_second_up_of_a_running_lab_is_refused_and_harms_nothing(lab: Any) -> None:
    refused = lab.run("up")
    assert refused.returncode == 5
    assert "is up" in refused.stderr
    assert len(lab.get("nodes")["items"]) == 3


def test_a_second_lab_with_another_release_runs_beside_it(
    lab: Any, new_lab: Callable[..., Any], look: Callable[..., Any]
) -> None:
    other = new_lab("q", lab.state)
    before = look(other.name, other.state)
    other.ok("up", "--kubernetes", "1.34", "--cloud-provider", "external")
    node = other.get("nodes")["items"][0]
    assert node["status"]["nodeInfo"]["kubeletVersion"].startswith("v1.34.")
    taints = {taint["key"] for taint in node["spec"].get("taints", [])}
    assert "node.cloudprovider.kubernetes.io/uninitialized" in taints
    assert len(lab.get("nodes")["items"]) == 3
    other.ok("down")
    assert look(other.name, other.state).more_than(before) == {}
    lab.kubectl("get", "--raw=/readyz")


def test_down_leaves_the_machine_as_it_was(ground: tuple[Any, Any], look: Callable[..., Any]) -> None:
    lab, before = ground
    during = look(lab.name, lab.state).more_than(before)
    assert {"processes", "namespaces", "links", "groups", "files"} <= set(during), "the comparison sees nothing"
    lab.ok("down")
    assert look(lab.name, lab.state).more_than(before) == {}
    again = lab.run("down")
    assert again.returncode == 0
    assert "there was no lab" in again.stderr


def _write_docker_archive(path: Path, name: str, program: Path) -> None:
    import hashlib

    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(program.resolve(), "busybox")
    content = layer.getvalue()
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    config = json.dumps(
        {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": [digest]}}
    ).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(path, "w") as tar:
        for inside, data in {"config.json": config, "layer.tar": content, "manifest.json": manifest}.items():
            entry = tarfile.TarInfo(inside)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


def _read_until(child: subprocess.Popen[str], moment: str) -> None:
    assert child.stderr is not None
    seen = ""
    for line in child.stderr:
        seen += line
        if moment in line:
            return
    raise AssertionError(f"never came to {moment!r}:\n{seen}")


def _finish(child: subprocess.Popen[str]) -> str:
    _, rest = child.communicate(timeout=120)
    return rest


MOMENTS = ["making", "starting etcd", "starting kubelets", "waiting for cluster DNS"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_start_is_cleaned_up_by_its_watchdog(
    moment: str, new_lab: Callable[..., Any], look: Callable[..., Any]
) -> None:
    lab = new_lab(f"k{MOMENTS.index(moment)}")
    before = look(lab.name, lab.state)
    child = lab.start("--nodes", "2")
    _read_until(child, moment)
    child.send_signal(signal.SIGKILL)
    _finish(child)
    wait_until(lambda: not look(lab.name, lab.state).more_than(before), "nothing of the lab is left")


def test_without_the_watchdog_the_next_command_cleans_up(new_lab: Callable[..., Any], look: Callable[..., Any]) -> None:
    lab = new_lab("w")
    before = look(lab.name, lab.state)
    child = lab.start("--nodes", "1")
    _read_until(child, "starting kubelets")
    dogs = [
        int(folder.name)
        for folder in Path("/proc").glob("[0-9]*")
        if b"bedplate.lab.teardown\0" + str(lab.state).encode() in _command_of(folder)
    ]
    assert len(dogs) == 1
    os.kill(dogs[0], signal.SIGKILL)
    child.send_signal(signal.SIGKILL)
    _finish(child)
    assert "processes" in look(lab.name, lab.state).more_than(before)
    lab.ok("down")
    assert look(lab.name, lab.state).more_than(before) == {}


def _command_of(folder: Path) -> bytes:
    try:
        return (folder / "cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_start_removes_what_it_made(
    number: int, new_lab: Callable[..., Any], look: Callable[..., Any]
) -> None:
    lab = new_lab(f"i{number}")
    before = look(lab.name, lab.state)
    child = lab.start("--nodes", "2")
    _read_until(child, "starting kubelets")
    child.send_signal(number)
    assert "interrupted" in _finish(child)
    assert child.returncode == 130
    assert look(lab.name, lab.state).more_than(before) == {}


def test_a_failed_start_names_the_log_shows_its_end_and_removes_what_it_made(
    new_lab: Callable[..., Any], look: Callable[..., Any]
) -> None:
    lab = new_lab("f")
    before = look(lab.name, lab.state)
    failed = lab.run("up", "--kubelet-arg", "--no-such-flag")
    assert failed.returncode == 1
    assert "kubelet on node-1 exited with code 1" in failed.stderr
    assert "unknown flag: --no-such-flag" in failed.stderr
    log = next(word.rstrip(":") for word in failed.stderr.split() if word.rstrip(":").endswith("node-1/kubelet.log"))
    assert "unknown flag" in Path(log).read_text()
    assert look(lab.name, lab.state).more_than(before) == {}


def test_a_start_that_takes_too_long_is_given_up(new_lab: Callable[..., Any], look: Callable[..., Any]) -> None:
    lab = new_lab("s")
    before = look(lab.name, lab.state)
    failed = lab.run("up", "--timeout", "1")
    assert failed.returncode == 3
    assert "after 1 s" in failed.stderr
    assert look(lab.name, lab.state).more_than(before) == {}


def test_down_stops_a_start_in_progress(new_lab: Callable[..., Any], look: Callable[..., Any]) -> None:
    lab = new_lab("d")
    before = look(lab.name, lab.state)
    child = lab.start("--nodes", "1")
    _read_until(child, "starting etcd")
    lab.ok("down")
    _finish(child)
    assert child.returncode == 130
    assert look(lab.name, lab.state).more_than(before) == {}


def test_without_root_it_says_so_in_one_line(new_lab: Callable[..., Any], tmp_path: Path) -> None:
    lab = new_lab("n")
    line = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *lab.command("up", "--name", lab.name)]
    refused = subprocess.run(
        line, env=lab.environ | {"HOME": "/nonexistent"}, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 6, refused.stderr
    assert refused.stderr.splitlines() == [
        "bedplate: a lab needs root, for namespaces, mounts and control groups: run it with sudo"
    ]
