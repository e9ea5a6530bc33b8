"""Who is in a cluster: the control plane nodes of a Kubernetes cluster and the members of an etcd cluster.

In: a tree and a cluster's name. Out: nodes with the role that makes them members, in natural order; kept with the tree,
because every node of the cluster asks for the same. The cost is that of the nodes that are offered such a role.
"""

from __future__ import annotations

from typing import NamedTuple

from bedplate.head import resolve
from bedplate.head.affected import members
from bedplate.head.entities.roles import EtcdHostRole, KubeletRole
from bedplate.head.objects import Obj
from bedplate.head.schema.ranges import natural
from bedplate.head.tree import Tree

__all__ = ["Member", "address", "control_plane", "etcd_members", "kubelets"]

_GIVERS = ("device", "category", "configurationoverlay")


class Member(NamedTuple):
    """A node and its role in the cluster."""

    node: Obj
    role: Obj


def address(node: Obj) -> str:
    """Where other nodes reach it: its address, its name while it has none."""
    return str(node.values.get("ip", "")) or node.key


def control_plane(tree: Tree, cluster: str) -> tuple[Member, ...]:
    """The nodes that run a cluster's API servers."""
    place = ("control plane", cluster)
    if place not in tree.derived:
        offered = _offered(tree, "kubernetes", cluster, "kubelet", "kubernetes_cluster")
        tree.derived[place] = tuple(
            member
            for member in offered
            if KubeletRole.control_plane.value(member.role)
            and KubeletRole.kubernetes_cluster.value(member.role) == cluster
        )
    hosts: tuple[Member, ...] = tree.derived[place]
    return hosts


def etcd_members(tree: Tree, cluster: str) -> tuple[Member, ...]:
    """The nodes that run the members of an etcd cluster."""
    place = ("etcd members", cluster)
    if place not in tree.derived:
        offered = _offered(tree, "etcd", cluster, "Etcd::Host", "etcd_cluster")
        tree.derived[place] = tuple(m for m in offered if EtcdHostRole.etcd_cluster.value(m.role) == cluster)
    hosts: tuple[Member, ...] = tree.derived[place]
    return hosts


def kubelets(tree: Tree, cluster: str) -> tuple[Member, ...]:
    """All nodes of a cluster, workers as well: as many as it has."""
    place = ("kubelets", cluster)
    if place not in tree.derived:
        offered = _offered(tree, "kubernetes", cluster, "kubelet", "kubernetes_cluster", has_workers=True)
        tree.derived[place] = tuple(m for m in offered if KubeletRole.kubernetes_cluster.value(m.role) == cluster)
    hosts: tuple[Member, ...] = tree.derived[place]
    return hosts


def _offered(tree: Tree, mode: str, cluster: str, role: str, field: str, *, has_workers: bool = False) -> list[Member]:
    """The nodes that are offered the role for that cluster by somebody, with the role they really hold."""
    way = f"roles[{role}].{field}"
    names: set[str] = set()
    for by in _GIVERS:
        for key, ways in tree.referrers(mode, cluster, by).items():
            giver = tree.find(by, key)
            if giver is not None and way in ways and (has_workers or _counts(giver.below("roles")[role])):
                names |= _reached(tree, by, giver)
    hosts = []
    for name in sorted(names, key=natural):
        node = tree.get(("device", name))
        given = resolve.roles_of(tree, node).get(role)
        if given is not None:
            hosts.append(Member(node, given.role))
    return hosts


def _counts(role: Obj) -> bool:
    """Whether a node with that role is one of those asked for; workers, of which there are many, are not."""
    return role.type != "KubeletRole" or bool(KubeletRole.control_plane.value(role))


def _reached(tree: Tree, mode: str, giver: Obj) -> set[str]:
    if mode == "device":
        return {giver.key}
    return set(tree.referrers("category", giver.key, "device")) if mode == "category" else members(tree, giver)
