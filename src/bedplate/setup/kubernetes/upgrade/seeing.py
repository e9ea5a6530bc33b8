"""Asks a cluster what its upgrade needs to know.

In: a client, the tree of the head. Out: members with their versions, and findings. Errors are raised: a cluster that
does not answer is not judged.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from cryptography import x509

from bedplate.api import core
from bedplate.api.resources import PODS, custom
from bedplate.core import errors
from bedplate.head import Tree
from bedplate.head.clusters import draining, seeing
from bedplate.head.entities.kubernetes import KubeCluster
from bedplate.head.objects import Secret
from bedplate.head.render.clusters import address, control_plane
from bedplate.head.render.kubeadm import API_PORT
from bedplate.kube import Client
from bedplate.setup.kubernetes.remove import remains
from bedplate.setup.kubernetes.upgrade import findings
from bedplate.setup.kubernetes.upgrade.findings import Finding
from bedplate.setup.kubernetes.upgrade.planning import Member, Version

__all__ = ["expiries", "look", "members", "nodes_of", "server_image"]

_BUDGETS = custom("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True)
_ANSWER_S = 10.0


def nodes_of(tree: Tree, cluster: str) -> tuple[str, ...]:
    """The nodes of a cluster, as their roles say, in natural order."""
    return remains(tree, cluster).nodes


def planes_of(tree: Tree, cluster: str) -> dict[str, str]:
    """The addresses of the control plane nodes by name."""
    return {member.node.key: address(member.node) for member in control_plane(tree, cluster)}


def server_image(pods: Sequence[core.Pod], node: str, component: str = "kube-apiserver") -> str:
    """The tag of a component's image in its static pod on a node; empty where there is none."""
    for pod in pods:
        if pod.spec.node_name == node and pod.metadata.labels.get("component") == component:
            return next((each.image.rpartition(":")[2] for each in pod.spec.containers or ()), "")
    return ""


async def members(client: Client, tree: Tree, cluster: str) -> list[Member]:
    """The nodes of the cluster that the head knows and that have joined, with their versions."""
    present = {node.metadata.name: node for node in await seeing.nodes(client)}
    static, planes = await seeing.static_pods(client), planes_of(tree, cluster)
    results = []
    for name in nodes_of(tree, cluster):
        if name not in present:
            continue
        tag = server_image(static, name) if name in planes else ""
        kubelet = Version.parse(present[name].status.node_info.kubelet_version)
        results.append(Member(name, name in planes, kubelet, Version.parse(tag) if tag else None))
    return results


async def look(
    client: Client,
    tree: Tree,
    cluster: str,
    version: Version,
    upgraded: Sequence[str],
    consent: draining.Consent,
    now: datetime,
) -> list[Finding]:
    """Everything that stands in the way, and warnings."""
    results = findings.health(await seeing.failing(client))
    if results:
        return results
    results += findings.nodes(await seeing.nodes(client), nodes_of(tree, cluster))
    metrics = (await client.request("GET", "/metrics", accept="text/plain")).body.decode(errors="replace")
    results += findings.deprecated(metrics, version)
    results += findings.budgets((await client.list(_BUDGETS)).items, consent)
    results += findings.pods((await client.list(PODS.raw())).items, upgraded, consent)
    ends = dict(_authority(tree, cluster))
    for node, place in planes_of(tree, cluster).items():
        try:
            ends[f"the certificate of the API server on {node}"] = await _serving(place)
        except (OSError, ValueError, TimeoutError) as err:
            what = f"the API server on {node} ({place}:{API_PORT}) does not answer: {str(err) or type(err).__name__}"
            results.append(Finding(what, f"see crictl ps on {node}, and that this machine reaches it"))
    return results + findings.certificates(ends, now)


def expiries(pem: str) -> datetime:
    """When a certificate ends. Raises `ValueError`."""
    return x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc


def _authority(tree: Tree, cluster: str) -> Mapping[str, datetime]:
    obj = tree.find("kubernetes", cluster)
    if obj is None:
        raise errors.NotFound(f"there is no cluster {cluster!r}")
    secret = KubeCluster.kube_ca_cert.value(obj)
    if not isinstance(secret, Secret):
        return {}
    try:
        return {f"the authority of the cluster {cluster}": expiries(secret.reveal())}
    except ValueError:
        return {}  # who may not see it is told nothing about it


async def _serving(place: str) -> datetime:
    """When the certificate that an API server shows ends; whether it is trusted is its clients' matter."""
    async with asyncio.timeout(_ANSWER_S):
        pem = await asyncio.to_thread(ssl.get_server_certificate, (place, API_PORT), timeout=_ANSWER_S)
    return expiries(pem).astimezone(UTC)
