"""Parts of the lab that follows the guides: a reader, the original's programs as an image, pods that come and go."""

from __future__ import annotations

import re
import subprocess
import tarfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tests import programs
from tests.deploy.conftest import ROOT, load_tool
from tests.deploy.test_ipam_overlays import FACTS
from tests.lab.test_ipam_overlay import Overlaid
from tests.pages import console_lines

# What goes on until it is stopped, and is shown by tests/deploy/test_lab.py, test_rootfs.py and test_running.py.
ENDLESS = re.compile(r"kubectl logs .* -f$|podman run |make run ")
GUIDES = ROOT / "docs" / "guides"
ORIGINAL = "registry.example/original-ipam:1"


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

    def skip_to(self, page: str, start: str) -> None:
        """Leave out what comes before this command: done already, or for another way."""
        lines = console_lines(GUIDES / page)
        self.pages[page] = next(number for number, line in enumerate(lines) if line.startswith(start))

    def run(self, line: str, **more: str) -> str:
        done = self.attempt(line, **more)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def attempt(self, line: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a line; `more` is set in the environment for it."""
        command = ["bash", "-c", f"set -eo pipefail; {line}"]
        environ = {**self.environ, **more}
        return subprocess.run(
            command, cwd=self.folder, env=environ, capture_output=True, text=True, timeout=900, check=False
        )


def original_workloads(rendered: str) -> list[dict[str, Any]]:
    """An overlay with the original's image and the arguments of the original's manifests."""
    arguments: dict[str, list[str]] = {}
    for line in FACTS.read_text().splitlines():
        overlays, subject, path, value = (*line.split("\t"), "", "", "")[:4]
        if path.endswith(".args") and overlays == "all":
            arguments.setdefault(subject, []).append(value)
    rights = {
        "Deployment": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "DaemonSet": {"privileged": True, "runAsUser": 0},
    }
    objects: list[dict[str, Any]] = [each for each in yaml.safe_load_all(rendered) if each]
    for each in objects:
        if each["kind"] in rights:
            pod = each["spec"]["template"]["spec"]
            pod["containers"][0] |= {
                "image": ORIGINAL,
                "args": arguments[f"{each['kind']}/{each['metadata']['name']}"],
                "securityContext": rights[each["kind"]],
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

    def __init__(self, cluster: Overlaid, nodes: Sequence[str]) -> None:
        self._cluster = cluster
        self._ends = threading.Event()
        self.counts = dict.fromkeys(nodes, 0)
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=self._visit, args=(node,), daemon=True) for node in nodes]

    def __enter__(self) -> Visitors:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join(300)

    def _visit(self, node: str) -> None:
        while not self._ends.is_set():
            name = f"visitor-{node}-{self.counts[node] + 1}"
            spec = {"containers": [{"name": "web", "image": "bedplate/tool"}], "nodeName": node}
            notes = {"k8s.v1.cni.cncf.io/networks": "flat"}
            meta = {"name": name, "annotations": notes}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
            self._cluster.attempt("create", "-f", "-", stdin=yaml.safe_dump(pod))
            ready = self._cluster.attempt("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=180s")
            if ready.returncode:
                self.failures.append(f"{name}: {ready.stderr}")
            self._cluster.attempt("delete", "pod", name, "--grace-period=0", "--timeout=180s")
            self.counts[node] += 1
