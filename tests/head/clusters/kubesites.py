"""Trees with a Kubernetes cluster, for tests of who is part of it."""

from __future__ import annotations

from collections.abc import Sequence

from bedplate.head.clusters.membership import LIFECYCLE, MANAGED, Membership
from bedplate.head.entities import SCHEMA
from bedplate.head.objects import Obj
from bedplate.head.session import Session
from bedplate.head.tree import Tree

ETCD, PLANES, WORKERS = "kube-default-etcd", "kube-default-master", "kube-default-worker"


def tree(
    *,
    planes: Sequence[str] = ("node001",),
    workers: Sequence[str] = ("node002", "node003"),
    etcd: Sequence[str] | None = None,
    lifecycle: str = MANAGED,
    ranges: str = "node001=172.29.0.0/24 node002=172.29.1.0/24 node003=172.29.2.0/24",
    nodes: int = 6,
) -> Tree:
    """Six nodes, some of them a cluster; those of the category `gpu` would be workers as well."""
    objects = [
        ("network", Obj("Network", "internalnet", {"base_address": "10.141.0.0", "netmask_bits": 16})),
        ("network", Obj("Network", "kube-default-pod", {"base_address": "172.29.0.0", "netmask_bits": 16})),
        ("category", Obj("Category", "default", {})),
        ("category", Obj("Category", "gpu", {})),
        ("etcd", Obj("EtcdCluster", "kube-default", {})),
    ]
    for number in range(1, nodes + 1):
        values = {"ip": f"10.141.0.{number}", "network": "internalnet", "category": "default"}
        objects.append(("device", Obj("PhysicalNode", f"node{number:03}", values)))
    cluster = {"etcd_cluster": "kube-default", "pod_network": "kube-default-pod", "pod_network_node_mask": 24}
    extras = {**({LIFECYCLE: lifecycle} if lifecycle else {}), **({"pod_ranges": ranges} if ranges else {})}
    objects.append(("kubernetes", Obj("KubeCluster", "default", cluster, extras=extras)))
    host = {"Etcd::Host": Obj("EtcdHostRole", "Etcd::Host", {"etcd_cluster": "kube-default"})}
    for name, members, roles in (
        (ETCD, planes if etcd is None else etcd, host),
        (PLANES, planes, {"kubelet": _kubelet(is_plane=True)}),
        (WORKERS, workers, {"kubelet": _kubelet(is_plane=False)}),
    ):
        values = {"priority": 510 if name == PLANES else 500, "nodes": tuple(members)}
        if name == WORKERS:
            values["categories"] = ("gpu",)
        objects.append(("configurationoverlay", Obj("ConfigurationOverlay", name, values, children={"roles": roles})))
    return Tree(SCHEMA).with_objects((mode, obj.key, obj) for mode, obj in objects)


def _kubelet(*, is_plane: bool) -> Obj:
    values = {"kubernetes_cluster": "default", "control_plane": is_plane, "worker": not is_plane}
    return Obj("KubeletRole", "kubelet", values)


def with_nodes(tree: Tree, overlay: str, *nodes: str) -> Tree:
    """The tree with other nodes in an overlay."""
    session = Session(tree)
    session.set(("configurationoverlay", overlay), "nodes", ",".join(nodes))
    return session.tree


def without(tree: Tree, *devices: str) -> Tree:
    """The tree without devices."""
    return tree.with_objects(("device", name, None) for name in devices)


def joined(*nodes: str) -> dict[str, Membership]:
    return {node: Membership("default") for node in nodes}
