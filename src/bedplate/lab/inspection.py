"""Look at labs that run.

In: a lab's name. Out: a `Status` for people (a table) and programs (JSON). Nothing is changed.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import msgspec

from bedplate.core import errors
from bedplate.lab import cgroups, managed, processes, state
from bedplate.lab.nodes import SWITCH
from bedplate.lab.plan import Plan

__all__ = ["NodeStatus", "Status", "inspect", "summaries"]

# Processes of a node worth naming (pods bring many more). The kernel keeps 15 characters of a name.
_PROGRAMS = {
    name[:15]: name
    for name in (
        "containerd",
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubelet",
        "kube-proxy",
        "nginx",
        "dockerd",
    )
}
_AGENT = b"bedplate.apps.agent\0run\0"


class NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    """One node: what the API says of it (`Ready`, `NotReady`, `Unknown`), or the head (`UP`, `DOWN`, `UNKNOWN`, and how
    its health is), and which programs run on it."""

    name: str
    address: str
    condition: str
    programs: list[str]


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """One lab. `phase` is starting, ready, or stopped when a record is left but no process. A managed lab has a `head`
    and a `shell` in place of an API and what belongs to it."""

    name: str
    phase: str
    kubernetes: str
    control_plane: str
    subnet: str
    pod_cidr: str
    kubeconfig: str
    logs: str
    api: str
    nodes: list[NodeStatus]
    head: str = ""
    shell: str = ""


async def inspect(name: str, shelf: state.Shelf) -> Status:
    """The state of a lab, asking its API server or its head once."""
    record = shelf.need(name)
    plan, folder = record.plan, shelf.folder(name)
    tree = cgroups.Tree(name)
    conditions, api = await (_heard(plan, folder) if plan.is_managed else _conditions(folder))
    return Status(
        name=name,
        phase=record.phase if tree.members(SWITCH) else "stopped",
        kubernetes=plan.kubernetes,
        control_plane=plan.control_plane,
        subnet=plan.subnet,
        pod_cidr=plan.pod_cidr,
        kubeconfig="" if plan.is_managed else str(folder / "admin.kubeconfig"),
        logs=str(folder / "logs"),
        api="" if plan.is_managed else api,
        head=f"{managed.url(plan)} {api}" if plan.is_managed else "",
        shell=managed.shell(folder) if plan.is_managed else "",
        nodes=[
            NodeStatus(node.name, node.address, conditions.get(node.name, "Unknown"), _programs(tree, node.name))
            for node in plan.nodes
        ],
    )


def summaries(shelf: state.Shelf) -> list[dict[str, str]]:
    """Every lab in a few words, without asking its API server."""
    rows = []
    for name in shelf.names():
        record = shelf.read(name)
        is_alive = bool(cgroups.Tree(name).members())
        rows.append(
            {
                "name": name,
                "phase": (record.phase if record else "broken") if is_alive else "stopped",
                "kubernetes": record.plan.kubernetes if record else "",
                "controlPlane": record.plan.control_plane if record else "",
                "nodes": str(len(record.plan.nodes)) if record else "",
                "subnet": record.plan.subnet if record else "",
            }
        )
    return rows


async def _heard(plan: Plan, folder: Path) -> tuple[dict[str, str], str]:
    try:
        known = await managed.states(plan, folder)
    except (errors.BedplateError, OSError) as err:
        return {}, f"unreachable: {str(err).splitlines()[-1]}"
    sick = {name for name, state_ in known.items() if state_.health == "FAIL"}
    return {name: f"{state_.state} (FAIL)" if name in sick else state_.state for name, state_ in known.items()}, "ready"


async def _conditions(folder: Path) -> tuple[dict[str, str], str]:
    command = [str(folder / "bin" / "kubectl"), f"--kubeconfig={folder / 'admin.kubeconfig'}", "--request-timeout=5s"]
    try:
        text = await processes.run([*command, "get", "nodes", "-o", "json"], "ask the API server", timeout_s=15)
    except (errors.BedplateError, OSError) as err:
        return {}, f"unreachable: {str(err).splitlines()[-1]}"
    by_node = {}
    for item in json.loads(text)["items"]:
        conditions = {each["type"]: each["status"] for each in item["status"].get("conditions", [])}
        by_node[item["metadata"]["name"]] = "Ready" if conditions.get("Ready") == "True" else "NotReady"
    return by_node, "ready"


def _programs(tree: cgroups.Tree, node: str) -> list[str]:
    programs, agents = set(), set()
    for pid in tree.members(node):
        with contextlib.suppress(OSError):
            programs.add(Path(f"/proc/{pid}/comm").read_text().strip())
            if Path(f"/proc/{pid}/cmdline").read_bytes().endswith(_AGENT):
                agents.add("bedplate-agent")
    return sorted([*agents, *(_PROGRAMS[name] for name in programs & _PROGRAMS.keys())])
