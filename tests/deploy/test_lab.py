"""The shipped image and manifests on real kubelets: the managers of NVIDIA BMM and Oxide in one cluster.

The clouds are simulated and answer on the lab's bridge. Everything else is what a user gets: the image that `make
docker-build` makes, deploy/, the chart, with their roles, probes and security settings.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import programs, servers
from tests.deploy.conftest import IMAGE, ROOT, Program, chart_folder, run_tool
from tests.waiting import DEADLINE_S, wait_until

from bedplate.sim.clouds import BmmCloud, OxideCloud

pytestmark = [
    pytest.mark.root,
    pytest.mark.lab,
    pytest.mark.xdist_group("lab"),
    pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root"),
]
SUBNET = f"10.83.{os.getpid() % 250}"
NODES = {"bmm-001": f"{SUBNET}.20", "bmm-002": f"{SUBNET}.21", "oxide-001": f"{SUBNET}.22"}
TAINT = "node.cloudprovider.kubernetes.io/uninitialized"


class Lab:
    """A lab of this test's own, with the image loaded and nodes that wait for their clouds."""

    def __init__(self, folder: Path) -> None:
        self.name = f"d{os.getpid() % 100000}"
        self._environ = os.environ | {"XDG_STATE_HOME": str(folder)}
        self.kubeconfig = folder / "bedplate" / "labs" / self.name / "admin.kubeconfig"
        self.state = folder

    def command(self, verb: str, *words: str) -> None:
        line = [sys.executable, "-m", "bedplate.apps.bedplate", "lab", verb, "--name", self.name, *words]
        done = subprocess.run(line, env=self._environ, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr + done.stdout

    def program(self, name: str, version: str = servers.KUBERNETES) -> Program:
        program = Program(programs.built(name, version), self.state)
        program.environ["KUBECONFIG"] = str(self.kubeconfig)
        return program


class Clouds:
    """Both simulated clouds, in a thread of their own."""

    def __init__(self, host: str, nodes: dict[str, str]) -> None:
        self.bmm, self.oxide = BmmCloud(host=host), OxideCloud(host=host)
        self._nodes = nodes
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Clouds:
        self._thread.start()
        for cloud in (self.bmm, self.oxide):
            self._wait(cloud.__aenter__())
        for name, address in self._nodes.items():
            self.call(lambda name=name, address=address: self._add(name, address))
        return self

    def __exit__(self, *details: object) -> None:
        for cloud in (self.oxide, self.bmm):
            self._wait(cloud.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def call(self, act: Callable[[], Any]) -> Any:
        """Do something to a cloud in its own thread."""

        async def run() -> Any:
            return act()

        return self._wait(run())

    def _add(self, name: str, address: str) -> None:
        if name.startswith("bmm-"):
            self.bmm.add(name, addresses=[address])
        else:
            self.oxide.add(name, interfaces=[{"addresses": [address]}])

    def _wait(self, what: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(60)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    made = Lab(folder)
    nodes = [word for name, address in NODES.items() for word in ("--node", f"{name}={address}")]
    made.command("up", *nodes, "--subnet", f"{SUBNET}.0/24", "--cloud-provider", "external")
    try:
        archive = folder / "image.tar"
        done = run_tool("image.py", "archive", "--image", IMAGE, "--output", archive)
        assert done.returncode == 0, done.stderr
        made.command("load-image", str(archive))
        yield made
    finally:
        made.command("down")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def clouds(lab: Lab) -> Iterator[Clouds]:
    with Clouds(f"{SUBNET}.1", NODES) as running:
        yield running


class Cluster:
    """What the steps ask of the lab."""

    def __init__(self, lab: Lab) -> None:
        self.kubectl = lab.program("kubectl")
        self.helm = lab.program("helm", "v3.22.0")

    def get(self, *words: str) -> Any:
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def is_tainted(self, node: str) -> bool:
        return TAINT in {taint["key"] for taint in self.get("node", node)["spec"].get("taints", [])}

    def pods(self, selector: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("pods", "-n", "kube-system", "-l", selector)["items"]
        return found

    def ready_pods(self, selector: str) -> list[dict[str, Any]]:
        def is_ready(pod: dict[str, Any]) -> bool:
            conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", [])}
            return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]

        return [pod for pod in self.pods(selector) if is_ready(pod)]

    def until(self, what: str, is_so: Callable[[], Any], selector: str) -> Any:
        def describe() -> str:
            logs = self.kubectl.attempt("logs", "-n", "kube-system", "-l", selector, "--tail=40").stdout
            pods = self.kubectl.attempt("describe", "pods", "-n", "kube-system", "-l", selector).stdout
            return f"{logs}\n{pods[-4000:]}"

        return wait_until(is_so, what, deadline_s=2 * DEADLINE_S, step_s=0.5, describe=describe)


@pytest.fixture(scope="module")
def cluster(lab: Lab) -> Cluster:
    return Cluster(lab)


BMM = "app=nvidia-bmm-cloud-controller-manager"
OXIDE = "app.kubernetes.io/name=oxide-cloud-controller-manager"


def bmm_config(cloud: BmmCloud) -> str:
    values = {
        "endpoint": cloud.url,
        "orgName": cloud.org,
        "token": cloud.token,
        "siteId": cloud.site_id,
        "tenantId": cloud.tenant_id,
    }
    return yaml.safe_dump(values)


def test_the_manager_of_nvidia_bmm_runs_from_deploy_as_its_document_says(
    cluster: Cluster, clouds: Clouds, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    secret = tmp_path / "deploy" / "manifests" / "cloud-config-secret.yaml"
    document = yaml.safe_load(secret.read_text())
    document["stringData"]["cloud-config"] = bmm_config(clouds.bmm)
    secret.write_text(yaml.safe_dump(document))
    control_plane = "node-role.kubernetes.io/control-plane="
    cluster.kubectl("label", "node", "bmm-001", "bmm-002", control_plane)
    assert all(cluster.is_tainted(node) for node in NODES)

    cluster.kubectl("apply", "-f", tmp_path / "deploy/rbac", "-f", tmp_path / "deploy/manifests")
    for node in ("bmm-001", "bmm-002"):
        cluster.until(f"{node} is initialised", lambda node=node: not cluster.is_tainted(node), BMM)
        found = cluster.get("node", node)
        assert found["spec"]["providerID"].startswith(f"nvidia-bmm://{clouds.bmm.org}/{clouds.bmm.tenant_id}/")
        zone = found["metadata"]["labels"]["topology.kubernetes.io/zone"]
        assert zone == f"nvidia-bmm-zone-{clouds.bmm.site_id}"
        assert {"type": "InternalIP", "address": NODES[node]} in found["status"]["addresses"]
    assert cluster.is_tainted("oxide-001"), "a node of another cloud is left alone"
    (pod,) = cluster.until("the pod is ready", lambda: cluster.ready_pods(BMM), BMM)
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    assert cluster.kubectl("logs", "-n", "kube-system", "-l", BMM)
    account = "--as=system:serviceaccount:kube-system:cloud-controller-manager"
    assert cluster.kubectl("auth", "can-i", "list", "nodes", account).strip() == "yes"
    writes = ("auth", "can-i", "--list", account)
    assert not re.search(r"^(nodes|services).*\b(patch|update|delete)\b", cluster.kubectl(*writes), re.MULTILINE)


def test_two_replicas_share_the_work_and_the_second_takes_over(cluster: Cluster, clouds: Clouds) -> None:
    lease = ("lease", "nvidia-bmm-cloud-controller-manager", "-n", "kube-system")
    cluster.kubectl("apply", "-k", ROOT / "deploy" / "overlays" / "high-availability")
    pods = cluster.until("two pods are ready", lambda: len(found := cluster.ready_pods(BMM)) == 2 and found, BMM)
    assert {pod["spec"]["nodeName"] for pod in pods} == {"bmm-001", "bmm-002"}
    holder = cluster.until("one leads", lambda: cluster.get(*lease)["spec"].get("holderIdentity"), BMM)
    leader = holder.split("_")[0]
    (name,) = [pod["metadata"]["name"] for pod in pods if pod["spec"]["nodeName"] == leader]
    cluster.kubectl("delete", "pod", name, "-n", "kube-system", "--wait=false")

    def is_other() -> bool:
        return cluster.get(*lease)["spec"].get("holderIdentity", holder) not in ("", holder)

    cluster.until("another one leads", is_other, BMM)


def test_the_manager_of_oxide_runs_from_its_chart_and_serves_a_load_balancer(
    cluster: Cluster, clouds: Clouds, tmp_path: Path
) -> None:
    literals = {
        "oxide-host": clouds.oxide.url,
        "oxide-token": clouds.oxide.token,
        "oxide-project": clouds.oxide.project,
    }
    secret = ("create", "secret", "generic", "rack-oxide-cloud-controller-manager", "-n", "kube-system")
    cluster.kubectl(*secret, *(f"--from-literal={key}={value}" for key, value in literals.items()))
    cluster.helm("install", "rack", chart_folder("oxide"), "-n", "kube-system")
    cluster.until("oxide-001 is initialised", lambda: not cluster.is_tainted("oxide-001"), OXIDE)
    assert cluster.get("node", "oxide-001")["spec"]["providerID"].startswith("oxide://")
    assert cluster.get("node", "bmm-001")["spec"]["providerID"].startswith("nvidia-bmm://")
    (pod,) = cluster.until("the pod is ready", lambda: cluster.ready_pods(OXIDE), OXIDE)

    cluster.kubectl("create", "service", "loadbalancer", "web", "--tcp=80:80")
    ingress = cluster.until(
        "the Service has an address",
        lambda: cluster.get("service", "web")["status"]["loadBalancer"].get("ingress"),
        OXIDE,
    )
    floating = clouds.call(lambda: clouds.oxide.floating_ip("kubernetes-default-web"))
    assert floating is not None and ingress[0]["ip"] == floating["ip"]

    # The Secret changes, the old token is refused, and nobody restarts anything.
    clouds.call(clouds.oxide.expire_tokens)
    token = clouds.call(clouds.oxide.new_token)
    renewed = json.dumps({"stringData": {"oxide-token": token}})
    cluster.kubectl("patch", "secret", "rack-oxide-cloud-controller-manager", "-n", "kube-system", "-p", renewed)
    cluster.kubectl("delete", "service", "web", "--wait=false")
    cluster.until(
        "the Service is gone, with its floating IP",
        lambda: cluster.kubectl.attempt("get", "service", "web").returncode == 1,
        OXIDE,
    )
    assert clouds.call(lambda: clouds.oxide.floating_ip("kubernetes-default-web")) is None
    (same,) = cluster.ready_pods(OXIDE)
    assert same["metadata"]["uid"] == pod["metadata"]["uid"]
    assert same["status"]["containerStatuses"][0]["restartCount"] == 0
    cluster.helm("uninstall", "rack", "-n", "kube-system")


def test_one_manager_serves_both_clouds(cluster: Cluster, clouds: Clouds) -> None:
    literals = {
        "oxide-host": clouds.oxide.url,
        "oxide-token": clouds.oxide.token,
        "oxide-project": clouds.oxide.project,
    }
    secret = ("create", "secret", "generic", "oxide-cloud-controller-manager", "-n", "kube-system")
    cluster.kubectl(*secret, *(f"--from-literal={key}={value}" for key, value in literals.items()))
    # A node that kubelets of a new machine would register: tainted, without a provider ID.
    for name in ("bmm-001", "oxide-001"):
        cluster.kubectl("label", "node", name, "topology.kubernetes.io/zone-", "node.kubernetes.io/instance-type-")
    cluster.kubectl("apply", "-k", ROOT / "deploy" / "overlays" / "mixed")
    lease = ("lease", "nvidia-bmm-cloud-controller-manager", "-n", "kube-system")
    cluster.until("it is rolled out", lambda: len(cluster.ready_pods(BMM)) == 1 and len(cluster.pods(BMM)) == 1, BMM)
    assert cluster.get(*lease)["spec"]["holderIdentity"]

    def has_type(node: str) -> bool:
        return "node.kubernetes.io/instance-type" in cluster.get("node", node)["metadata"]["labels"]

    for node in ("bmm-001", "oxide-001"):
        cluster.until(f"{node} has its labels again", lambda node=node: has_type(node), BMM)
