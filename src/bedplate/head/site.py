"""Revision 1 of a new site: its first tree, and the only commit that nobody has to be allowed to make.

In: the name of the head node and the number of compute nodes; an empty store. Out: edits onto an empty tree (the head
node, node001 and on, one category with its image, the networks, the health checks, an administrator), and their
revision. No front end can reach this: a site is created by `bedplate head init`, before anything serves it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.head import policy
from bedplate.head.entities.nodes import HeadNode
from bedplate.head.ledger import Ledger, Outcome
from bedplate.head.objects import Obj, Value
from bedplate.head.schema.entity import Schema
from bedplate.head.session import Edit
from bedplate.head.tree import Tree
from bedplate.head.validate import apply_edits
from bedplate.head.vault import Vault
from bedplate.store.interface import Store

__all__ = ["ADMIN", "CATEGORY", "HEAD_NODE", "IMAGE", "MOST_NODES", "NETWORK", "NODES", "create_site", "first_tree"]

HEAD_NODE = "basecm10"
NODES = 6
MOST_NODES = 10_000
"""What fits into one revision on etcd."""
NETWORK = "internalnet"
CATEGORY = "default"
IMAGE = "default-image"
ADMIN = "admin"

_RANGE = ipaddress.ip_network("10.141.0.0/16")
_OTHER_NETWORKS = (
    ("kube-default-pod", "172.29.0.0", "pod.cluster.local"),
    ("kube-default-service", "10.150.0.0", "service.cluster.local"),
)
_CHECKS = (
    ("Docker", "Docker answers, and no container is dead"),
    ("KubernetesChildNode", "everything that should run on active nodes is running"),
    ("KubernetesComponentsStatus", "all daemons of the node are healthy"),
    ("KubernetesNodesStatus", "nodes are Ready"),
    ("KubernetesPodsStatus", "every pod is Running, Succeeded or Pending"),
)


def first_tree(name: str = HEAD_NODE, nodes: int = NODES) -> list[Edit]:
    """The edits of revision 1. Raises `Invalid`."""
    if not 0 <= nodes <= MOST_NODES:
        raise errors.Invalid(f"a site cannot start with {nodes} nodes", hint=f"choose 0 to {MOST_NODES}")
    try:
        if not name or HeadNode.hostname.kind.parse(name) != name:
            raise ValueError("it must be a host name")
    except ValueError as wrong:
        raise errors.Invalid(
            f"the head node cannot be called {name!r}: {wrong}", hint="choose another --name"
        ) from None
    objects = [*_networks(), *_groups(), *_devices(name, nodes), *_checks()]
    objects.append(("user", Obj("User", ADMIN, {"role": "admin"})))
    keys = [(mode, obj.key) for mode, obj in objects]
    if len(set(keys)) != len(keys):
        raise errors.Invalid(f"{name!r} is the name of a compute node as well", hint="give the head node another name")
    return [Edit(mode, obj.key, None, obj) for mode, obj in objects]


def _networks() -> Iterator[tuple[str, Obj]]:
    values: dict[str, Value] = {"base_address": str(_RANGE.network_address), "domain_name": "eth.cluster"}
    yield "network", Obj("Network", NETWORK, values)
    for name, base, domain in _OTHER_NETWORKS:
        yield "network", Obj("Network", name, {"base_address": base, "domain_name": domain})


def _groups() -> Iterator[tuple[str, Obj]]:
    yield "softwareimage", Obj("SoftwareImage", IMAGE, {"path": f"/cm/images/{IMAGE}"})
    yield "category", Obj("Category", CATEGORY, {"software_image": IMAGE})


def _devices(name: str, nodes: int) -> Iterator[tuple[str, Obj]]:
    yield "device", Obj("HeadNode", name, {"ip": str(_RANGE.broadcast_address - 1), "network": NETWORK})
    width = max(3, len(str(nodes)))
    for number in range(1, nodes + 1):
        address = str(_RANGE.network_address + number)
        values: dict[str, Value] = {"category": CATEGORY, "ip": address, "network": NETWORK}
        yield "device", Obj("PhysicalNode", f"node{number:0{width}}", values)


def _checks() -> Iterator[tuple[str, Obj]]:
    for name, about in _CHECKS:
        yield "healthcheck", Obj("HealthCheck", name, {"description": about})


async def create_site(
    store: Store,
    schema: Schema,
    vault: Vault,
    edits: Sequence[Edit],
    *,
    author: str,
    message: str,
    clock: Clock | None = None,
) -> None:
    """Write the first tree, which must have an enabled administrator. Raises `AlreadyExists`, `Invalid`."""

    async def decide(tree: Tree) -> Outcome:
        if ledger.revision:
            raise errors.AlreadyExists(
                f"the store already holds a site, at revision {ledger.revision}",
                hint="create the site in another store",
            )
        after, changes = apply_edits(tree, edits, 1, vault.seal)
        policy.require_administrator(after)
        return Outcome(after, changes)

    ledger = Ledger(store, schema, vault, clock=clock)
    await ledger.open()
    await ledger.append(author, message, decide)
    await ledger.close()
