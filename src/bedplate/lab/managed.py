"""A managed lab: a head, and bare nodes whose agents it commands.

In: a `ground.Ground` with its plan. Out: a head that serves on the lab's switch (where nodes and this machine reach
it), a tree with the lab's nodes and addresses, and an agent on every node, enrolled over mutual TLS with a token of its
own that is good once. The head and the agents are started by the commands that people use.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bedplate.api import headapi
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.core.tasks import TaskGroup
from bedplate.lab import (
    bare,
    building,
    catalog,
    images,
    kubeadm_plane,
    kubernetes_node,
    network,
    packages,
    processes,
)
from bedplate.lab.ground import Ground
from bedplate.lab.nodes import Node
from bedplate.lab.plan import Network, NodePlan, Plan

__all__ = [
    "ADDONS",
    "HEAD",
    "IMAGED",
    "PORT",
    "client",
    "head_folder",
    "make_images",
    "shell",
    "start",
    "start_node",
    "states",
    "url",
]

HEAD = "basecm10"
PORT = 8081
_NETWORK = "internalnet"
_CATEGORY = "default"
_TOKEN_S = 600.0
# A lab is for looking: what changed by hand, died or fell silent is found sooner than on machines.
_DRIFT_S, _ALIVE_S, _SILENCE_S = 5, 3, 15
_SETTINGS = f"""\
services = "supervisor"
packages = "folder:{bare.PACKAGES}"
drift = {_DRIFT_S}
alive = {_ALIVE_S}
"""
_PROGRAM = [sys.executable, "-m", "bedplate.apps.bedplate"]
# Once the lab is ready a head that ends is started again, as its unit would; before that its end is an error.
_KEEPER = (
    "sh",
    "-c",
    'while :; do "$@"; code=$?; grep -qs \'"phase": "ready"\' "$0" || exit $code; sleep 1; done',
)


IMAGED = ("coredns", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubeadm")
"""Programs whose images a cluster on the nodes needs; they are taken from the cache when it has them."""
ADDONS = ("local-path-provisioner", "metrics-server", "traefik")
"""Programs of add-ons; a cluster does without those that the cache does not have."""


def make_images(programs: dict[str, Path], cache: Path, version: str, report: Callable[[str], None]) -> None:
    """The images of a cluster that kubeadm makes on the nodes, where the cache has what goes into them."""
    missing = [name for name in (*IMAGED, *packages.NEEDS) if name not in programs]
    if missing:
        report(f"no images of Kubernetes, as the cache has no {', '.join(missing)}: bedplate binaries get them")
        return
    tool = catalog.build_tool(building.Builder(cache, dict(os.environ), report), cache)
    store = images.Store(cache / "images")
    names = kubeadm_plane.image_names(programs, version)
    for recipe in (
        *catalog.base_recipes(tool, programs["coredns"]),
        *catalog.kubeadm_recipes(names, programs, tool),
        *catalog.addon_recipes(programs),
    ):
        store.make(recipe)


def head_folder(folder: Path) -> Path:
    """The head's data folder in that of a lab."""
    return folder / "head"


def url(plan: Plan) -> str:
    return f"https://{plan.registry}:{PORT}"


def shell(folder: Path) -> str:
    """The line that opens a shell on the head."""
    return f"cmsh --data {shlex.quote(str(head_folder(folder)))}"


def client(plan: Plan, folder: Path) -> HeadClient:
    """The head's interface, as its administrator."""
    authority, certificate, key = (str(head_folder(folder) / name) for name in ("ca.crt", "admin.crt", "admin.key"))
    return HeadClient(url(plan), ca_file=authority, cert_file=certificate, key_file=key)


async def states(plan: Plan, folder: Path) -> dict[str, headapi.NodeState]:
    """What the head knows of the nodes."""
    async with client(plan, folder) as head:
        return {state.node: state for state in await head.nodes([node.name for node in plan.nodes])}


async def start(ground: Ground) -> None:
    """Everything, up to agents that have applied the tree."""
    lacking = packages.fill(ground.folder / "packages", packages.recipes(ground.programs))
    for text in lacking:
        ground.report(f"no package {text}: roles that need it cannot be carried out here")
    fetched = [
        program for name, program in packages.FETCHED.items() if any(text.split()[0] == name for text in lacking)
    ]
    if fetched:
        ground.report(f"bedplate binaries get {' '.join(fetched)} brings them into the cache, for the next lab")
    async with TaskGroup() as group:
        group.create_task(ground.make_nodes())
        group.create_task(_make_head(ground))
    ground.report("starting the head")
    async with TaskGroup() as group:
        group.create_task(ground.start_registry())
        group.create_task(_serve(ground))
    async with client(ground.plan, ground.folder) as head:
        revision = await _write_tree(ground.plan, head)
        ground.report("enrolling agents")
        async with TaskGroup() as group:
            for this in ground.plan.nodes:
                group.create_task(_enrol(ground, this, head))

        async def applied() -> str:
            known = await head.nodes([node.name for node in ground.plan.nodes])
            late = [node.node for node in known if node.state != "UP" or node.applied < revision]
            return f"not up: {', '.join(late)}" if late or len(known) < len(ground.nodes) else ""

        await ground.waiter.until("every agent has reported", applied, ground.nodes[ground.plan.nodes[0].name].log)


async def start_node(ground: Ground, this: NodePlan) -> None:
    """Switch a node on again; its agent starts by itself. Returns when the head has heard of it."""
    node = ground.nodes[this.name]
    before = (await states(ground.plan, ground.folder))[this.name].heard
    await node.create()
    # The kernel takes its time with the namespaces of a node that had pods, and the old cables go with them.
    unplug = "; ".join(f"ip link delete {cable} 2>/dev/null" for cable in network.cables(ground.plan, this))
    await ground.switch.run(["sh", "-c", f"{unplug}; true"], f"unplug the old cables of {this.name}")
    await ground.switch.ip(network.cable_batch(ground.plan, this, node.pid), f"connect node {this.name}")
    await ground.connect(this)

    async def heard() -> str:
        known = (await states(ground.plan, ground.folder))[this.name]
        return "" if known.state == "UP" and known.heard > before else f"{known.state}, last heard {known.heard}"

    await ground.waiter.until(f"the agent of {this.name} has reported", heard, node.log)


async def _make_head(ground: Ground) -> None:
    data = head_folder(ground.folder)
    words = ["head", "init", "--data", str(data), "--name", HEAD, "--nodes", "0", "--host", ground.plan.registry]
    await processes.run([*_PROGRAM, *words], "make the head's data folder", timeout_s=ground.waiter.rest_s)


async def _serve(ground: Ground) -> None:
    data = head_folder(ground.folder)
    words = ["head", "serve", "--data", str(data), "--bind", ground.plan.registry, "--port", str(PORT)]
    words += ["--images", str(ground.folder / "images"), "--down-after", str(_SILENCE_S)]
    keeper = [*_KEEPER, str(ground.folder / "lab.json")]
    ground.waiter.daemons.append(ground.switch.start("head", [*keeper, *_PROGRAM, *words]))

    async def answers() -> str:
        async with client(ground.plan, ground.folder) as head:
            await head.whoami()
        return ""

    await ground.waiter.until("the head answers", answers, ground.switch.logs / "head.log")


async def _write_tree(plan: Plan, head: HeadClient) -> int:
    """The lab's nodes and addresses in place of those that a new site has; the revision that has them."""
    subnet = Network(plan.subnet)
    edits = [
        await _changed(
            head, "network", _NETWORK, base_address=str(subnet.network_address), netmask_bits=subnet.prefixlen
        ),
        await _changed(head, "device", HEAD, ip=plan.registry),
    ]
    for node in plan.nodes:
        values = {"category": _CATEGORY, "ip": node.address, "network": _NETWORK}
        edits.append(headapi.Edit(mode="device", key=node.name, object={"type": "PhysicalNode", "values": values}))
    revision = await head.commit(edits, "the nodes of the lab")
    if revision is None:
        raise errors.Terminal("the head took no node of the lab")
    return revision.number


async def _changed(head: HeadClient, mode: str, key: str, **values: Any) -> headapi.Edit:
    present = await head.get(mode, key)
    whole = {"type": present.type, "values": {**present.values, **values}, "children": present.children}
    return headapi.Edit(mode=mode, key=key, base=present.revision, object=whole)


async def _enrol(ground: Ground, this: NodePlan, head: HeadClient) -> None:
    node = ground.nodes[this.name]
    _write_files(node, ground.plan, ground.tree.root_of(this.name))
    token = (await head.create_token(this.name, kind="enrol", lasts_s=_TOKEN_S)).token
    command = [bare.AGENT, "enrol", "--url", url(ground.plan), "--token-file", "-"]
    await node.run(command, f"enrol {this.name}", stdin=token, timeout_s=ground.waiter.rest_s)


def _write_files(node: Node, plan: Plan, group: str) -> None:
    names = "".join(f"{each.address} {each.name}\n" for each in plan.nodes)
    node.write("/etc/hosts", f"127.0.0.1 localhost\n{plan.registry} {HEAD} master\n{names}")
    node.write("/etc/bedplate/agent.toml", _SETTINGS)
    node.write("/etc/default/kubelet", f"KUBELET_LAB_ARGS=--cgroup-root={group}\n")
    node.write("/etc/containerd/certs.d/_default/hosts.toml", kubernetes_node.registry_hosts(plan))
