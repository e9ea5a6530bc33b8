"""Parts of the lab that follows the guides: lab, simulated clouds, a reader, the original's programs as an image."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tests import programs, servers
from tests.deploy.conftest import ROOT, Program, load_tool
from tests.deploy.test_ipam_overlays import FACTS
from tests.pages import console_lines
from tests.waiting import DEADLINE_S, wait_until

from bedplate.sim.clouds import BmmCloud, OxideCloud

# What goes on until it is stopped, and is shown by test_guides_lab.py itself, test_rootfs.py and test_running.py.
ENDLESS = re.compile(r"kubectl logs .* -f$|podman run |make run ")
GUIDES = ROOT / "docs" / "guides"
ORIGINAL = "registry.example/original-ipam:1"
TAINT = "node.cloudprovider.kubernetes.io/uninitialized"
BMM = "app=nvidia-bmm-cloud-controller-manager"
OXIDE = "app.kubernetes.io/name=oxide-cloud-controller-manager"


class Lab:
    """A lab of this test's own."""

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


def bmm_config(cloud: BmmCloud) -> str:
    values = {
        "endpoint": cloud.url,
        "orgName": cloud.org,
        "token": cloud.token,
        "siteId": cloud.site_id,
        "tenantId": cloud.tenant_id,
    }
    return yaml.safe_dump(values)


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
    """An overlay with the original's image, and the arguments and update strategy of the original's manifests."""
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
            each["spec"].get("updateStrategy", {}).pop("rollingUpdate", None)
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
