"""Answers and a site: prefilled values, the nodes that are meant, and everything that does not fit. Pure.

In: answers of the right form (`document`) and a `Site`. Out: complete answers, and problems by key.
"""

from __future__ import annotations

import copy
import ipaddress
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bedplate.core import errors
from bedplate.head.schema import ranges
from bedplate.setup.answers import aliases, networks
from bedplate.setup.answers.declaration import minors, value_at
from bedplate.setup.answers.document import Place
from bedplate.setup.answers.features import NETQ
from bedplate.setup.answers.site import Site
from bedplate.setup.engine.journal import RESERVED
from bedplate.setup.operators import OPERATORS, OWN

__all__ = [
    "Members",
    "application_name",
    "check",
    "complete",
    "free_port",
    "members",
    "problems",
]

FIRST_PORT = 10443
_INTERNAL = "internalnet"
_APPLICATIONS = frozenset(
    {
        *(operator.application for operator in OPERATORS),
        *("kyverno", "kyverno_policies", "nvidia_runtime", "permissions_manager"),
        *(
            "calico",
            "ccm_cloudlycke",
            "ccm_nvidia_bmm",
            "ccm_oxide",
            "ceph",
            "cilium",
            "dashboard",
            "dashboard_ingress",
        ),
        *("flannel", "ingress_controller", "ipam", "ipam_pools", "kubestatemetrics", "landing_page", "local_path"),
        "metrics_server",
    }
)
"""Applications that other answers are about."""


@dataclass(frozen=True, slots=True)
class Members:
    """The nodes of the new cluster, each in natural order."""

    masters: tuple[str, ...]
    workers: tuple[str, ...]
    etcd: tuple[str, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        return _sorted({*self.masters, *self.workers, *self.etcd})


def members(answers: Mapping[str, Any], site: Site) -> Members:
    """Which nodes the answers mean. Names of no node are kept, for `problems` to tell."""
    masters = _named(answers, "masters", site)
    etcd = _named(answers, "etcd", site) or masters
    workers = _named(answers, "workers", site)
    # A category has its control-plane nodes, too; who wants one to run pods as well names it.
    explicit = _explicit(answers, "workers")
    others = {name for name in workers if name not in masters or name in explicit}
    return Members(masters, _sorted(others), etcd)


def _named(answers: Mapping[str, Any], role: str, site: Site) -> tuple[str, ...]:
    chosen = value_at(answers, f"kubernetes.nodes.{role}") or {}
    names = {name for key in ("nodes", "head_nodes") for part in chosen.get(key, ()) for name in ranges.expand(part)}
    categories = set(chosen.get("categories", ()))
    names |= {name for name, node in site.nodes.items() if node.category in categories and not node.is_head}
    return _sorted(names)


def _sorted(names: set[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=ranges.natural))


def complete(answers: Mapping[str, Any], site: Site) -> dict[str, Any]:
    """The answers with aliases resolved, and with values that fit the site where they are left empty. Raises
    `Invalid` when there is no free range."""
    new = aliases.resolved(copy.deepcopy(dict(answers)), site)
    kubernetes = new["kubernetes"]
    kubernetes["fqdn"] = kubernetes["fqdn"] or site.fqdn
    chosen = kubernetes["networks"]
    if not chosen["internal"]:
        chosen["internal"] = _INTERNAL if _INTERNAL in site.network_names else next(iter(site.network_names), "")
    known = list(site.known_networks(kubernetes["name"]).values())
    if not chosen["service"]:
        taken = [*known, *_range(chosen["pod"])]
        chosen["service"] = str(networks.free_services(taken))
    if not chosen["pod"]:
        taken = [*known, *_range(chosen["service"])]
        chosen["pod"] = str(networks.free_pods(taken))
    kubernetes["proxy"]["port"] = kubernetes["proxy"]["port"] or free_port(site)
    return new


def free_port(site: Site) -> int:
    """The first port from 10443 on that no cluster has."""
    taken = {cluster.port for cluster in site.clusters.values()}
    return next(port for port in range(FIRST_PORT, 65536) if port not in taken)


def _range(text: str) -> list[networks.Range]:
    try:
        return [ipaddress.IPv4Network(text)] if text else []
    except ValueError:
        return []


def check(answers: Mapping[str, Any], site: Site, lines: Place | None = None, name: str = "the file") -> None:
    """Raise `Invalid` with everything that does not fit, each with its key and line."""
    wrong = problems(answers, site)
    if not wrong:
        return
    told = [
        f"{path} (line {lines[path]}): {text}" if lines and path in lines else f"{path}: {text}" for path, text in wrong
    ]
    raise errors.Invalid(f"{name} does not fit this site", problems=told, hint="nothing was changed")


def problems(answers: Mapping[str, Any], site: Site) -> list[tuple[str, str]]:
    """Everything that does not fit, by key."""
    return [
        *_cluster(answers, site),
        *_networks(answers, site),
        *_nodes(answers, site),
        *_addons(answers),
        *_features(answers, site),
        *_repositories(answers),
    ]


def _repositories(answers: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    chosen = answers["kubernetes"]["repositories"]
    if chosen["helm"] and not chosen["key"]:
        yield "kubernetes.repositories.key", "packages of a repository of Helm are verified with a key: name its file"
    for key in ("base", "helm"):
        if "@" in chosen[key].split("://", 1)[-1].split("/")[0]:
            yield f"kubernetes.repositories.{key}", "must have no user or password in it: every node could read it"


def _cluster(answers: Mapping[str, Any], site: Site) -> Iterator[tuple[str, str]]:
    kubernetes = answers["kubernetes"]
    name, port, version = kubernetes["name"], kubernetes["proxy"]["port"], kubernetes["version"]
    if name in RESERVED:
        yield "kubernetes.name", f"{name} is a file of the tool; choose another name"
    if name in site.clusters:
        yield "kubernetes.name", f"the cluster {name} already exists; choose another name, or remove it first"
    for other in site.clusters.values():
        if other.port == port and other.name != name:
            yield "kubernetes.proxy.port", f"{port} is the port of the cluster {other.name}; {free_port(site)} is free"
    if ".".join(version.split(".")[:2]) not in minors():
        yield "kubernetes.version", f"{version} is not supported; choose one of {', '.join(minors())}"
    if kubernetes["cni"] != "bridge" and not kubernetes["cni_manifest"]:
        yield "kubernetes.cni_manifest", f"{kubernetes['cni']} is installed from its manifest: name the file"


def _addons(answers: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    addons, ingress = answers["kubernetes"]["addons"], answers["kubernetes"]["ingress"]
    if ingress["http_port"] == ingress["https_port"]:
        yield "kubernetes.ingress.https_port", f"{ingress['https_port']} is the port for HTTP as well"
    if addons["ccm"]["provider"] != "none" and not addons["ccm"]["cloud_config"]:
        yield "kubernetes.addons.ccm.cloud_config", f"{addons['ccm']['provider']} needs the settings of its cloud"
    if answers["kubernetes"]["local_path"]["path"] == "/":
        yield "kubernetes.local_path.path", "must be a folder below /, as volumes are deleted with their claims"
    ceph = addons["ceph"]
    if ceph["fsid"] and not ceph["monitors"]:
        yield "kubernetes.addons.ceph.monitors", "a Ceph cluster is reached by its monitors: name them"
    for monitor in ceph["monitors"]:
        if re.fullmatch(r"[A-Za-z0-9.\[\]:-]+:[0-9]{1,5}", monitor) is None:
            yield "kubernetes.addons.ceph.monitors", f"{monitor!r} must be an address with a port, as 10.141.1.1:6789"
    names = [application_name(path) for path in addons["manifests"]]
    times = Counter(names)
    for path, name in zip(addons["manifests"], names, strict=True):
        if name in _APPLICATIONS or times[name] > 1:
            what = "one of the tool" if name in _APPLICATIONS else "that of another file"
            yield "kubernetes.addons.manifests", f"{path}: its application {name} would be {what}; rename the file"


def _features(answers: Mapping[str, Any], site: Site) -> Iterator[tuple[str, str]]:
    kubernetes = answers["kubernetes"]
    kyverno, operators, mirror = kubernetes["kyverno"], kubernetes["operators"], kubernetes["registry_mirror"]
    for part in ("registry_mirror", "docker_io"):
        login = kubernetes[part]
        if bool(login["username"]) != bool(login["password"]):
            missing = "password" if login["username"] else "username"
            yield f"kubernetes.{part}.{missing}", "a login needs a user name and a password"
    if (mirror["username"] or mirror["password"]) and not mirror["url"]:
        yield "kubernetes.registry_mirror.url", "a login is for a mirror: name it"
    if kyverno["install"] and not kyverno["chart"]:
        yield "kubernetes.kyverno.chart", "Kyverno is installed from its chart: name the file"
    if kyverno["policies"] and not kyverno["install"]:
        yield "kubernetes.kyverno.policies", "policies need Kyverno: set kubernetes.kyverno.install"
    elif kyverno["policies"] and not kyverno["policies_chart"]:
        yield "kubernetes.kyverno.policies_chart", "the policies are installed from their chart: name the file"
    for name, chosen in operators.items():
        path = f"kubernetes.operators.{name}"
        if not chosen["chart"] and name != OWN:
            yield f"{path}.chart", f"{name} is installed from its chart: name the file"
        elif not chosen["chart"]:
            for key in ("values_file", "options"):
                if chosen[key]:
                    yield f"{path}.{key}", "the manifests of this project have no values: name a chart as well"
    gpu = operators.get("gpu-operator")
    if kubernetes["nvidia_runtime"] and gpu is not None and gpu["options"].get("toolkit.enabled") is not False:
        yield (
            "kubernetes.nvidia_runtime",
            "the GPU operator brings the toolkit itself, to the same file: answer no, or set its option "
            "toolkit.enabled to false",
        )
    meant = members(answers, site).nodes
    for name in sorted({name for part in kubernetes["netq"]["nodes"] for name in ranges.expand(part)}):
        if NETQ not in operators:
            yield "kubernetes.netq.nodes", "NetQ is not one of the operators: choose it, or leave this empty"
            return
        if name not in meant:
            yield "kubernetes.netq.nodes", f"{name} is not a node of the new cluster"


def application_name(path: str) -> str:
    """The name of the application that a file of the site becomes."""
    stem = path.rpartition("/")[2].rpartition(".")[0] or path.rpartition("/")[2]
    return re.sub(r"[^a-z0-9]+", "_", stem.lower()).strip("_") or "manifests"


def _networks(answers: Mapping[str, Any], site: Site) -> Iterator[tuple[str, str]]:
    chosen = answers["kubernetes"]["networks"]
    known = site.known_networks(answers["kubernetes"]["name"])
    for key in ("service", "pod"):
        for range_ in _range(chosen[key]):
            other = networks.overlapping(range_, known)
            if other:
                yield f"kubernetes.networks.{key}", f"{range_} overlaps the network {other} ({known[other]})"
    services, pods = _range(chosen["service"]), _range(chosen["pod"])
    if services and pods and services[0].overlaps(pods[0]):
        yield "kubernetes.networks.pod", f"{pods[0]} overlaps the service network {services[0]}"
    if pods and chosen["pod_node_mask"] <= pods[0].prefixlen:
        yield (
            "kubernetes.networks.pod_node_mask",
            f"must be greater than the {pods[0].prefixlen} bits of the pod network",
        )
    elif pods and (count := len(members(answers, site).nodes)) > 2 ** (chosen["pod_node_mask"] - pods[0].prefixlen):
        yield (
            "kubernetes.networks.pod",
            f"{pods[0]} has fewer parts with {chosen['pod_node_mask']} bits than {count} nodes",
        )
    if chosen["internal"] not in site.network_names:
        named = ", ".join(site.network_names) or "none"
        yield "kubernetes.networks.internal", f"the head has no network {chosen['internal']!r}; it has: {named}"


def _nodes(answers: Mapping[str, Any], site: Site) -> Iterator[tuple[str, str]]:
    for role in ("masters", "workers", "etcd"):
        chosen = answers["kubernetes"]["nodes"][role]
        for category in chosen["categories"]:
            if category not in site.categories:
                yield f"kubernetes.nodes.{role}.categories", f"there is no category {category!r}"
        for key in ("nodes", "head_nodes"):
            for name in _sorted({name for part in chosen[key] for name in ranges.expand(part)}):
                text = _node_problem(name, site, is_head=key == "head_nodes")
                if text:
                    yield f"kubernetes.nodes.{role}.{key}", text
    meant = members(answers, site)
    if not meant.masters:
        yield "kubernetes.nodes.masters", "at least one control-plane node is needed"
    elif len(meant.etcd) % 2 == 0:
        count = len(meant.etcd)
        yield "kubernetes.nodes.etcd", f"the number of etcd nodes must be odd (1, 3, 5), not {count}"
    named = {name for role in ("masters", "workers", "etcd") for name in _explicit(answers, role)}
    for name in meant.nodes:
        node = site.nodes.get(name)
        if node is not None and node.cluster and name not in named:
            yield "kubernetes.nodes", f"{name} already belongs to the cluster {node.cluster}"


def _explicit(answers: Mapping[str, Any], role: str) -> set[str]:
    chosen = value_at(answers, f"kubernetes.nodes.{role}") or {}
    return {name for key in ("nodes", "head_nodes") for part in chosen.get(key, ()) for name in ranges.expand(part)}


def _node_problem(name: str, site: Site, *, is_head: bool) -> str:
    node = site.nodes.get(name)
    if node is None:
        return f"node {name!r} not found"
    if node.is_head != is_head:
        return f"{name} is a {'head' if node.is_head else 'compute'} node; name it below {_key(not is_head)}"
    if node.cluster:
        return f"{name} already belongs to the cluster {node.cluster}"
    if node.registry:
        return f"{name} has the role {node.registry}; a node cannot be a registry and part of a cluster"
    return ""


def _key(is_head: bool) -> str:
    return "head_nodes" if is_head else "nodes"
