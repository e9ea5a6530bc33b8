"""A lab while it is being made: the things every control plane needs, in one place.

In: a plan and the programs. Out: namespaces and wires (`make_nodes`), for Kubernetes also a registry and a containerd
on every node, and `kubectl`. What runs on top is up to `process_plane`, `kubeadm_plane` or `managed`; the order of it
all is in `cluster`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bedplate.core.tasks import TaskGroup
from bedplate.lab import catalog, cgroups, images, kubernetes_node, network, processes
from bedplate.lab.nodes import INSIDE, SWITCH, Node, Waiter
from bedplate.lab.plan import NodePlan, Plan

__all__ = ["PRELOADED", "Ground"]

# What every node gets before its kubelet starts; anything else is pulled from the lab's registry when asked for.
PRELOADED = [catalog.PAUSE_IMAGE, catalog.TOOL_IMAGE, catalog.BUSYBOX_IMAGE]


class Ground:
    """Everything of a lab but its control plane: networks, nodes, registry, add-ons, and the waits for each of them."""

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        programs: Mapping[str, Path],
        waiter: Waiter,
        report: Callable[[str], None],
        *,
        image_cache: Path,
    ) -> None:
        self.plan = plan
        self.folder = folder
        self.programs = programs
        self.waiter = waiter
        self.report = report
        self.tree = cgroups.Tree(plan.name)
        self.nodes = {node.name: Node(node.name, folder, self.tree, is_bare=plan.is_managed) for node in plan.nodes}
        self.switch = Node(SWITCH, folder, self.tree, has_mounts=False)
        self._image_cache = image_cache

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "admin.kubeconfig"

    @property
    def first(self) -> Node:
        """The node with the control plane."""
        return self.nodes[self.plan.nodes[0].name]

    async def make_ground(self) -> None:
        """What Kubernetes needs: nodes, programs, a registry, files."""
        self._place_programs()
        await self.make_nodes()
        await self.start_registry()
        for node in self.nodes.values():
            kubernetes_node.prepare(node, self.plan)

    async def make_nodes(self) -> None:
        """Control groups, namespaces, wires."""
        self.tree.create([SWITCH, *self.nodes])
        async with TaskGroup() as group:
            for node in (self.switch, *self.nodes.values()):
                group.create_task(node.create())
        await self._wire()

    def _place_programs(self) -> None:
        # Linked into the lab's folder, which every node sees, wherever the cache is.
        target = self.folder / "bin"
        target.mkdir(exist_ok=True)
        for name, source in self.programs.items():
            try:
                os.link(source, target / name)
            except OSError:
                shutil.copy2(source, target / name)

    async def _wire(self) -> None:
        plan = self.plan
        pids = {name: node.pid for name, node in self.nodes.items()}
        batch = network.machine_batch(plan, self.switch.pid)
        await processes.run(["ip", "-batch", "-"], "connect this machine to the lab", stdin=batch)
        await self.switch.ip(network.switch_batch(plan, pids), "make the lab's switch")
        # Without this module the kernel does not know the setting for bridges; where it is built in, nothing happens.
        await processes.run(["sh", "-c", "modprobe -q br_netfilter 2>/dev/null || true"], "load br_netfilter")
        for this in plan.nodes:
            await self.connect(this)

    async def connect(self, this: NodePlan) -> None:
        """The node's end of its cables, once the switch has them."""
        settings = [f"{key}={value}" for key, value in network.NODE_SYSCTLS.items()]
        node = self.nodes[this.name]
        await node.ip(network.node_batch(self.plan, this), f"connect node {this.name}")
        await node.run(["sysctl", "-q", "-e", "-w", *settings], f"set kernel parameters of node {this.name}")

    async def start_registry(self) -> None:
        """Serve the images of the cache, and those that are loaded into the lab later, on the lab's switch."""
        own = self.folder / "images"
        images.Store(own)
        port = str(kubernetes_node.REGISTRY_PORT)
        command = [sys.executable, "-m", "bedplate.lab.registry", self.plan.registry, port, str(own)]
        self.waiter.daemons.append(self.switch.start("registry", [*command, str(self._image_cache)]))

        async def answers() -> str:
            try:
                _, writer = await asyncio.open_connection(self.plan.registry, kubernetes_node.REGISTRY_PORT)
            except OSError as err:
                return str(err)
            writer.close()
            await writer.wait_closed()
            return ""

        # Nodes pull as soon as their containerd runs, and a pull is tried once.
        await self.waiter.until("the lab's registry answers", answers, self.switch.logs / "registry.log")

    async def start_containerd(self, preload: list[str]) -> None:
        """containerd on every node, with the images every node needs."""
        async with TaskGroup() as group:
            for node in self.nodes.values():
                self.waiter.daemons.append(kubernetes_node.start_containerd(node))
                group.create_task(self.preload(node, preload))

    async def preload(self, node: Node, names: list[str]) -> None:
        """Wait for a node's containerd and bring it these images."""

        async def answers() -> str:
            await node.run(["ctr", "version"], "reach containerd", timeout_s=10)
            return ""

        await self.waiter.until(f"containerd on {node.name} answers", answers, node.logs / "containerd.log")
        for name in names:
            command = ["ctr", "-n", "k8s.io", "images", "pull", "--hosts-dir", "/etc/containerd/certs.d", name]
            await node.run(command, f"bring image {name} to node {node.name}", timeout_s=120)

    async def kubectl(self, *args: str, stdin: str = "", timeout_s: float = 30.0) -> str:
        """kubectl as the administrator, from this machine."""
        command = [str(self.programs["kubectl"]), f"--kubeconfig={self.kubeconfig}", "--request-timeout=10s", *args]
        return await processes.run(command, f"run kubectl {args[0]}", stdin=stdin, timeout_s=timeout_s)

    async def api_is_ready(self) -> str:
        """A probe: the API server says it is ready."""
        answer = await self.kubectl("get", "--raw=/readyz")
        return "" if answer.strip() == "ok" else answer

    async def apply(self, objects: list[dict[str, Any]]) -> None:
        """Apply manifests, as soon as the API server takes them."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})

        async def accepted() -> str:
            # A server that has just become ready may not have made its own namespaces yet.
            await self.kubectl("apply", "--server-side", "-f", "-", stdin=text)
            return ""

        await self.waiter.until("add-ons are accepted", accepted, self.first.logs / "kube-apiserver.log")

    async def known_nodes(self) -> list[dict[str, Any]]:
        """The Nodes of the API server."""
        items: list[dict[str, Any]] = json.loads(await self.kubectl("get", "nodes", "-o", "json"))["items"]
        return items

    async def pod_ranges(self) -> dict[str, str]:
        """Each Node's range of pod addresses; empty where it has none yet."""
        return {node["metadata"]["name"]: node["spec"].get("podCIDR", "") for node in await self.known_nodes()}

    async def connect_pods(self) -> None:
        """Give every node its pod network, once the controller manager has given it a range.

        Where the lab does not make the network, nodes are only waited for.
        """
        ranges: dict[str, str] = {}

        async def have_ranges() -> str:
            ranges.update(await self.pod_ranges())
            missing = [name for name in self.nodes if not ranges.get(name)]
            return f"no pod range for {', '.join(missing)}" if missing else ""

        await self.waiter.until("every node has registered", have_ranges, self.first.logs / "kubelet.log")
        if not self.plan.has_network:
            return
        for name in self.nodes:
            await self.connect_pods_of(name, ranges)
        routes = network.route_batch(ranges, self.plan, device=self.plan.interface)
        await processes.run(["ip", "-batch", "-"], "route to the pods from this machine", stdin=routes)

    async def connect_pods_of(self, name: str, ranges: Mapping[str, str]) -> None:
        """One node's pod network, and its routes to those of the others."""
        node = self.nodes[name]
        node.write("/etc/cni/net.d/10-lab.conflist", kubernetes_node.network_config(ranges[name]))
        routes = network.route_batch(ranges, self.plan, seen_from=name)
        await node.ip(routes, f"route to the pods of other nodes from {name}")

    async def until_nodes_ready(self) -> None:
        async def ready() -> str:
            items = await self.known_nodes()
            lacking = [item["metadata"]["name"] for item in items if not _is_ready(item)]
            return f"not Ready: {', '.join(lacking)}" if lacking or len(items) < len(self.nodes) else ""

        await self.waiter.until("every node is Ready", ready, self.first.logs / "kubelet.log")

    async def until_dns_answers(self) -> None:
        """Cluster DNS answers on its Service address from every node: that needs pods, routes and kube-proxy."""
        for node in self.nodes.values():

            async def answers(node: Node = node) -> str:
                name = "kubernetes.default.svc.cluster.local"
                command = [f"{INSIDE}/bin/tool", "lookup", name, self.plan.dns]
                return "" if await node.run(command, "ask cluster DNS", timeout_s=10) else "empty answer"

            await self.waiter.until(f"cluster DNS answers on {node.name}", answers, self.first.logs / "kubelet.log")


def _is_ready(item: dict[str, Any]) -> bool:
    conditions = item.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
