"""The wires of a lab: one switch, a cable to every node, one to this machine.

In: a plan, the ids of the processes that hold the namespaces. Out: `ip -batch` texts (pure); `in_use`, which reads
the networks this machine has already; and claims on networks, so that two labs that start in the same moment never
choose the same.

The switch is a network namespace of its own with a bridge inside, so the machine's firewall never sees traffic between
nodes, and everything vanishes with the processes in the namespaces. The machine has one interface, `bp-<lab>`, with
routes to the nodes and pods; it forwards nothing: nodes have no way to the internet.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from ipaddress import ip_address

from bedplate.lab import processes
from bedplate.lab.plan import Network, NodePlan, Plan

__all__ = [
    "NODE_SYSCTLS",
    "cable_batch",
    "cables",
    "claim",
    "in_use",
    "machine_batch",
    "node_batch",
    "route_batch",
    "switch_batch",
]

NODE_SYSCTLS = {
    "net.ipv4.ip_forward": "1",
    "net.ipv4.conf.all.rp_filter": "0",
    "net.ipv4.conf.default.rp_filter": "0",
    # Answers of a Service between two pods on one bridge must pass the rules that rewrote the question.
    "net.bridge.bridge-nf-call-iptables": "1",
}


async def in_use() -> list[Network]:
    """The networks this machine has routes to, apart from the default."""
    text = await processes.run(["ip", "-json", "-4", "route", "show", "table", "all"], "read the routes")
    networks = []
    for row in json.loads(text or "[]"):
        target = row.get("dst", "default")
        if target != "default" and row.get("table") != "local":
            networks.append(Network(target, strict=False))
    return networks


def claim(network: Network) -> socket.socket | None:
    """Hold the network until the claim is closed or this process ends; None when another process holds it.

    A claim is a name in the kernel's list of local sockets: taken by one process at a time, gone with it, nothing to
    clean up, whichever folders the labs use.
    """
    name = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # A leading zero byte makes the name abstract: no file is made.
        name.bind(f"\0bedplate-lab-network-{network}")
    except OSError:
        name.close()
        return None
    return name


def machine_batch(plan: Plan, switch_pid: int) -> str:
    """This machine's cable into the switch."""
    return _lines(
        f"link add {plan.interface} type veth peer name machine netns {switch_pid}",
        f"address add {plan.gateway}/{plan.prefix_length} dev {plan.interface}",
        f"link set {plan.interface} up",
    )


def switch_batch(plan: Plan, node_pids: Mapping[str, int]) -> str:
    """Inside the switch: the bridge, a bridge for each further link, and the cables to the nodes."""
    lines = [
        "link set lo up",
        f"link add br0 address {_hardware_address(plan.registry)} type bridge",
        f"address add {plan.registry}/{plan.prefix_length} dev br0",
        "link set br0 up",
        "link set machine master br0 up",
    ]
    for number, _ in enumerate(plan.links):
        lines += [f"link add br{number + 1} type bridge", f"link set br{number + 1} up"]
    return _lines(*lines) + "".join(cable_batch(plan, node, node_pids[node.name]) for node in plan.nodes)


def _hardware_address(address: str) -> str:
    """Of the bridge. One that is not given its own takes the lowest of its cables, so another one whenever a node is
    switched off or on: the other nodes would send to the former one, and not reach head and registry, for half a
    minute."""
    return "02:00:" + ip_address(address).packed[-4:].hex(":")


def cables(plan: Plan, node: NodePlan) -> list[str]:
    """The names of a node's cables inside the switch."""
    index = plan.nodes.index(node)
    return [f"n{index}-{number}" for number in range(1 + len(plan.links))]


def cable_batch(plan: Plan, node: NodePlan, pid: int) -> str:
    """Inside the switch: the cables to one node."""
    lines = []
    for number, (cable, inner) in enumerate(zip(cables(plan, node), ("eth0", *plan.links), strict=True)):
        lines += [f"link add {cable} type veth peer name {inner} netns {pid}", f"link set {cable} master br{number} up"]
    return _lines(*lines)


def node_batch(plan: Plan, node: NodePlan) -> str:
    """Inside a node: its address on the cable, further links up but without one."""
    return _lines(
        "link set lo up",
        f"address add {node.address}/{plan.prefix_length} dev eth0",
        "link set eth0 up",
        f"route add default via {plan.gateway}",
        *(f"link set {link} up" for link in plan.links),
    )


def route_batch(pod_cidrs: Mapping[str, str], plan: Plan, *, seen_from: str = "", device: str = "eth0") -> str:
    """Routes to the pods of every node but the one they are seen from."""
    addresses = {node.name: node.address for node in plan.nodes}
    return _lines(
        *(
            f"route replace {cidr} via {addresses[name]} dev {device}"
            for name, cidr in pod_cidrs.items()
            if name != seen_from
        )
    )


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)
