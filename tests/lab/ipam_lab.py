"""What the lab's tests of address management share: a cluster, its nodes as machines, the stores on them, and pods that
come and go."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from tests.waiting import wait_until

from bedplate.lab import cgroups
from bedplate.lab.nodes import Node

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(sys.executable).parent
DEADLINE_S = 420.0
STORE = Path("var-lib/cni/nv-ipam/store")
CONFIGURATION = "/etc/cni/net.d/nv-ipam.d"
POOL = "nv-ipam.nvidia.com/v1alpha1"


@dataclasses.dataclass(frozen=True)
class Block:
    """What a pool's status gives a node."""

    first: ipaddress.IPv4Address
    last: ipaddress.IPv4Address

    def __contains__(self, text: object) -> bool:
        return self.first <= ipaddress.IPv4Address(str(text).partition("/")[0]) <= self.last


def definition(kind: str, plural: str, group: str) -> dict[str, Any]:
    """A kind that another program would install; any content is accepted."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind, "plural": plural, "singular": plural.removesuffix("s")}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


class Cluster:
    """A lab of real kubelets, and kubectl without the detour over the command line."""

    def __init__(self, lab: Any, nodes: Sequence[str]) -> None:
        self.lab = lab
        self.nodes = tuple(nodes)
        self._tree = cgroups.Tree(lab.name)
        self._programs: list[subprocess.Popen[bytes]] = []

    @property
    def folder(self) -> Path:
        return Path(self.lab.state) / "bedplate" / "labs" / str(self.lab.name)

    # The cluster

    def attempt(self, *words: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        line = [str(self.folder / "bin" / "kubectl"), f"--kubeconfig={self.folder / 'admin.kubeconfig'}"]
        return subprocess.run(
            [*line, *map(str, words)], input=stdin, capture_output=True, text=True, timeout=600, check=False
        )

    def kubectl(self, *words: str | Path, stdin: str = "") -> str:
        done = self.attempt(*words, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(map(str, words))}: {done.stderr}{done.stdout}"
        return done.stdout

    def get(self, *words: str) -> Any:
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def apply(self, *objects: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def pods(self, *selection: str) -> list[Any]:
        found: list[Any] = self.get("pods", *selection)["items"]
        return found

    def running(self, *selection: str) -> list[Any]:
        """The pods that run and have an address; those that are about to go are none."""
        return [
            pod
            for pod in self.pods(*selection)
            if pod["status"].get("podIP")
            and "deletionTimestamp" not in pod["metadata"]
            and all("running" in each["state"] for each in pod["status"].get("containerStatuses", [{"state": {}}]))
        ]

    def blocks(self, pool: str) -> dict[str, Block]:
        """The blocks of an IPPool by node."""
        status = self.get("ippool", pool, "-n", "kube-system").get("status") or {"allocations": []}
        return {
            each["nodeName"]: Block(ipaddress.IPv4Address(each["startIP"]), ipaddress.IPv4Address(each["endIP"]))
            for each in status["allocations"]
        }

    def until(self, what: str, question: Callable[[], T], deadline_s: float = DEADLINE_S) -> T:
        """Ask until the answer is true, and return it; a failure shows another answer, pods, events and logs."""
        return wait_until(
            question, what, deadline_s=deadline_s, step_s=0.3, describe=lambda: f"{question()!r}\n{self.situation()}"
        )

    def situation(self) -> str:
        """What a person would look at first."""
        asked = [("get", "pods", "-A", "-o", "wide"), ("get", "events", "-A", "--sort-by=.lastTimestamp")]
        told = [f"$ kubectl {' '.join(words)}\n{self.attempt(*words).stdout[-6000:]}" for words in asked]
        logs = [path for node in self.nodes for path in (self.folder / "logs" / node).glob("ipam-*.log")]
        logs += [self.folder / "nodes" / node / "var-log" / "nv-ipam-cni.log" for node in self.nodes]
        told += [f"{path}:\n{path.read_text(errors='replace')[-3000:]}" for path in logs if path.exists()]
        return "\n".join(told)

    # The machines

    def _node(self, name: str) -> Node:
        return Node(name, self.folder, self._tree)

    def on(self, node: str, *command: str, stdin: str = "") -> str:
        """Run a command on a node."""
        inside = self._node(node)
        done = subprocess.run(
            inside.enter(command),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=inside.environ(),
        )
        assert done.returncode == 0, f"on {node}: {' '.join(command)}: {done.stderr}{done.stdout}"
        return done.stdout

    def start(self, node: str, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start one of our programs on a node; it ends with the node, at the latest."""
        inside = self._node(node)
        with (self.folder / "logs" / node / f"{name}.log").open("ab") as log:
            program = subprocess.Popen(
                inside.enter([str(PROGRAMS / name), *arguments]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=inside.environ(),
                preexec_fn=lambda: self._tree.join(node, "system"),
            )
        self._programs.append(program)
        return program

    def end_programs(self) -> None:
        """Reap what the lab's end has killed."""
        for program in self._programs:
            program.kill()
            program.wait(60)

    def write(self, node: str, path: str, content: str) -> None:
        self._node(node).write(path, content)

    def read(self, node: str, path: str) -> str:
        return Path(f"/proc/{self._node(node).pid}/root{path}").read_text()

    # What the daemons hold

    def reservations(self, node: str) -> list[dict[str, Any]]:
        """Everything in the node's store, each with its `pool`; the store is read as any program would read it."""
        path = self.folder / "nodes" / node / STORE
        text = path.read_text() if path.exists() else ""
        pools = json.loads(text)["pools"] if text else {}
        return [entry | {"pool": name} for name, pool in pools.items() for entry in pool["entries"].values()]

    def sandboxes(self, node: str) -> set[str]:
        """The pod sandboxes that the node's runtime has."""
        kind = 'labels."io.cri-containerd.kind"==sandbox'
        return set(self.on(node, "ctr", "-n", "k8s.io", "containers", "list", "-q", kind).split())


class Visitors:
    """Pods that come and go on every node, one after the other, each with an address of the pool."""

    def __init__(self, cluster: Cluster, nodes: Sequence[str]) -> None:
        self._cluster = cluster
        self._ends = threading.Event()
        self.counts = dict.fromkeys(nodes, 0)
        self.failures: list[str] = []
        self._known: set[str] = set()
        self._threads = [threading.Thread(target=self._visit, args=(node,), daemon=True) for node in nodes]

    def __enter__(self) -> Visitors:
        self._known = set(self._refused())
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join(300)

    def refusals(self) -> list[str]:
        """What kubelets have said since the first visitor of a pod that could not come, or could not go, at once."""
        return [text for uid, text in self._refused().items() if uid not in self._known]

    def _refused(self) -> dict[str, str]:
        return {
            event["metadata"]["uid"]: f"{event['involvedObject']['name']}: {event['message']}"
            for event in self._cluster.get("events")["items"]
            if event["reason"] in ("FailedCreatePodSandBox", "FailedKillPod")
        }

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


def node_of(pod: Any) -> str:
    return str(pod["spec"]["nodeName"])


def address_of(pod: Any) -> str:
    return str(pod["status"]["podIP"])
