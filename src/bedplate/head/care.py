"""Who may be asked to take care of a running cluster, and who should be.

In: a tree, a cluster, a request. Out: what each node is asked for, or one sentence why not: certificates and API
servers are those of control plane nodes, data is that of the members of the cluster's etcd.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bedplate.api.headapi import Care
from bedplate.core import errors
from bedplate.head.entities.kubernetes import KubeCluster
from bedplate.head.render.clusters import control_plane, etcd_members
from bedplate.head.tree import Tree

__all__ = ["members", "planes", "work"]

_OF_PLANES: Final = ("renew", "halt", "go-on")


def planes(tree: Tree, cluster: str) -> list[str]:
    """The control plane nodes of a cluster. Raises `NotFound`."""
    tree.get(("kubernetes", cluster))
    return [member.node.key for member in control_plane(tree, cluster)]


def members(tree: Tree, cluster: str) -> list[str]:
    """The nodes that run the etcd of a cluster. Raises `NotFound`."""
    obj = tree.get(("kubernetes", cluster))
    return [member.node.key for member in etcd_members(tree, str(KubeCluster.etcd_cluster.value(obj)))]


def work(tree: Tree, nodes: Sequence[str], request: Care) -> Mapping[str, Mapping[str, object]]:
    """What each node is asked for. Raises `NotFound`, `Invalid`."""
    for node in nodes:
        tree.get(("device", node))
    fit, what = _fit(tree, request)
    others = [node for node in nodes if fit is not None and node not in fit]
    if others:
        raise errors.Invalid(
            f"{others[0]} is not a {what} of the cluster {request.cluster}",
            hint=f"{what}s: {', '.join(fit or ()) or 'none'}",
        )
    if request.action == "snapshot" and len(nodes) != 1:
        raise errors.Invalid("one member gives a snapshot of all", hint="name one node")
    if (request.action in ("snapshot", "fetch")) != (request.snapshot is not None):
        raise errors.Invalid(
            f"{request.action}: the name of a snapshot is for snapshot and fetch, which need one",
            hint="give a snapshot with these actions alone",
        )
    own = {"care": request.action, "cluster": request.cluster, "snapshot": request.snapshot or ""}
    return dict.fromkeys(nodes, own)


def _fit(tree: Tree, request: Care) -> tuple[list[str] | None, str]:
    """The nodes that a request can be for, None for all, and what they are."""
    if request.action in _OF_PLANES:
        return planes(tree, request.cluster), "control plane node"
    if request.action == "inspect":
        tree.get(("kubernetes", request.cluster))
        return None, "node"
    return members(tree, request.cluster), "member of etcd"
