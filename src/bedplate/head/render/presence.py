"""Whose packages are there already: a cluster with the extra parameter `packages` set to `present` installs none.

In: a tree and a resolved node. Out: the roles whose packages are left out, by name: those that make the node part of
that cluster, and whatever an overlay of the cluster brings. Other roles of the node keep theirs. Pure.
"""

from __future__ import annotations

from typing import Final

from bedplate.head.entities.roles import EtcdHostRole, KubeletRole
from bedplate.head.resolve import Resolved, RoleGiven
from bedplate.head.tree import Tree

__all__ = ["PACKAGES", "PRESENT", "provided"]

PACKAGES: Final = "packages"
PRESENT: Final = "present"
_ROLES: Final = ("Etcd::Host", "Kubernetes::ApiServerProxy", "generic::containerd", "kubelet")


def provided(tree: Tree, resolved: Resolved) -> frozenset[str]:
    """The roles of a node whose packages somebody else provides."""
    name = _cluster(tree, resolved)
    cluster = tree.find("kubernetes", name) if name else None
    if cluster is None or cluster.extras.get(PACKAGES, "").strip().lower() != PRESENT:
        return frozenset()
    return frozenset(role for role, given in resolved.roles.items() if role in _ROLES or _is_of(name, given))


def _cluster(tree: Tree, resolved: Resolved) -> str:
    """The Kubernetes cluster of a node: that of its kubelet, else the one that its etcd is for."""
    kubelet, etcd = resolved.roles.get("kubelet"), resolved.roles.get("Etcd::Host")
    if kubelet is not None:
        return str(KubeletRole.kubernetes_cluster.value(kubelet.role) or "")
    if etcd is None:
        return ""
    owners = tree.referrers("etcd", str(EtcdHostRole.etcd_cluster.value(etcd.role) or ""), "kubernetes")
    return min(owners, default="")


def _is_of(cluster: str, given: RoleGiven) -> bool:
    return given.source.mode == "configurationoverlay" and given.source.key.startswith(f"kube-{cluster}-")
