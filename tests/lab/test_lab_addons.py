"""Add-ons of a real cluster: one command makes it with all of them, and each does what it is for.

The tests follow one another on one managed lab with one cluster of two nodes, and the last one removes it.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import re
import shutil
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from tests.deploy.conftest import IMAGE, run_tool
from tests.lab.test_lab_managed import Site
from tests.lab.test_lab_setup import Lab
from tests.waiting import wait_until

from bedplate.lab import binaries, images, managed, packages, registry

pytestmark = [pytest.mark.root, pytest.mark.lab, pytest.mark.soak, pytest.mark.xdist_group("lab")]

EXAMPLE = Path(__file__).parents[2] / "examples" / "add-ons.yaml"
NODES = ("node001", "node002")
FQDN = "cluster.example.com"
DASHBOARD = """\
apiVersion: v1
kind: Namespace
metadata: {name: kubernetes-dashboard}
---
apiVersion: v1
kind: Service
metadata: {name: kubernetes-dashboard, namespace: kubernetes-dashboard}
spec:
  selector: {app: dashboard}
  ports: [{port: 443}]
"""
POOLS = """\
apiVersion: nv-ipam.nvidia.com/v1alpha1
kind: IPPool
metadata: {name: pool1, namespace: kube-system}
spec:
  subnet: 192.168.0.0/16
  perNodeBlockSize: 100
  gateway: 192.168.0.1
"""


class Place(NamedTuple):
    """The lab with its cluster, the address of this machine in it, and the folder that all nodes share."""

    lab: Lab
    machine: str
    addresses: dict[str, str]
    shared: Path

    def tool(self, *words: str, code: int = 0, stdin: str = "") -> str:
        """What the tool printed, of an action that runs no stages."""
        command = [sys.executable, "-m", "bedplate.apps.kubernetessetup", "--data", str(self.lab.site.data), *words]
        environ = self.lab.site.lab.environ
        done = subprocess.run(
            command, env=environ, input=stdin, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def states(self) -> dict[str, str]:
        """How the head says that applications stand."""
        rows = self.lab.site.cmsh("kubernetes appstatus -d '|'").splitlines()
        return {row.split("|")[2]: row for row in rows[1:]}

    def has(self, node: str, image: str) -> bool:
        return image in self.lab.site.on(node, "ctr", "-n", "k8s.io", "images", "ls", "-q").split()


@pytest.fixture(scope="module")
def place(new_lab: Callable[..., Any], look: Callable[..., Any], tmp_path_factory: Any) -> Iterator[Place]:
    binaries.ensure((*packages.TAKEN, *managed.IMAGED, *managed.ADDONS), progress=print)
    made = new_lab("p")
    before = look(made.name, made.state)
    site = Site(made, made.ok("up", "--managed", "--nodes", "2").strip())
    plan = json.loads((site.folder / "lab.json").read_text())["plan"]
    archive = tmp_path_factory.mktemp("image") / "image.tar"
    done = run_tool("image.py", "archive", "--image", IMAGE, "--output", archive)
    assert done.returncode == 0, done.stderr
    images.Store(site.folder / "images").load_archive(archive)
    lab = Lab(site, {node: site.tree(node) for node in NODES}, {}, "", before)
    shared = Path("/dev/shm") / f"bedplate-{made.name}"
    yield Place(lab, plan["gateway"], {node["name"]: node["address"] for node in plan["nodes"]}, shared)
    made.run("down")
    shutil.rmtree(shared, ignore_errors=True)


def _answers(place: Place, folder: Path) -> Path:
    """The example for two nodes, with everything that a site can bring."""
    (folder / "dashboard.yaml").write_text(DASHBOARD)
    (folder / "pools.yaml").write_text(POOLS)
    machines = [
        {"id": f"m-{name}", "name": name, "internalIPs": [address], "type": "lab.2cpu"}
        for name, address in place.addresses.items()
    ]
    (folder / "cloud.yaml").write_text(yaml.safe_dump({"instances": machines}))
    answers = yaml.safe_load(EXAMPLE.read_text())
    kubernetes = answers["kubernetes"]
    kubernetes["fqdn"] = FQDN
    kubernetes["nodes"]["workers"]["nodes"] = ["node002"]
    kubernetes["local_path"]["path"] = str(place.shared)
    kubernetes["addons"] |= {
        "dashboard": str(folder / "dashboard.yaml"),
        "ccm": {"provider": "cloudlycke", "cloud_config": str(folder / "cloud.yaml")},
        "ipam": {"install": True, "pools": str(folder / "pools.yaml")},
    }
    file = folder / "answers.yaml"
    file.write_text(yaml.safe_dump(answers))
    return file


def test_item_182_one_command_makes_a_cluster_with_all_add_ons(place: Place, tmp_path: Path) -> None:
    said = place.lab.setup("-c", str(_answers(place, tmp_path)), "--on-error-action", "abort")
    assert "status: completed" in said
    assert f"- Kubernetes dashboard: https://dashboard.{FQDN}:30443/" in said
    states = place.states()
    for name in ("ccm_cloudlycke", "dashboard", "dashboard_ingress", "ingress_controller", "ipam", "ipam_pools"):
        assert "applied" in states.get(name, ""), states
    assert all("applied" in states[name] for name in ("landing_page", "local_path", "metrics_server"))
    assert "disabled" in states["calico"]


def test_item_156_the_dashboard_is_reached_under_the_external_name(place: Place) -> None:
    ingress = place.lab.get("ingress", "kubernetes-dashboard", "-n", "kubernetes-dashboard")
    assert ingress["spec"]["rules"][0]["host"] == f"dashboard.{FQDN}"


def test_item_189_label_sets_label_the_control_plane(place: Place) -> None:
    labels = {item["metadata"]["name"]: item["metadata"]["labels"] for item in place.lab.get("nodes")["items"]}
    label = "brightcomputing.com/ingress-controller"
    assert label in labels["node001"] and label not in labels["node002"]


def test_items_189_190_a_node_that_leaves_a_label_set_loses_the_pods_of_daemon_sets(place: Place) -> None:
    place.lab.site.cmsh(
        "kubernetes use default", "labelsets", "add amd", "set labels nvidia.com/amd-gpu-accelerator=",
        "append nodes node002", "commit",
    )  # fmt: skip
    container = {"name": "main", "image": "busybox", "imagePullPolicy": "IfNotPresent", "command": ["sleep", "3600"]}
    spec = {
        "nodeSelector": {"nvidia.com/amd-gpu-accelerator": ""},
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    labels = {"app": "device-plugin"}
    daemons = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "device-plugin"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }
    place.lab.kubectl("apply", "-f", "-", stdin=json.dumps(daemons))

    def hosts() -> list[str]:
        return [pod["spec"].get("nodeName", "") for pod in place.lab.get("pods", "-l", "app=device-plugin")["items"]]

    wait_until(lambda: hosts() == ["node002"], "the labelled node has a pod", step_s=1)
    place.lab.site.cmsh("kubernetes use default", "labelsets", "use amd", "removefrom nodes node002", "commit")
    wait_until(lambda: hosts() == [], "the pod is gone with the label", step_s=1)


def test_the_cloud_controller_manager_initialises_nodes_and_ipam_gives_them_blocks(place: Place) -> None:
    def initialised() -> bool:
        nodes = place.lab.get("nodes")["items"]
        taints = [taint["key"] for item in nodes for taint in item["spec"].get("taints", [])]
        return not any("uninitialized" in key for key in taints) and all(
            item["spec"].get("providerID") for item in nodes
        )

    wait_until(initialised, "every node has its provider ID and lost its taint", step_s=1)

    def allocated() -> set[str]:
        status = place.lab.get("ippools.nv-ipam.nvidia.com", "pool1", "-n", "kube-system").get("status", {})
        return {each["nodeName"] for each in status.get("allocations", [])}

    wait_until(lambda: allocated() == set(NODES), "each node has a block of addresses", step_s=1)


def test_item_163_a_claim_gets_a_folder_of_the_shared_path_that_goes_with_it(place: Place) -> None:
    classes = place.lab.kubectl("get", "storageclass")
    assert re.search(r"local-path \(default\)\s+rancher.io/local-path\s+Delete\s+Immediate\s+false", classes), classes
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    place.lab.kubectl("apply", "-f", "-", stdin=json.dumps(claim))
    wait_until(lambda: place.lab.get("pvc", "data")["status"]["phase"] == "Bound", "the claim is bound", step_s=1)
    (folder,) = place.shared.iterdir()
    assert folder.name.endswith("_default_data")
    place.lab.kubectl("delete", "pvc", "data", "--wait=false")
    wait_until(lambda: list(place.shared.iterdir()) == [], "the folder is gone", step_s=1)


def test_kubectl_top_shows_the_usage_of_every_node(place: Place) -> None:
    def usage() -> set[str]:
        with contextlib.suppress(AssertionError):
            return {line.split()[0] for line in place.lab.kubectl("top", "nodes", "--no-headers").splitlines()}
        return set()

    wait_until(lambda: usage() == set(NODES), "there is usage of both nodes", step_s=2)


class _Landing(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"landing page for {self.headers['X-Forwarded-Host']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


@contextlib.contextmanager
def _serving(address: str, port: int, handler: Any) -> Iterator[int]:
    server = http.server.ThreadingHTTPServer((address, port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def _asked(url: str, host: str) -> str:
    request = urllib.request.Request(url, headers={"Host": host})
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=20, context=context) as answer:
        return str(answer.read().decode())
    return ""


def test_item_130_the_ingress_answers_what_no_rule_matches_with_the_landing_page(place: Place) -> None:
    # The head of a lab has no landing page on port 80; this machine stands in for it.
    place.lab.site.cmsh(
        "kubernetes use default", "appgroups", "use system", "applications", "use landing_page", "environment",
        f"set head_node_internal_ip value {place.machine}", "commit",
    )  # fmt: skip
    with _serving(place.machine, 80, _Landing):
        for url in ("http://{}:30080/no/such/page", "https://{}:30443/"):
            for address in place.addresses.values():
                wait_until(
                    lambda url=url, address=address: (
                        "landing page for" in _asked(url.format(address), "any.example.com")
                    ),  # type: ignore[misc]
                    f"the landing page at {url.format(address)}",
                    step_s=1,
                )


def test_items_177_179_five_stages_give_the_ingress_the_certificate_that_it_serves(
    place: Place, tmp_path: Path
) -> None:
    domains = f"{FQDN},*.apps.{FQDN}"
    words = ("--configure-ingress", "--trusted-domains", domains, "--pki", str(tmp_path), "--on-error-action", "abort")
    said = place.lab.setup(*words)
    assert "Executing 5 stages" in said and "restarts with the certificate" in said
    files = {file.name: file.stat().st_mode & 0o077 for file in (tmp_path / "default").iterdir()}
    assert set(files) == {"ingress-ca.crt", "ingress-ca.key"} | {
        f"ingress-server.{end}" for end in ("crt", "csr", "key")
    }
    assert files["ingress-ca.key"] == files["ingress-server.key"] == 0

    def names() -> str:
        line = ["openssl", "s_client", "-connect", f"{place.addresses['node002']}:30443", "-servername", FQDN]
        try:
            shown = subprocess.run(line, input="", capture_output=True, text=True, timeout=10, check=False).stdout
        except subprocess.TimeoutExpired:
            # The pod that served before is gone, and with it whoever was passed on to it.
            return ""
        text = ["openssl", "x509", "-noout", "-ext", "subjectAltName"]
        return subprocess.run(text, input=shown, capture_output=True, text=True, timeout=60, check=False).stdout

    wait_until(
        lambda: f"DNS:{FQDN}" in names() and f"DNS:*.apps.{FQDN}" in names(),
        "the ingress serves the certificate",
        step_s=1,
    )


class _Private(registry.Handler):
    """A registry that asks who somebody is."""

    known = "Basic " + base64.b64encode(b"alice:s3cret").decode()

    def _answer(self, *, has_body: bool) -> None:
        if self.headers.get("Authorization") == self.known:
            super()._answer(has_body=has_body)
            return
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="lab"')
        self.send_header("Content-Length", "0")
        self.end_headers()


def test_item_103_images_are_pulled_to_exactly_the_nodes_that_are_meant(place: Place) -> None:
    images_ = ("docker.io/bedplate/tool:latest", "registry.k8s.io/coredns/coredns:lab")
    said = place.tool("--pull", "--images", "bedplate/tool,registry.k8s.io/coredns/coredns:lab", "--nodes", "node002")
    rows = [line.split() for line in said.splitlines()]
    assert rows == [
        ["NODE", "IMAGE", "RESULT"],
        ["node002", "bedplate/tool", "pulled"],
        ["node002", "registry.k8s.io/coredns/coredns:lab", "pulled"],
    ]
    assert all(place.has("node002", image) and not place.has("node001", image) for image in images_)
    role = "node-role.kubernetes.io/control-plane"
    query = f"kubernetes.io/os==linux,kubernetes.io/hostname!=node002,{role}="
    said = place.tool("--pull", "--images", "bedplate/tool", "--node-selector", query, "--json")
    assert [json.loads(line)["node"] for line in said.splitlines()] == ["node001"]
    assert place.has("node001", images_[0]) and not place.has("node001", images_[1])
    said = place.tool("--pull", "--images", "bedplate/tool,no/such:1", "--nodes", "node00[1-2]", code=1)
    assert len(re.findall(r"(?m)no/such:1 +(?!pulled)\S", said)) == 2 and said.count(" pulled") == 2
    assert "'node003'" in place.tool("--pull", "--images", "bedplate/tool", "--nodes", "node001,node003", code=1)


def test_item_103_a_private_registry_gets_the_login_which_is_written_down_nowhere(place: Place) -> None:
    _Private.stores = (images.Store(binaries.cache_folder() / "images"),)
    name = "docker.io/bedplate/tool:latest"
    digest = _Private.stores[0].find(name)
    assert digest is not None
    with _serving(place.machine, 0, _Private) as port:
        host = f"{place.machine}:{port}"
        image = f"{host}/bedplate/tool@{digest}"
        hosts = f'server = "http://{host}"\n[host."http://{host}"]\n  capabilities = ["pull", "resolve"]\n'
        folder = f"/etc/containerd/certs.d/{host}"
        place.lab.site.on("node002", "sh", "-c", f"mkdir -p {folder}; cat > {folder}/hosts.toml <<'E'\n{hosts}E")
        login = ["--pull-registry-server", host, "--pull-registry-username", "alice", "--pull-registry-password"]
        pull = ["--pull", "--images", image, "--nodes", "node002"]
        assert "pulled" not in place.tool(*pull, code=1)
        said = place.tool(*pull, *login, "wrong", code=1)
        assert "401" in said and "wrong" not in said
        assert "pulled" in place.tool(*pull, *login, "-", stdin="s3cret\n")
        assert place.has("node002", image)
        place.lab.site.on("node002", "rm", "-r", folder)
    for file in (*place.lab.site.folder.rglob("*.json"), *place.lab.site.data.glob("*.db*")):
        assert b"s3cret" not in file.read_bytes(), file


def test_item_104_an_update_reports_that_nothing_is_newer(place: Place) -> None:
    said = place.tool("--update-addons")
    assert "every application is as this release has it" in said
    assert "system/metrics_server: applied" in said


def test_the_removal_leaves_nothing_of_the_add_ons(place: Place) -> None:
    said = place.lab.setup("--remove", "--yes-i-really-mean-it", "--on-error-action", "abort")
    assert "status: completed" in said
    for node in NODES:
        left = place.lab.site.changes(node, place.lab.trees)
        for name in ("usr", "opt"):
            left.pop(f"/{name}", None)
        assert left == {}, node
