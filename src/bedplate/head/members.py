"""Who may be asked to run kubeadm, and for what.

In: a tree, nodes and a request. Out: what each node is asked for, or one sentence why not: the node's role must say
that it belongs to the cluster, and a cluster begins on one control plane node. Whoever leaves a cluster may have lost
its role before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bedplate.api.headapi import Kubeadm
from bedplate.core import errors
from bedplate.head import resolve
from bedplate.head.entities.roles import KubeletRole
from bedplate.head.tree import Tree

__all__ = ["work"]


def work(tree: Tree, nodes: Sequence[str], request: Kubeadm) -> Mapping[str, Mapping[str, object]]:
    """What each node is asked for. Raises `NotFound`, `Invalid`."""
    if request.action == "init" and len(nodes) != 1:
        raise errors.Invalid("a cluster begins on one node", hint="name one control plane node, and join the others")
    if request.action == "upgrade-apply" and len(nodes) != 1:
        raise errors.Invalid("an upgrade is applied on one node", hint="name one control plane node; others follow")
    is_upgrade = request.action.startswith("upgrade-")
    if is_upgrade != bool(request.version):
        raise errors.Invalid("an upgrade, and nothing else, has a version", hint="as 1.35.4")
    for node in nodes:
        device = tree.get(("device", node))
        if request.action == "reset":
            continue
        tree.get(("kubernetes", request.cluster))
        given = resolve.roles_of(tree, device).get("kubelet")
        if given is None or KubeletRole.kubernetes_cluster.value(given.role) != request.cluster:
            raise errors.Invalid(
                f"{node} has no role kubelet for the cluster {request.cluster}",
                hint="assign it to the node, its category or an overlay, and commit",
            )
        if request.action in ("init", "upgrade-apply") and not KubeletRole.control_plane.value(given.role):
            raise errors.Invalid(f"{node} is not a control plane node of {request.cluster}", hint="name one that is")
    work = {"action": request.action, "cluster": request.cluster}
    return {node: {**work, "version": request.version} if is_upgrade else dict(work) for node in nodes}
