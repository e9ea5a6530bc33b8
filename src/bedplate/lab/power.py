"""The power button of a lab's node: off without warning, on again with its disk as it was.

In: a lab and the name of a node, not of the first one, which carries the control plane (in a managed lab none does).
Out: a node without any
process, and with that without namespaces, memory and cables; or one that has come back as after a power failure. The
API server is not told: what a cluster does about a node that falls silent is what one wants to see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from bedplate.core import clock, errors
from bedplate.lab import binaries, cgroups, kubeadm_plane, kubernetes_node, managed, network, process_plane, state
from bedplate.lab.ground import Ground
from bedplate.lab.nodes import Waiter
from bedplate.lab.plan import NodePlan, Plan

__all__ = ["start_node", "stop_node"]


def stop_node(name: str, node: str, shelf: state.Shelf) -> None:
    """Switch it off. A node that is off stays off."""
    plan = shelf.need(name).plan
    _find(plan, node)
    with shelf.lock(name, wait_s=10):
        cgroups.Tree(name).kill(below=node)


async def start_node(
    name: str, node: str, shelf: state.Shelf, report: Callable[[str], None], timeout_s: float = 120.0
) -> None:
    """Switch it on, and return when the API server says that it is Ready, or the head that its agent lives."""
    plan, folder = shelf.need(name).plan, shelf.folder(name)
    this = _find(plan, node)
    if cgroups.Tree(name).members(node):
        raise errors.AlreadyExists(f"node {node!r} is running", hint=f"bedplate lab stop-node --name {name} {node}")
    with shelf.lock(name, wait_s=10):
        programs = {"kubectl": folder / "bin" / "kubectl"}
        ground = Ground(plan, folder, programs, Waiter(timeout_s), report, image_cache=binaries.cache_folder())
        try:
            await (managed.start_node(ground, this) if plan.is_managed else _start(ground, this))
        except BaseException:
            await asyncio.to_thread(ground.tree.kill, below=node)
            raise


async def _start(ground: Ground, this: NodePlan) -> None:
    node = ground.nodes[this.name]
    ground.report(f"starting {this.name}")
    started = datetime.now(UTC).replace(microsecond=0)
    await node.create()
    await ground.switch.ip(network.cable_batch(ground.plan, this, node.pid), f"connect node {this.name}")
    await ground.connect(this)
    kubernetes_node.prepare(node, ground.plan)
    if ground.plan.has_network:
        await _connect_pods(ground, this)
    ground.waiter.daemons.append(kubernetes_node.start_containerd(node))
    await ground.preload(node, [])
    if ground.plan.control_plane == "kubeadm":
        await kubeadm_plane.start_node(ground, this)
    else:
        process_plane.start_node(ground, this)

    async def ready() -> str:
        # Right after a short stop the server still believes the old word.
        path = "{range .status.conditions[?(@.type=='Ready')]}{.status} {.lastHeartbeatTime}{end}"
        answer = await ground.kubectl("get", "node", this.name, "-o", f"jsonpath={path}")
        status, _, heard = answer.partition(" ")
        return "" if status == "True" and clock.parse_rfc3339(heard) >= started else f"Ready is {answer}"

    await ground.waiter.until(f"{this.name} is Ready", ready, node.logs / "kubelet.log")


async def _connect_pods(ground: Ground, this: NodePlan) -> None:
    ranges = await ground.pod_ranges()
    if not ranges.get(this.name):
        raise errors.NotFound(f"the cluster has no node {this.name!r} any more", hint="take the lab down and up again")
    await ground.connect_pods_of(this.name, ranges)


def _find(plan: Plan, name: str) -> NodePlan:
    node = plan.node(name)
    if node == plan.nodes[0] and not plan.is_managed:
        raise errors.Invalid(
            f"{name!r} carries the control plane of lab {plan.name!r}: only other nodes can be stopped"
        )
    return node
