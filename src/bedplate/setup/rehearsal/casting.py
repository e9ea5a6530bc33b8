"""Which lab stands for a cluster whose upgrade is rehearsed. Pure.

In: the nodes of the cluster with what they do, the settings that an upgrade depends on, how many workers the lab may
have. Out: a `Cast`: the nodes of the lab, each with the node that it stands for, the answers that deploy the same
cluster there, and what the lab does not show. A lab has up to three control plane nodes and three members of etcd, and
a node of it does all that its original does: one that is control plane, worker and member of etcd is so in the lab.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bedplate.head import Tree
from bedplate.head import care as cared
from bedplate.head.entities.kubernetes import KubeCluster
from bedplate.head.entities.roles import KubeletRole
from bedplate.head.render.clusters import kubelets
from bedplate.head.render.kubeadm import pod_ranges
from bedplate.head.schema.ranges import natural
from bedplate.setup.answers import document

__all__ = ["PLANES", "WORKERS", "Cast", "Original", "Part", "Traits", "cast", "lab_name", "of_tree"]

PLANES = 3
"""Control plane nodes, and members of etcd, of a lab at most: more of them are upgraded as the third is."""
WORKERS = 2
"""Workers of a lab, unless somebody asks for more: two have a first and a next batch."""
_LONGEST_NAME = 30
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Original:
    """A node of the cluster, and what it does."""

    name: str
    is_plane: bool = False
    is_worker: bool = False
    is_etcd: bool = False

    @property
    def what(self) -> str:
        words = {"control plane": self.is_plane, "worker": self.is_worker, "etcd": self.is_etcd}
        return ", ".join(word for word, is_so in words.items() if is_so)


@dataclass(frozen=True, slots=True)
class Traits:
    """What an upgrade depends on, besides the nodes. `has_bridge`: the pod network is that of the tool."""

    cluster: str
    version: str
    port: int
    node_mask: int
    has_bridge: bool
    has_flags: bool
    """Whether static pods have flags by `options` of the role `kubelet`."""
    proxy_mode: str
    """Of kube-proxy; empty for a cluster without."""
    is_mixed: bool = False
    """Whether not all nodes have the version, as after an upgrade that was given up."""


@dataclass(frozen=True, slots=True)
class Part:
    """A node of the lab, and the one that it stands for."""

    name: str
    original: Original


@dataclass(frozen=True, slots=True)
class Cast:
    """The lab of a rehearsal."""

    lab: str
    parts: tuple[Part, ...]
    answers: dict[str, Any]
    proxy_mode: str
    lines: tuple[str, ...]
    """Who stands for whom, and what the lab does not show, for people."""

    @property
    def planes(self) -> int:
        return sum(part.original.is_plane for part in self.parts)


def of_tree(
    tree: Tree, cluster: str, version: str, proxy_mode: str, *, is_mixed: bool = False
) -> tuple[list[Original], Traits]:
    """The nodes of a cluster in natural order, and its traits. Raises `NotFound`."""
    obj = tree.get(("kubernetes", cluster))
    etcd = set(cared.members(tree, cluster))
    members = {member.node.key: member.role for member in kubelets(tree, cluster)}
    originals = [
        Original(
            name,
            is_plane=name in members and bool(KubeletRole.control_plane.value(members[name])),
            is_worker=name in members and bool(KubeletRole.worker.value(members[name])),
            is_etcd=name in etcd,
        )
        for name in sorted({*members, *etcd}, key=natural)
    ]
    traits = Traits(
        cluster=cluster,
        version=version,
        port=int(str(KubeCluster.kubernetes_api_server_proxy_port.value(obj))),
        node_mask=int(str(KubeCluster.pod_network_node_mask.value(obj))),
        has_bridge=bool(pod_ranges(obj)),
        has_flags=any(role.below("options") for role in members.values()),
        proxy_mode=proxy_mode,
        is_mixed=is_mixed,
    )
    return originals, traits


def lab_name(cluster: str) -> str:
    """The name of the lab of a cluster's rehearsal: always the same, so that what a killed one left is found."""
    return f"rehearsal-{cluster}"[:_LONGEST_NAME].rstrip("-")


def cast(originals: Sequence[Original], traits: Traits, workers: int = WORKERS) -> Cast:
    """The lab for a cluster; its nodes have the order of their originals, which is that of the upgrade."""
    chosen = _chosen(originals, workers)
    ordered = sorted(chosen, key=lambda node: (not node.is_plane, not node.is_worker))
    parts = tuple(Part(f"node{number:03}", original) for number, original in enumerate(ordered, 1))
    lines = [*_roles(parts, originals), *_differences(originals, traits), *_fewer(parts)]
    answers = _answers(parts, traits, are_planes_workers=not _is_divided(originals))
    return Cast(lab_name(traits.cluster), parts, answers, traits.proxy_mode, tuple(lines))


def _is_divided(originals: Iterable[Original]) -> bool:
    """Whether only some control plane nodes run pods, which no answers of a deployment can say."""
    return len({node.is_worker for node in originals if node.is_plane}) > 1


def _chosen(originals: Sequence[Original], workers: int) -> list[Original]:
    """In the order of the originals. Members of etcd that are chosen anyway come first, then workers, then others."""
    chosen = {node.name for node in [node for node in originals if node.is_plane][:PLANES]}
    members = sorted(
        (node for node in originals if node.is_etcd),
        key=lambda node: (node.name not in chosen, node.is_plane, not node.is_worker),
    )
    chosen |= {node.name for node in members[:PLANES]}
    pure = [node for node in originals if node.is_worker and not node.is_plane]
    present = sum(node.name in chosen for node in pure)
    chosen |= {node.name for node in [node for node in pure if node.name not in chosen][: max(0, workers - present)]}
    return [node for node in originals if node.name in chosen]


def _answers(parts: Sequence[Part], traits: Traits, *, are_planes_workers: bool) -> dict[str, Any]:
    answers = document.defaults()
    places = {
        "masters": [part.name for part in parts if part.original.is_plane],
        "workers": [
            part.name
            for part in parts
            if part.original.is_worker and (are_planes_workers or not part.original.is_plane)
        ],
        "etcd": _members(parts),
    }
    values = {
        "name": traits.cluster,
        "version": traits.version,
        "proxy.port": traits.port,
        "networks.pod_node_mask": traits.node_mask,
        # The first process of a lab's nodes is not systemd, and what this machine reaches does not matter there.
        "cgroup_driver": "cgroupfs",
        "skip.dns_check": True,
        "skip.package_manager_check": True,
        **{f"nodes.{role}.nodes": names for role, names in places.items()},
    }
    for path, value in values.items():
        answers = document.with_value(answers, f"kubernetes.{path}", value)
    return answers


def _members(parts: Sequence[Part]) -> list[str]:
    """Those of the lab's etcd: an odd number, as a deployment demands, also where the cluster has lost one."""
    names = [part.name for part in parts if part.original.is_etcd]
    return names[: len(names) - (len(names) + 1) % 2]


def _fewer(parts: Sequence[Part]) -> Iterable[str]:
    count, present = sum(part.original.is_etcd for part in parts), len(_members(parts))
    if present < count:
        yield f"Not rehearsed: etcd of the lab has {present} member{'s' * (present != 1)} in place of {count}"


def _roles(parts: Sequence[Part], originals: Sequence[Original]) -> Iterable[str]:
    for part in parts:
        yield f"{part.name} stands for {part.original.name}: {part.original.what}"
    present = {part.original.name for part in parts}
    left = [node.name for node in originals if node.name not in present]
    if left:
        more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
        yield f"Not in the lab: {', '.join(left[:_SHOWN])}{more}; others like them are"


def _differences(originals: Sequence[Original], traits: Traits) -> Iterable[str]:
    """What the rehearsal cannot show."""
    if traits.is_mixed:
        yield f"Not rehearsed: nodes of the cluster have several versions, those of the lab {traits.version} at first"
    if not traits.has_bridge:
        yield "Not rehearsed: the network plugin, which an upgrade leaves alone; the lab has the bridge of the tool"
    if not traits.proxy_mode:
        yield "Not rehearsed: the cluster has no kube-proxy of kubeadm, the lab has one"
    if traits.has_flags:
        yield "Not rehearsed: flags of static pods (options of the role kubelet), which may name files of the site"
    if _is_divided(originals):
        yield "Not rehearsed: only some control plane nodes run pods; those of the lab run none"
    yield "Not rehearsed: pods, volumes and disruption budgets of the cluster, which were looked at where they are"
