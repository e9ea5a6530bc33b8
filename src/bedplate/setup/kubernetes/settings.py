"""What answers mean for a site: names, addresses and the nodes of the new cluster. Pure.

In: complete answers and the tree of the head. Out: one frozen value that all stages work with.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bedplate.core import errors
from bedplate.head import Tree
from bedplate.head.render.kubeadm import pod_ranges
from bedplate.head.schema import ranges
from bedplate.lab import versions
from bedplate.setup.answers import fitting, networks, site

__all__ = ["Chosen", "Settings", "known_ranges", "of_answers"]

_LOCAL = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "master", "localhost")


@dataclass(frozen=True, slots=True)
class Chosen:
    """The members of an overlay, as the answers name them: nodes that join a category later become members, too."""

    nodes: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """A cluster to be. Members are in natural order, the cluster begins on the first control plane node."""

    name: str
    version: str
    """As the module file has it, without a leading v."""
    fqdn: str
    head: str
    heads: tuple[str, ...]
    """All head nodes of the site."""
    services: ipaddress.IPv4Network
    pods: ipaddress.IPv4Network
    node_mask: int
    internal: str
    port: int
    is_exposed: bool
    members: fitting.Members
    chosen: Mapping[str, Chosen]
    addresses: Mapping[str, str]
    spool: str
    cni: str
    cni_manifest: str
    cgroup_driver: str
    repository: str
    sandbox: str
    mirror: str
    mirror_alone: bool
    """Whether Docker Hub is not asked where the mirror has no answer."""
    mirror_login: tuple[str, str] | None
    """User name and password of the mirror."""
    hub_login: tuple[str, str] | None
    """Those of Docker Hub."""
    has_nvidia: bool
    """Whether the nodes get the NVIDIA runtime."""
    has_packages: bool = True
    """Whether the roles of the cluster install packages; otherwise they are there."""
    docker: str = ""
    """The storage backend of Docker on the nodes; empty: no Docker."""

    @property
    def etcd(self) -> str:
        return f"kube-{self.name}"

    @property
    def pod_network(self) -> str:
        return f"kube-{self.name}-pod"

    @property
    def service_network(self) -> str:
        return f"kube-{self.name}-service"

    @property
    def dns(self) -> str:
        return networks.dns_address(self.services)

    @property
    def first(self) -> str:
        return self.members.masters[0]

    @property
    def further_masters(self) -> tuple[str, ...]:
        return self.members.masters[1:]

    @property
    def workers(self) -> tuple[str, ...]:
        """Those that are not control plane nodes as well."""
        return tuple(name for name in self.members.workers if name not in self.members.masters)

    @property
    def kubernetes_nodes(self) -> tuple[str, ...]:
        """The nodes that kubectl lists."""
        return (*self.members.masters, *self.workers)

    @property
    def are_masters_workers(self) -> bool:
        return set(self.members.masters) <= set(self.members.workers)

    @property
    def tainted_workers(self) -> tuple[str, ...]:
        """Control plane nodes that are named as workers and run no pods: all of them have one role, and that says no
        unless all are named."""
        named = (name for name in self.members.masters if name in self.members.workers)
        return () if self.are_masters_workers else tuple(named)

    @property
    def trusted_domains(self) -> list[str]:
        """The names of the API servers, the external one first."""
        return list(dict.fromkeys([self.fqdn, *_LOCAL]))

    @property
    def overlays(self) -> dict[str, str]:
        """The names of the overlays by what their nodes are."""
        return {role: f"kube-{self.name}-{role}" for role in ("etcd", "master", "worker")}


def of_answers(answers: Mapping[str, Any], tree: Tree, head: str) -> Settings:
    """Raises `Invalid` for what cannot be deployed. Answers in the journal of an older version are taken, too."""
    place = site.of_tree(tree, head)
    members = fitting.members(answers, place)
    kubernetes, docker = answers["kubernetes"], answers.get("docker") or {}
    addresses = {name: place.nodes[name].address for name in members.nodes if name in place.nodes}
    without = [name for name in members.nodes if not addresses.get(name)]
    if without:
        raise errors.Invalid(
            f"{', '.join(without)} has no IP address, and could not be reached by the others",
            hint="set ip on the device, and commit",
        )
    return Settings(
        name=kubernetes["name"],
        version=versions.resolve(kubernetes["version"]).removeprefix("v"),
        fqdn=kubernetes["fqdn"],
        head=head,
        heads=tuple(place.head_nodes),
        services=ipaddress.IPv4Network(kubernetes["networks"]["service"]),
        pods=ipaddress.IPv4Network(kubernetes["networks"]["pod"]),
        node_mask=kubernetes["networks"]["pod_node_mask"],
        internal=kubernetes["networks"]["internal"],
        port=kubernetes["proxy"]["port"],
        is_exposed=kubernetes["proxy"]["expose"],
        members=members,
        chosen={role: _chosen(kubernetes["nodes"][role]) for role in ("masters", "workers", "etcd")},
        addresses=addresses,
        spool=kubernetes["etcd"]["spool"],
        cni=kubernetes["cni"],
        cni_manifest=kubernetes["cni_manifest"],
        cgroup_driver=kubernetes["cgroup_driver"],
        repository=kubernetes["images"]["repository"],
        sandbox=kubernetes["images"]["sandbox"],
        mirror=kubernetes["registry_mirror"]["url"],
        mirror_alone=not kubernetes["registry_mirror"]["fallback"],
        mirror_login=_login(kubernetes["registry_mirror"]) if kubernetes["registry_mirror"]["url"] else None,
        hub_login=_login(kubernetes.get("docker_io") or {}),
        has_nvidia=kubernetes["nvidia_runtime"],
        has_packages=not kubernetes["skip"].get("packages"),
        docker=docker["storage_backend"] if docker.get("install") else "",
    )


def _login(part: Mapping[str, Any]) -> tuple[str, str] | None:
    return (part["username"], part["password"]) if part.get("username") else None


def _chosen(part: Mapping[str, Any]) -> Chosen:
    names = {name for key in ("nodes", "head_nodes") for text in part.get(key, ()) for name in ranges.expand(text)}
    return Chosen(tuple(sorted(names, key=ranges.natural)), tuple(part.get("categories", ())))


def known_ranges(tree: Tree, cluster: str) -> dict[str, ipaddress.IPv4Network]:
    """The ranges that the nodes of a cluster have; empty for one that is not there."""
    obj = tree.find("kubernetes", cluster)
    return pod_ranges(obj) if obj is not None else {}
