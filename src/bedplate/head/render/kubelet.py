"""The role `kubelet`: the node's part in a Kubernetes cluster, before and after kubeadm has made it one.

In: a tree, a resolved node and the role. Out: the kubelet's own flags, the cluster's authority and the certificate that
it issues for the node's API server, labels and taints, and the flags of the submode `options`. Those are told twice: as
flags that the agent keeps in the static pods' manifests, and as patches that kubeadm applies whenever it rewrites the
manifests, so that it does not lose them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from dataclasses import replace
from urllib.parse import urlsplit

from bedplate.api.desired import File, Flag, Taint
from bedplate.api.headapi import MASK
from bedplate.head.entities.kubernetes import KubeCluster
from bedplate.head.entities.roles import KubeletOption, KubeletRole
from bedplate.head.entities.site import Network
from bedplate.head.objects import Obj, Secret
from bedplate.head.render import kubeadm
from bedplate.head.render.clusters import address, control_plane
from bedplate.head.render.values import Part
from bedplate.head.resolve import Resolved, RoleGiven
from bedplate.head.tree import Tree

__all__ = ["ENVIRONMENT", "PATCHES", "UNIT", "render"]

ENVIRONMENT = "/etc/kubernetes/kubelet.env"
UNIT = "/etc/systemd/system/kubelet.service.d/20-bedplate.conf"
PATCHES = "/etc/kubernetes/patches"
_ROLE_LABEL = "node-role.kubernetes.io/"
_UNIT_FILE = File(
    path=UNIT, content=f"[Service]\nEnvironmentFile={ENVIRONMENT}\n", services=("kubelet",), action="RESTART"
)


def render(tree: Tree, resolved: Resolved, given: RoleGiven) -> Part:
    """What the role means for a node: but for the flags of its kubelet the same for all that got it from one object."""
    node = resolved.node
    place = ("kubelet", given.source, node.type)
    part: Part | None = tree.derived.get(place)
    if part is None:
        part = tree.derived[place] = _part(tree, node.type, given.role)
    files, wrong = _serving(tree, node, given.role)
    cluster = tree.find("kubernetes", str(KubeletRole.kubernetes_cluster.value(given.role)))
    files += kubeadm.files(tree, node, given.role, cluster) if cluster is not None else []
    warnings = [f"kubelet on {node.key}: {warning}" for warning in (*part.warnings, *wrong)]
    environment = _environment(node, given.role, cluster)
    return replace(part, files=[environment, *part.files, *files], warnings=warnings)


def _part(tree: Tree, node_type: str, role: Obj) -> Part:
    cluster = tree.find("kubernetes", str(KubeletRole.kubernetes_cluster.value(role)))
    planes, worker = bool(KubeletRole.control_plane.value(role)), bool(KubeletRole.worker.value(role))
    flags = _flags(role) if planes else []
    files = [_UNIT_FILE, *_patches(flags)]
    warnings = []
    if cluster is None:
        warnings.append("no Kubernetes cluster is set, so the node cannot join one")
    else:
        files += _authority(cluster, planes)
    has_pods = cluster is not None and bool(kubeadm.pod_ranges(cluster))
    words = [*(["control-plane", "master"] if planes else []), *(["worker"] if worker else [])]
    tainted = planes and (not worker or node_type == "HeadNode")
    return Part(
        files=files,
        packages=["conntrack", "kubeadm", "kubectl", "kubelet", *(["nftables"] if has_pods else [])],
        labels={_ROLE_LABEL + word: "" for word in words},
        taints=[Taint(key=_ROLE_LABEL + "control-plane", effect="NoSchedule")] if tainted else [],
        flags=flags,
        warnings=warnings,
    )


def _environment(node: Obj, role: Obj, cluster: Obj | None) -> File:
    """Flags in a file of our own: the package's file, which the unit reads before, stays the site's."""
    ip = str(node.values.get("ip", ""))
    flags = [f"--max-pods={KubeletRole.max_pods.value(role)}", *([f"--node-ip={ip}"] if ip else [])]
    if cluster is not None and cluster.extras.get("cloud_provider") == "external":
        flags.append("--cloud-provider=external")
    content = f"KUBELET_EXTRA_ARGS={' '.join(flags)}\n"
    return File(path=ENVIRONMENT, content=content, services=("kubelet",), action="RESTART")


def _flags(role: Obj) -> list[Flag]:
    flags = []
    for option in role.below("options").values():
        manifest = str(KubeletOption.filename.value(option))
        container = str(KubeletOption.container.value(option)) or manifest.removesuffix(".yaml")
        key, value = str(KubeletOption.key.value(option)), str(KubeletOption.value.value(option))
        flags.append(Flag(manifest=manifest, container=container, key=key, value=value))
    return sorted(flags, key=lambda flag: flag.name)


def _patches(flags: Iterable[Flag]) -> list[File]:
    """JSON patches by manifest. kubeadm's manifests have one container, called as the manifest; flags of others are
    kept by the agent alone."""
    patches: dict[str, list[dict[str, str]]] = {}
    for flag in flags:
        if f"{flag.container}.yaml" == flag.manifest:
            added = {"op": "add", "path": "/spec/containers/0/command/-", "value": flag.argument}
            patches.setdefault(flag.container, []).append(added)
    return [
        File(path=f"{PATCHES}/{component}0+json.json", content=json.dumps(patch, indent=2) + "\n")
        for component, patch in sorted(patches.items())
    ]


def _authority(cluster: Obj, planes: bool) -> list[File]:
    """The cluster's certificate authority where it is known already; its key on control plane nodes alone."""
    folder = f"/etc/kubernetes/pki/{cluster.key}"
    files = []
    certificate, key = KubeCluster.kube_ca_cert.value(cluster), KubeCluster.kube_ca_key.value(cluster)
    if isinstance(certificate, Secret) and certificate.reveal():
        files.append(File(path=f"{folder}/ca.crt", content=certificate.reveal(), secret=True))
    if planes and isinstance(key, Secret) and key.reveal():
        files.append(File(path=f"{folder}/ca.key", content=key.reveal(), mode="0600", secret=True))
    return files


def _serving(tree: Tree, node: Obj, role: Obj) -> tuple[list[File], list[str]]:
    """The certificate of the API server on a control plane node, for the names that the cluster is trusted under, where
    its authority is known; and what is wrong with that authority. An API server reads it again by itself."""
    cluster = tree.find("kubernetes", str(KubeletRole.kubernetes_cluster.value(role)))
    if cluster is None or not KubeletRole.control_plane.value(role):
        return [], []
    certificate, key = KubeCluster.kube_ca_cert.value(cluster), KubeCluster.kube_ca_key.value(cluster)
    if not isinstance(certificate, Secret) or not isinstance(key, Secret):
        return [], []
    hosts = tuple(_hosts(tree, node, cluster))
    try:
        pair = _issued(certificate.reveal(), key.reveal(), node.key, hosts)
    except ValueError:
        text = f"the API server gets no certificate: Kube CA Cert and Kube CA Key of {cluster.key} are not an authority"
        return [], [f"{text} with its RSA or ECDSA key"]
    folder = f"/etc/kubernetes/pki/{cluster.key}"
    return [
        File(path=f"{folder}/apiserver.crt", content=pair[0]),
        File(path=f"{folder}/apiserver.key", content=pair[1], mode="0600", secret=True),
    ], []


def _hosts(tree: Tree, node: Obj, cluster: Obj) -> Iterable[str]:
    """Under which names and addresses the API server of a node is asked for: the external name first."""
    domains = KubeCluster.trusted_domains.value(cluster)
    assert isinstance(domains, tuple)
    services = tree.find("network", str(KubeCluster.service_network.value(cluster)))
    network = Network.range(services) if services is not None else None
    url = str(KubeCluster.kubernetes_api_server.value(cluster))
    hosts = [
        *map(str, domains),
        *("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"),
        *("localhost", "127.0.0.1", node.key, str(node.values.get("ip", ""))),
        # Whoever asks the proxy of a control plane node may be answered by another one's API server.
        *(address(member.node) for member in control_plane(tree, cluster.key)),
        (urlsplit(url).hostname or "") if url else "",
        str(network[1]) if network is not None and network.num_addresses > 1 else "",
    ]
    return [host for host in dict.fromkeys(hosts) if host and host != "0.0.0.0"]


@functools.lru_cache(maxsize=64)
def _issued(authority: str, key: str, node: str, hosts: tuple[str, ...]) -> tuple[str, str]:
    """The certificate and the key of a node's API server: the same for the same names, whichever head renders them.
    Who may not see the authority sees whether the names change."""
    if MASK in (authority, key):
        return f"{MASK} {' '.join(hosts)}", MASK
    from bedplate.serving import issuing  # only clusters with an authority cost this

    signing = issuing.Repeatable(issuing.Pair(authority.encode(), key.encode()))
    pair = signing.issue(f"kube-apiserver {node}"[:64], uses=(issuing.Use.SERVER,), hosts=hosts)
    return pair.certificate.decode(), pair.key.decode()
