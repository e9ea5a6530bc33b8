"""Address management installed by its guide from a registry, and in place of the original by the migration guide.

The guides' commands are run unchanged in a copy of the checkout; `IMG`, the lab and the cluster are in the environment,
as the pages say. Pods on three real nodes get a second interface through `macvlan` and `nv-ipam`. For the migration the
original's own programs (`BEDPLATE_PEERS`) run from an image first, with the arguments that its manifests have, and pods
come and go all the time while they are replaced.
"""

from __future__ import annotations

import os
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import programs
from tests.deploy.conftest import VERSION, checkout, load_tool
from tests.deploy.test_guides_lab import Reader
from tests.deploy.test_ipam_overlays import FACTS
from tests.deploy.test_registry import tls_registry, useless_containers
from tests.lab.ipam_lab import Cluster, definition
from tests.lab.test_ipam_overlay import Overlaid, _install_attach, attachment, named

from bedplate.lab import binaries

pytestmark = [pytest.mark.root, pytest.mark.lab, pytest.mark.xdist_group("lab")]

SUBNET = f"10.86.{os.getpid() % 250}"
NODES = ("node-1", "node-2", "node-3")
ORIGINAL = "registry.example/original-ipam:1"
OURS = "app=nvidia-k8s-ipam"


@pytest.fixture(scope="module")
def cluster(new_lab: Callable[..., Any]) -> Iterator[Overlaid]:
    """Three nodes with a second network and a stand-in for Multus, and nothing of ours."""
    lab = new_lab("ig")
    lab.ok("up", "--nodes", "3", "--link", "fabric0", "--subnet", f"{SUBNET}.0/24")
    made = Overlaid(lab, NODES)
    for node in NODES:
        _install_attach(made, node)
    made.apply(definition("NetworkAttachmentDefinition", "network-attachment-definitions", "k8s.cni.cncf.io"))
    made.kubectl(
        "wait", "--for=condition=Established", "--timeout=120s", "crd/network-attachment-definitions.k8s.cni.cncf.io"
    )
    made.apply(attachment("flat", {"type": "nv-ipam", "poolName": "my-pool"}))
    # The guide's pool is for nodes with this label.
    made.kubectl("label", "node", *NODES, "kubernetes.io/role=worker")
    yield made
    lab.run("down")


@pytest.fixture(scope="module")
def reader(cluster: Overlaid, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """Somebody who has built and pushed the image, and loaded it into the lab, by the guide's commands."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "checkout").mkdir()
    folders = (useless_containers(folder), Path(sys.executable).parent, programs.built("kubectl").parent)
    with tls_registry(folder) as registry:
        environ = {
            **os.environ,
            **registry.environ,
            "PATH": ":".join((*map(str, folders), os.environ["PATH"])),
            "KUBECONFIG": str(cluster.folder / "admin.kubeconfig"),
            "XDG_STATE_HOME": str(cluster.lab.state),
            "BEDPLATE_LAB": cluster.lab.name,
            "BEDPLATE_CACHE": str(binaries.cache_folder()),
            "IMG": f"{registry.address}/bedplate:{VERSION}",
        }
        made = Reader(checkout(folder / "checkout"), environ)
        made.through("ipam.md", "bedplate lab load-image ")
        yield made


def images_of(cluster: Cluster) -> set[str]:
    pods = cluster.pods("-n", "kube-system", "-l", OURS)
    return {container["image"] for pod in pods for container in pod["spec"]["containers"]}


def original_workloads(reader: Reader) -> list[dict[str, Any]]:
    """The overlay with the original's image and the arguments of the original's manifests."""
    arguments: dict[str, list[str]] = {}
    for line in FACTS.read_text().splitlines():
        overlays, subject, path, value = (*line.split("\t"), "", "", "")[:4]
        if path.endswith(".args") and overlays == "all":
            arguments.setdefault(subject, []).append(value)
    rendered = reader.run("kubectl kustomize deploy/overlays/no-webhook")
    objects: list[dict[str, Any]] = [each for each in yaml.safe_load_all(rendered) if each]
    for each in objects:
        if each["kind"] in ("Deployment", "DaemonSet"):
            pod = each["spec"]["template"]["spec"]
            pod["containers"][0] |= {
                "image": ORIGINAL,
                "args": arguments[f"{each['kind']}/{each['metadata']['name']}"],
                "securityContext": {"privileged": True, "runAsUser": 0},
            }
            pod.pop("securityContext", None)
    accounts = [each["metadata"]["name"] for each in objects if each["kind"] == "ServiceAccount"]
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": "kube-system"} for name in accounts]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    # The original's own roles are wider than ours.
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "original-ipam"},
        "roleRef": role,
        "subjects": subjects,
    }
    return [*objects, binding]


def original_archive(folder: Path) -> Path:
    """The original's three programs as an image."""
    tool = load_tool("image")
    tar = folder / "layer.tar"
    with tarfile.open(tar, "w") as layer:
        for name in ("tmp", "var/log"):
            info = tarfile.TarInfo(name)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            layer.addfile(info)
        for name in ("ipam-controller", "ipam-node", "nv-ipam"):
            layer.add(programs.original(name), name)
    packed = tool._file_blob(tool.LAYER, tool._compressed(tar))
    config = tool._config([tool._digest_of(tar)]) | {"config": {"WorkingDir": "/"}, "history": [{"created_by": "test"}]}
    described = tool._text_blob(tool.CONFIG, config)
    parts = {"config": described.described(), "layers": [packed.described()]}
    manifest = tool._text_blob(tool.MANIFEST, {"schemaVersion": 2, "mediaType": tool.MANIFEST, **parts})
    target = folder / "original.tar"
    tool.write_archive(tool.Image(manifest, described, (packed,)), ORIGINAL, target)
    return target


class Visitors:
    """Pods that come and go on every node, one after the other, each with an address of the pool."""

    def __init__(self, cluster: Overlaid) -> None:
        self._cluster = cluster
        self._ends = threading.Event()
        self.count = 0
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=self._visit, args=(node,), daemon=True) for node in NODES]

    def __enter__(self) -> Visitors:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join(300)

    def _visit(self, node: str) -> None:
        number = 0
        while not self._ends.is_set():
            number += 1
            name = f"visitor-{node}-{number}"
            spec = {"containers": [{"name": "web", "image": "bedplate/tool"}], "nodeName": node}
            notes = {"k8s.v1.cni.cncf.io/networks": "flat"}
            meta = {"name": name, "annotations": notes}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
            self._cluster.attempt("create", "-f", "-", stdin=yaml.safe_dump(pod))
            ready = self._cluster.attempt("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=180s")
            if ready.returncode:
                self.failures.append(f"{name}: {ready.stderr}")
            self._cluster.attempt("delete", "pod", name, "--grace-period=0", "--timeout=180s")
            self.count += 1


def test_the_guide_replaces_a_running_original_without_a_failed_add(
    cluster: Overlaid, reader: Reader, tmp_path: Path
) -> None:
    cluster.lab.ok("load-image", str(original_archive(tmp_path)))
    workloads = original_workloads(reader)
    cluster.apply(*workloads)
    cluster.roll_out()
    reader.run("kubectl apply -f docs/guides/ipam-pools.yaml")
    cluster.until("every node has a block", lambda: set(cluster.blocks("my-pool")) == set(NODES))
    blocks = cluster.blocks("my-pool")
    lasting = {node: cluster.attach(f"lasting-{node}", "flat", node) for node in NODES}
    held = {node: cluster.reservations(node) for node in NODES}
    with Visitors(cluster) as visitors:
        cluster.until("visitors come and go", lambda: visitors.count >= len(NODES))
        # The page, from its first command (the check of the image) to its last.
        reader.rest("migrate-from-nv-ipam.md")
        cluster.roll_out()
        before = visitors.count
        cluster.until("visitors come and go after it", lambda: visitors.count >= before + 2 * len(NODES))
    assert visitors.failures == []
    refused = cluster.get("events", "--field-selector", "reason=FailedCreatePodSandBox")["items"]
    assert [event["message"] for event in refused if "ipam" in event["message"]] == []
    assert images_of(cluster) == {reader.environ["IMG"]}
    assert cluster.blocks("my-pool") == blocks, "no block has moved"
    for node, pod in lasting.items():
        (link,) = cluster.links(named(pod))
        assert link["ips"][0] in {each["ip_address"] for each in held[node]}
        assert link["ips"][0] in {each["ip_address"] for each in cluster.reservations(node)}
    cluster.kubectl("delete", "clusterrolebinding", "original-ipam")
    cluster.kubectl("delete", "pod", "--all", "--wait=true", "--timeout=300s")


def test_the_guide_installs_it_and_pods_on_three_nodes_get_addresses(cluster: Overlaid, reader: Reader) -> None:
    reader.through("ipam.md", "kubectl kustomize deploy/overlays/no-webhook | kubectl apply")
    cluster.roll_out()
    assert images_of(cluster) == {reader.environ["IMG"]}
    reader.through("ipam.md", "bedplate ipam map")
    cluster.until("every node has a block", lambda: set(cluster.blocks("my-pool")) == set(NODES))
    blocks = cluster.blocks("my-pool")
    for node in NODES:
        cluster.attach(f"guided-{node}", "flat", node)
        (link,) = cluster.links(f"guided-{node}")
        assert link["ips"][0] in blocks[node]
    reader.rest("ipam.md")
