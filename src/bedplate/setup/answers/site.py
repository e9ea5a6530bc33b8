"""What a head knows that answers must fit. Pure.

In: the tree of a head and the name of the active head node. Out: one value with networks, nodes, categories and the
clusters that exist with their nodes and ports.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from bedplate.head import Obj, Tree, resolve
from bedplate.head.entities.kubernetes import KubeCluster
from bedplate.head.entities.site import Network
from bedplate.setup.answers.networks import Range

__all__ = ["DEFAULT_CATEGORY", "Cluster", "Node", "Site", "of_tree"]

DEFAULT_CATEGORY = "default"
_REGISTRIES = ("generic::harbor", "generic::docker_registry")


@dataclass(frozen=True, slots=True)
class Node:
    """A device. `cluster` is the Kubernetes cluster it belongs to, `registry` its role of a registry."""

    name: str
    category: str
    is_head: bool
    address: str
    cluster: str = ""
    registry: str = ""


@dataclass(frozen=True, slots=True)
class Cluster:
    name: str
    port: int
    version: str = ""


@dataclass(frozen=True, slots=True)
class Site:
    """A site, as answers see it."""

    head: str
    fqdn: str
    networks: Mapping[str, Range]
    """By name; without those that only a cluster of the same name would use."""
    network_names: tuple[str, ...]
    nodes: Mapping[str, Node]
    categories: tuple[str, ...]
    clusters: Mapping[str, Cluster]

    @property
    def head_nodes(self) -> list[str]:
        return [name for name, node in self.nodes.items() if node.is_head]

    @property
    def passive(self) -> str:
        """The head node that is not active, or nothing."""
        return next((name for name in self.head_nodes if name != self.head), "")

    @property
    def default_category(self) -> str:
        """The category that the alias stands for: `default`, or the only one there is; else nothing."""
        if DEFAULT_CATEGORY in self.categories or not self.categories:
            return DEFAULT_CATEGORY if self.categories else ""
        return self.categories[0] if len(self.categories) == 1 else ""

    def known_networks(self, cluster: str) -> dict[str, Range]:
        """The networks that a new cluster must not overlap. Those that would be its own are left out, unless a cluster
        exists that uses them."""
        own = {f"kube-{cluster}-pod", f"kube-{cluster}-service"} if cluster not in self.clusters else set()
        return {name: range_ for name, range_ in self.networks.items() if name not in own}


def of_tree(tree: Tree, head: str) -> Site:
    """The site of a tree."""
    networks = {}
    for name, obj in tree.mode("network").items():
        range_ = Network.range(obj)
        if isinstance(range_, ipaddress.IPv4Network):
            networks[name] = range_
    clusters = {
        name: Cluster(name, int(_port(obj)), str(KubeCluster.version.value(obj) or ""))
        for name, obj in tree.mode("kubernetes").items()
        if not KubeCluster.external.value(obj) and not KubeCluster.capi_template.value(obj)
    }
    owners = {str(KubeCluster.etcd_cluster.value(obj)): name for name, obj in tree.mode("kubernetes").items()}
    nodes = {name: _node(tree, obj, owners) for name, obj in tree.mode("device").items()}
    return Site(
        head=head,
        fqdn=_fqdn(tree, head),
        networks=networks,
        network_names=tuple(sorted(tree.mode("network"))),
        nodes=nodes,
        categories=tuple(sorted(tree.mode("category"))),
        clusters=clusters,
    )


def _port(cluster: Obj) -> int:
    value = KubeCluster.kubernetes_api_server_proxy_port.value(cluster)
    return int(str(value))


def _node(tree: Tree, obj: Obj, owners: Mapping[str, str]) -> Node:
    roles = {name: given.role for name, given in resolve.roles_of(tree, obj).items()}
    cluster = ""
    if "kubelet" in roles:
        cluster = str(roles["kubelet"].values.get("kubernetes_cluster") or "")
    if not cluster and "Etcd::Host" in roles:
        cluster = owners.get(str(roles["Etcd::Host"].values.get("etcd_cluster") or ""), "")
    return Node(
        name=obj.key,
        category=str(obj.values.get("category") or ""),
        is_head=obj.type == "HeadNode",
        address=str(obj.values.get("ip") or ""),
        cluster=cluster,
        registry=next((name for name in _REGISTRIES if name in roles), ""),
    )


def _fqdn(tree: Tree, head: str) -> str:
    device = tree.find("device", head)
    network = tree.find("network", str(device.values.get("network") or "")) if device is not None else None
    domain = str(Network.domain_name.value(network) or "") if network is not None else ""
    return f"{head}.{domain}" if domain and "." not in head else head
