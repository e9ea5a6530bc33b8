"""Who is part of a cluster by kubeadm, and what a commit means for it. Pure.

In: records of nodes that kubeadm made part of a cluster, the tree before and after a commit, who is up. Out: records as
they are from then on, and the sentences by which a commit is refused. A node whose role says that it is no longer part
of its cluster leaves it in steps, and its files stay what they were until it has:

    joining    its Node is made, and it is asked to join
    joined     kubeadm has succeeded on it
    draining   cordoned; its pods are evicted
    returning  it has its role again before it left: it is uncordoned
    resetting  drained, or its cluster is being removed: it is asked to reset itself as soon as it is up
    deleting   reset: its Node and its range of pod addresses go

Only a cluster with the extra `node_lifecycle` set to `managed` is drained, guarded and joined by the head: while the
setup tool builds or removes one it does so itself. While the tool restores or upgrades one it is `paused`: guarded, and
whoever comes or leaves waits for the end.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from bedplate.core import errors
from bedplate.head import resolve
from bedplate.head.entities.kubernetes import KubeCluster
from bedplate.head.entities.roles import KubeletRole
from bedplate.head.render.clusters import control_plane, etcd_members
from bedplate.head.tree import Tree

__all__ = [
    "LIFECYCLE",
    "MANAGED",
    "PAUSED",
    "Membership",
    "State",
    "allocate",
    "cluster_of",
    "is_managed",
    "is_paused",
    "moves",
    "refusals",
]

LIFECYCLE: Final = "node_lifecycle"
MANAGED: Final = "managed"
PAUSED: Final = "paused"
State = Literal["joining", "joined", "draining", "returning", "resetting", "deleting"]
Range = ipaddress.IPv4Network


class Membership(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node's part in a cluster. While it leaves it is what the tree of revision `base` says (0: it is not held), and
    so are the `others`, members of the same etcd cluster, until it is drained. `uid` is that of its Node, `is_asked`
    whether it was asked to reset itself, `text` what it waits for."""

    cluster: str
    state: State = "joined"
    base: int = 0
    others: tuple[str, ...] = ()
    uid: str = ""
    since: str = ""
    is_asked: bool = False
    text: str = ""

    @property
    def is_leaving(self) -> bool:
        return self.state in ("draining", "resetting", "deleting")

    @property
    def held(self) -> bool:
        """Whether the node stays what it was."""
        return self.state in ("draining", "resetting") and self.base > 0


def cluster_of(tree: Tree, node: str) -> str:
    """The cluster that a node's role makes it part of; empty for none."""
    device = tree.find("device", node)
    given = resolve.roles_of(tree, device).get("kubelet") if device is not None else None
    return str(KubeletRole.kubernetes_cluster.value(given.role)) if given is not None else ""


def is_managed(tree: Tree, cluster: str) -> bool:
    """Whether the head joins, guards and drains the nodes of a cluster, now or when it is no longer paused."""
    return _lifecycle(tree, cluster) in (MANAGED, PAUSED)


def is_paused(tree: Tree, cluster: str) -> bool:
    """Whether nobody joins or leaves a cluster for now, as the setup tool restores or upgrades it."""
    return _lifecycle(tree, cluster) == PAUSED


def _lifecycle(tree: Tree, cluster: str) -> str:
    obj = tree.find("kubernetes", cluster)
    return obj.extras.get(LIFECYCLE, "").strip().lower() if obj is not None else ""


def moves(
    records: Mapping[str, Membership], nodes: Iterable[str], before: Tree, after: Tree, base: int, now: str
) -> dict[str, Membership]:
    """The records that a commit changes, of those of `nodes`; `base` is the revision of the tree before."""
    moved = {}
    for node in nodes:
        known = records.get(node)
        if known is None:
            continue
        stays = cluster_of(after, node) == known.cluster
        if stays and known.state == "draining":
            moved[node] = msgspec.structs.replace(known, state="returning", base=0, others=(), since=now, text="")
        elif stays or known.state == "deleting":
            continue
        elif after.find("device", node) is None:
            # Nobody can be asked any more: what is left of it in the cluster goes.
            moved[node] = msgspec.structs.replace(known, state="deleting", base=0, others=(), since=now, text="")
        elif known.state in ("joined", "joining", "returning"):
            is_drained = known.state == "joining" or not is_managed(after, known.cluster)
            moved[node] = msgspec.structs.replace(
                known,
                state="resetting" if is_drained else "draining",
                base=base,
                others=() if is_drained else _fellows(node, known.cluster, before, after),
                since=now,
                text="",
            )
    return moved


def _fellows(node: str, cluster: str, before: Tree, after: Tree) -> tuple[str, ...]:
    """The other members of the etcd that a node leaves together with its cluster: they would remove it at once."""
    etcd = _etcd_of(before, cluster)
    was = [member.node.key for member in etcd_members(before, etcd)] if etcd else []
    now = [member.node.key for member in etcd_members(after, etcd)] if etcd else []
    return tuple(name for name in now if name != node) if node in was and node not in now else ()


def _etcd_of(tree: Tree, cluster: str) -> str:
    obj = tree.find("kubernetes", cluster)
    return str(KubeCluster.etcd_cluster.value(obj)) if obj is not None else ""


def refusals(
    records: Mapping[str, Membership], before: Tree, after: Tree, is_up: Callable[[str], bool]
) -> Sequence[str]:
    """Why a commit must not be: it would destroy a cluster that is in use. Empty for one that may."""
    sentences = []
    for cluster in sorted({known.cluster for known in records.values()}):
        if not is_managed(before, cluster) or not is_managed(after, cluster):
            continue
        own = {node: known for node, known in records.items() if known.cluster == cluster}
        sentences += _moved_while_paused(cluster, before, after)
        sentences += _lost_devices(cluster, own, before, after, is_up)
        sentences += _lost_planes(cluster, own, before, after)
        sentences += _lost_quorum(cluster, own, before, after, is_up)
    return sentences


def _moved_while_paused(cluster: str, before: Tree, after: Tree) -> list[str]:
    """Agents change the members of etcd as soon as they are told, and a restore asks those that it began with."""
    if not (is_paused(before, cluster) and is_paused(after, cluster)):
        return []
    if _parts(before, cluster) == _parts(after, cluster):
        return []
    return [
        f"the Kubernetes cluster {cluster} is being restored or upgraded: change its control plane and its etcd when"
        f" that has ended (an interrupted run: cm-kubernetes-setup --resume or --undo, --cluster {cluster})"
    ]


def _parts(tree: Tree, cluster: str) -> tuple[set[str], set[str]]:
    """The control plane nodes of a cluster, and the members of its etcd."""
    etcd = _etcd_of(tree, cluster)
    members = etcd_members(tree, etcd) if etcd else ()
    return {each.node.key for each in control_plane(tree, cluster)}, {each.node.key for each in members}


def _lost_devices(
    cluster: str, own: Mapping[str, Membership], before: Tree, after: Tree, is_up: Callable[[str], bool]
) -> list[str]:
    sentences = []
    for node, known in own.items():
        if before.find("device", node) is None or after.find("device", node) is not None:
            continue
        if known.state == "deleting" or (known.is_leaving and not is_up(node)):
            continue
        how = f"it is {known.state}; wait until it has left" if known.is_leaving else _HOW.format(node=node)
        sentences.append(f"device[{node}] is part of the Kubernetes cluster {cluster}: {how}")
    return sentences


_HOW = "take it out first (cm-kubernetes-setup --remove-nodes {node}), and remove it when it has left"


def _lost_planes(cluster: str, own: Mapping[str, Membership], before: Tree, after: Tree) -> list[str]:
    joined = [node for node, known in own.items() if known.state in ("joined", "returning")]
    were = [member.node.key for member in control_plane(before, cluster) if member.node.key in joined]
    are = {member.node.key for member in control_plane(after, cluster)}
    if not were or any(node in are for node in were):
        return []
    return [
        f"this would take away the last control plane node of the Kubernetes cluster {cluster} ({', '.join(were)}):"
        f" add another one first, or remove the whole cluster (cm-kubernetes-setup --remove --cluster {cluster})"
    ]


def _lost_quorum(
    cluster: str, own: Mapping[str, Membership], before: Tree, after: Tree, is_up: Callable[[str], bool]
) -> list[str]:
    etcd = _etcd_of(before, cluster)
    if not etcd:
        return []
    were = [member.node.key for member in etcd_members(before, etcd)]
    are = [member.node.key for member in etcd_members(after, etcd)]
    gone, stay = [node for node in were if node not in are], [node for node in were if node in are]
    if not gone:
        return []
    what = f"etcd cluster {etcd} of the Kubernetes cluster {cluster}"
    if not stay:
        # A member that comes with the same commit has none of their data.
        how = "add another one first, and take it away when that one is a member, or remove the whole cluster"
        how = f"{how} (cm-kubernetes-setup --remove --cluster {cluster})"
        return [f"this would take away every member of the {what} that has its data ({', '.join(gone)}): {how}"]
    most = max(1, (len(were) - 1) // 2)
    if len(gone) > most:
        return [f"this would take {len(gone)} of {len(were)} members of the {what} away at once: take {most} at a time"]
    leaving = [node for node, known in own.items() if known.state == "draining" and known.others]
    if leaving:
        return [f"{leaving[0]} is leaving the {what}: take the next member away when it has left"]
    up = [node for node in stay if is_up(node)]
    if 2 * len(up) <= len(stay):
        down = ", ".join(node for node in stay if node not in up)
        return [
            f"without {', '.join(gone)} the {what} would have {len(up)} of {len(stay)} members up, and lose its quorum:"
            f" bring {down} back first"
        ]
    return []


def allocate(pods: Range, mask: int, nodes: Sequence[str], known: Mapping[str, Range]) -> dict[str, Range]:
    """A range of pod addresses for each node; who has one keeps it, and none is given twice. Raises `Invalid`."""
    kept = {node: known[node] for node in nodes if node in known}
    taken = set(kept.values())
    free = (range_ for range_ in pods.subnets(new_prefix=mask) if range_ not in taken)
    allocated = {}
    for node in nodes:
        range_ = kept.get(node) or next(free, None)
        if range_ is None:
            raise errors.Invalid(
                f"the pod network {pods} has no range of {mask} bits left for {node}",
                hint="choose a larger pod network, or more netmask bits for each node",
            )
        allocated[node] = range_
    return allocated
