"""A dry release into a registry and a lab, then an install of each manager with the guides' own commands, unchanged.

What a reader sets is in the environment (`IMG`, the cluster, the lab, the rack's credentials) or in the file that the
page tells them to edit. The image is built once and pushed to a registry over HTTPS; the guides' other two commands
load the same archive into the lab, from which its nodes pull. Clouds are simulated and answer on the lab's bridge. The
same for address management is in tests/lab/test_ipam_guide.py, for Cloudlycke in test_tutorials.py.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests import programs
from tests.deploy.conftest import ROOT, VERSION, checkout
from tests.deploy.test_lab import BMM, OXIDE, Clouds, Cluster, Lab, bmm_config
from tests.deploy.test_registry import TlsRegistry, tls_registry, useless_containers
from tests.pages import console_lines

from bedplate.lab import binaries

pytestmark = [
    pytest.mark.root,
    pytest.mark.lab,
    pytest.mark.xdist_group("lab"),
    pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root"),
]
SUBNET = f"10.84.{os.getpid() % 250}"
NODES = {"bmm-001": f"{SUBNET}.20", "bmm-002": f"{SUBNET}.21", "oxide-001": f"{SUBNET}.22"}
# What goes on until it is stopped, and is shown by tests/deploy/test_lab.py, test_rootfs.py and test_running.py.
ENDLESS = re.compile(r"kubectl logs .* -f$|podman run |make run ")
GUIDES = ROOT / "docs" / "guides"


@dataclass
class Reader:
    """Somebody at a terminal, in a checkout, with the variables set that a page asks for."""

    folder: Path
    environ: dict[str, str]
    pages: dict[str, int] = field(default_factory=dict)

    def through(self, page: str, start: str) -> str:
        """Run the page's commands from where the reader is, up to the one that begins so; what that one printed."""
        lines = console_lines(GUIDES / page)
        for number in range(self.pages.get(page, 0), len(lines)):
            self.pages[page] = number + 1
            printed = "" if ENDLESS.match(lines[number]) else self.run(lines[number])
            if lines[number].startswith(start):
                return printed
        raise AssertionError(f"{page} has no command after this that begins with {start!r}")

    def rest(self, page: str) -> None:
        """Run what is left of the page."""
        for line in console_lines(GUIDES / page)[self.pages.get(page, 0) :]:
            if not ENDLESS.match(line):
                self.run(line)

    def skip_image(self, page: str) -> None:
        """The page's first four commands are the same on every page, and were run once."""
        self.pages[page] = 4

    def run(self, line: str) -> str:
        done = self.attempt(line)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def attempt(self, line: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", "-c", f"set -o pipefail; {line}"]
        return subprocess.run(
            command, cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=900, check=False
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("guides")


@pytest.fixture(scope="module")
def registry(folder: Path) -> Iterator[TlsRegistry]:
    with tls_registry(folder) as running:
        yield running


@pytest.fixture(scope="module")
def lab(folder: Path) -> Iterator[Lab]:
    made = Lab(folder)
    nodes = [word for name, address in NODES.items() for word in ("--node", f"{name}={address}")]
    made.command("up", *nodes, "--subnet", f"{SUBNET}.0/24", "--cloud-provider", "external")
    try:
        yield made
    finally:
        made.command("down")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def clouds(lab: Lab) -> Iterator[Clouds]:
    with Clouds(f"{SUBNET}.1", NODES) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(lab: Lab) -> Cluster:
    return Cluster(lab)


@pytest.fixture(scope="module")
def reader(folder: Path, lab: Lab, registry: TlsRegistry, clouds: Clouds) -> Reader:
    """In a fresh checkout, with nothing built and nothing pushed."""
    (folder / "checkout").mkdir()
    helm = lab.program("helm", programs.HELM)
    folders = (
        *(useless_containers(folder), Path(sys.executable).parent),
        *(programs.built("kubectl").parent, programs.built("helm", programs.HELM).parent),
    )
    environ = {
        **helm.environ,
        **registry.environ,
        "PATH": ":".join((*map(str, folders), os.environ["PATH"])),
        "XDG_STATE_HOME": str(folder),
        "BEDPLATE_LAB": lab.name,
        "BEDPLATE_CACHE": str(binaries.cache_folder()),
        "IMG": f"{registry.address}/bedplate:{VERSION}",
        "OXIDE_HOST": clouds.oxide.url,
        "OXIDE_TOKEN": clouds.oxide.token,
        "OXIDE_PROJECT": clouds.oxide.project,
    }
    return Reader(checkout(folder / "checkout"), environ)


@pytest.fixture(scope="module")
def released(reader: Reader, registry: TlsRegistry) -> str:
    """The image, built, pushed, written into the checkout and loaded into the lab by the guide's commands."""
    refused = reader.attempt("make check-image ARGS='--timeout 60'")
    assert refused.returncode != 0, "no node has the image yet"
    assert "cannot run on 3 of 3 nodes" in refused.stderr and "Pull" in refused.stderr
    reader.through("deploy-nvidia-bmm.md", "bedplate lab load-image ")
    reader.skip_image("deploy-oxide.md")
    return reader.environ["IMG"]


def images_of(cluster: Cluster, selector: str) -> set[str]:
    return {container["image"] for pod in cluster.pods(selector) for container in pod["spec"]["containers"]}


def test_what_was_pushed_is_what_the_lab_has(reader: Reader, registry: TlsRegistry, released: str) -> None:
    trust = ssl.create_default_context(cafile=registry.authority)
    request = urllib.request.Request(
        f"https://{registry.address}/v2/bedplate/manifests/{VERSION}",
        headers={"Accept": "application/vnd.oci.image.manifest.v1+json"},
    )
    with urllib.request.urlopen(request, timeout=60, context=trust) as answer:
        digest = answer.headers["Docker-Content-Digest"]
    archive = reader.folder / "build" / "image" / f"bedplate-{VERSION}.tar"
    index = subprocess.run(
        ["tar", "-xOf", str(archive), "index.json"], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(index.stdout)["manifests"][0]["digest"] == digest


def test_every_node_can_run_the_image(reader: Reader, released: str, cluster: Cluster) -> None:
    assert "runs on 3 of 3 nodes" in reader.through("migrate-from-nv-ipam.md", "make check-image")
    left = json.loads(cluster.kubectl("get", "daemonset", "-n", "kube-system", "-o", "json"))["items"]
    assert "bedplate-image-check" not in {each["metadata"]["name"] for each in left}


def test_the_manager_of_nvidia_bmm_is_installed_by_its_guide(
    reader: Reader, released: str, cluster: Cluster, clouds: Clouds
) -> None:
    cluster.kubectl("label", "node", "bmm-001", "bmm-002", "node-role.kubernetes.io/control-plane=")
    # "Put your values into a copy of …"
    (reader.folder / "config" / "cloud-config.yaml").write_text(bmm_config(clouds.bmm))
    reader.through("deploy-nvidia-bmm.md", "make deploy")
    for node in ("bmm-001", "bmm-002"):
        cluster.until(f"{node} is initialised", lambda node=node: not cluster.is_tainted(node), BMM)
    assert images_of(cluster, BMM) == {released}
    # The overlay for two clouds needs the other cloud's Secret.
    literals = {"oxide-host": "OXIDE_HOST", "oxide-token": "OXIDE_TOKEN", "oxide-project": "OXIDE_PROJECT"}
    words = [f"--from-literal={key}={reader.environ[name]}" for key, name in literals.items()]
    cluster.kubectl("create", "secret", "generic", "oxide-cloud-controller-manager", "-n", "kube-system", *words)
    reader.through("deploy-nvidia-bmm.md", "make undeploy")
    kept = cluster.get("secret", "nvidia-bmm-cloud-config", "-n", "kube-system")
    assert "bedplate.dev/made-by" not in kept["metadata"].get("annotations", {}), "the reader's own Secret stays"
    reader.rest("deploy-nvidia-bmm.md")
    cluster.kubectl("delete", "secret", "oxide-cloud-controller-manager", "-n", "kube-system")


def test_the_manager_of_oxide_is_installed_by_its_guide_from_folder_and_registry(
    reader: Reader, released: str, cluster: Cluster
) -> None:
    reader.through("deploy-oxide.md", "helm install rack charts/")
    cluster.until("oxide-001 is initialised", lambda: not cluster.is_tainted("oxide-001"), OXIDE)
    assert images_of(cluster, OXIDE) == {released}
    reader.through("deploy-oxide.md", "make helm-push ")
    reader.through("deploy-oxide.md", "helm install rack oci:")
    cluster.until("the pod of the chart from the registry is ready", lambda: cluster.ready_pods(OXIDE), OXIDE)
    assert images_of(cluster, OXIDE) == {released}
    reader.rest("deploy-oxide.md")
