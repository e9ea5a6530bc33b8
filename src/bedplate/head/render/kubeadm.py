"""What kubeadm reads on a node, and what makes its pods reach those of others, where a cluster was set up by the head.

In: a tree, a node, its role and its cluster. Out: `kubeadm init`'s file on control plane nodes and `kubeadm join`'s on
all, made of the cluster's own file (`Kubeadm init file`, the same on all nodes) and of what is the node's. They hold
secrets, and reach nobody but the node. The bootstrap token follows from the cluster's key for kubeadm, and what all API
servers share from its authority, so that neither needs a place of its own, and a node can join at any time. With ranges
of pod addresses by node (the extra `pod_ranges` of the cluster) the node gets its bridge, routes to the ranges of the
other nodes, and an address for what leaves the cluster.
"""

from __future__ import annotations

import base64
import functools
import hmac
import ipaddress
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from bedplate.api.desired import MASK, File
from bedplate.head.entities.kubernetes import EtcdCluster, KubeCluster
from bedplate.head.entities.roles import KubeletRole
from bedplate.head.entities.site import Network
from bedplate.head.objects import Obj, Secret
from bedplate.head.render import etcd
from bedplate.head.render.clusters import address
from bedplate.head.tree import Tree

__all__ = [
    "API_PORT",
    "DISCOVERY",
    "INIT",
    "JOIN",
    "POD_RANGES",
    "api_version",
    "bootstrap_token",
    "files",
    "folder_of",
    "pod_ranges",
    "pod_ranges_text",
]

INIT: Final = "/etc/kubernetes/kubeadm-init.yaml"
JOIN: Final = "/etc/kubernetes/kubeadm-join.yaml"
DISCOVERY: Final = "/etc/kubernetes/kubeadm-discovery.conf"
"""By what a joining node knows its cluster: its address and its authority. With a token alone it would have to wait
until the controller manager has signed both for that token."""
API_PORT: Final = 6443
POD_RANGES: Final = "pod_ranges"
_NETWORK = "/etc/cni/net.d/10-bedplate.conflist"
_SCRIPT = "/etc/kubernetes/pod-network.sh"
_DROPIN = "/etc/systemd/system/kubelet.service.d/21-bedplate-pods.conf"
_SOCKET = "unix:///run/containerd/containerd.sock"
_ACCEPTED = ("Mem", "NumCPU", "Swap", "SystemVerification")
"""What the checks before a deployment warn about; kubeadm would refuse the node."""
_PROTOCOL = 146
"""Marks our routes among those of others; the number is free for anybody's use."""

_DROPIN_TEXT = f"[Service]\nExecStartPre=/bin/sh {_SCRIPT}\nExecReload=/bin/sh {_SCRIPT}\n"
_SCRIPT_TEXT = """\
#!/bin/sh
# Routes to the pods of other nodes, and an address for what leaves the cluster. Run before the kubelet starts, and
# whenever this file changes.
set -e
echo 1 > /proc/sys/net/ipv4/ip_forward
# A node that is not part of the cluster, or no longer, has no pods.
[ -e /etc/kubernetes/kubelet.conf ] || [ -e /etc/kubernetes/bootstrap-kubelet.conf ] || exit 0
routes='{routes}'
ip route show proto {protocol} | while read -r range rest; do
    case "$routes" in *"$range via "*) ;; *) ip route delete "$range" proto {protocol} ;; esac
done
echo "$routes" | while read -r range via gateway; do
    [ -z "$range" ] || ip route replace "$range" via "$gateway" proto {protocol}
done
nft -f - <<EOF
table ip bedplate-pods
delete table ip bedplate-pods
table ip bedplate-pods {{
    chain postrouting {{
        type nat hook postrouting priority srcnat;
        ip saddr {pods} ip daddr != {{ {inside} }} masquerade
    }}
}}
EOF
"""


def folder_of(cluster: str) -> str:
    """Where the certificates of a cluster are on its nodes."""
    return f"/etc/kubernetes/pki/{cluster}"


def api_version(version: str) -> str:
    """The version of kubeadm's own configuration that a release of Kubernetes reads."""
    minor = version.lstrip("v").split(".")[1:2]
    is_old = minor and minor[0].isdecimal() and int(minor[0]) < 31
    return f"kubeadm.k8s.io/{'v1beta3' if is_old else 'v1beta4'}"


def bootstrap_token(key: str, cluster: str) -> str:
    """What a joining node shows before it has a certificate; who has it expires with its Secret in the cluster."""
    digits = hmac.digest(key.encode(), f"bootstrap token of {cluster}".encode(), "sha256").hex()
    return f"{digits[:6]}.{digits[6:22]}"


def pod_ranges(cluster: Obj) -> dict[str, ipaddress.IPv4Network]:
    """The range of pod addresses of each node; empty where the head does not make the pod network."""
    ranges = {}
    for word in cluster.extras.get(POD_RANGES, "").split():
        node, _, text = word.partition("=")
        try:
            ranges[node] = ipaddress.IPv4Network(text)
        except ValueError:
            continue  # what somebody wrote by hand is not taken
    return ranges


def pod_ranges_text(ranges: Mapping[str, ipaddress.IPv4Network]) -> str:
    """Ranges as the cluster's extra has them."""
    return " ".join(f"{node}={range_}" for node, range_ in ranges.items())


def files(tree: Tree, node: Obj, role: Obj, cluster: Obj) -> list[File]:
    """What kubeadm and the pod network need on a node; nothing for a cluster that others set up."""
    key, authority = KubeCluster.kubeadm_cert_key.value(cluster), KubeCluster.kube_ca_cert.value(cluster)
    shared = str(KubeCluster.kubeadm_init_file.value(cluster))
    if not shared or not isinstance(key, Secret) or not isinstance(authority, Secret):
        return []
    planes = bool(KubeletRole.control_plane.value(role))
    token = bootstrap_token(key.reveal(), cluster.key)
    own = [
        _secret(JOIN, json.dumps(_join(node, role, cluster, token), indent=2) + "\n"),
        File(path=DISCOVERY, content=json.dumps(_discovery(cluster, authority.reveal()), indent=2) + "\n"),
    ]
    if planes:
        init = json.dumps(_init(node, role, cluster, token), indent=2)
        own += [_secret(INIT, f"{init}\n---\n{shared}"), *_etcd_client(tree, cluster), *_shared(cluster)]
    return [*own, *_pod_network(tree, node, cluster)]


def _secret(path: str, content: str) -> File:
    return File(path=path, content=content, mode="0600", secret=True)


def _registration(node: Obj, role: Obj, cluster: Obj) -> dict[str, Any]:
    registration: dict[str, Any] = {
        "name": node.key,
        "criSocket": _SOCKET,
        "imagePullPolicy": "IfNotPresent",
        "ignorePreflightErrors": list(_ACCEPTED),
    }
    if not api_version(str(KubeCluster.version.value(cluster))).endswith("v1beta3"):
        # All at once: one after the other, each of them would wait for the registry.
        registration["imagePullSerial"] = False
    if KubeletRole.control_plane.value(role) and KubeletRole.worker.value(role):
        registration["taints"] = []
    return registration


def _patches(role: Obj) -> dict[str, Any]:
    return {"patches": {"directory": "/etc/kubernetes/patches"}} if role.below("options") else {}


def _endpoint(node: Obj) -> dict[str, Any]:
    return {"advertiseAddress": address(node), "bindPort": API_PORT}


def _init(node: Obj, role: Obj, cluster: Obj, token: str) -> dict[str, Any]:
    return {
        "apiVersion": api_version(str(KubeCluster.version.value(cluster))),
        "kind": "InitConfiguration",
        "bootstrapTokens": [{"token": token, "ttl": "2h0m0s"}],
        "localAPIEndpoint": _endpoint(node),
        "nodeRegistration": _registration(node, role, cluster),
        # Its Service has the address that the cluster's settings name, which kubeadm would not give it.
        "skipPhases": ["addon/coredns"],
        **_patches(role),
    }


def _join(node: Obj, role: Obj, cluster: Obj, token: str) -> dict[str, Any]:
    plane = {"localAPIEndpoint": _endpoint(node)}
    return {
        "apiVersion": api_version(str(KubeCluster.version.value(cluster))),
        "kind": "JoinConfiguration",
        "discovery": {"file": {"kubeConfigPath": DISCOVERY}, "tlsBootstrapToken": token},
        "nodeRegistration": _registration(node, role, cluster),
        **({"controlPlane": plane, **_patches(role)} if KubeletRole.control_plane.value(role) else {}),
    }


def _discovery(cluster: Obj, authority: str) -> dict[str, Any]:
    """A kubeconfig without a user, and so without a context, as kubeadm publishes it in `cluster-info`."""
    port = KubeCluster.kubernetes_api_server_proxy_port.value(cluster)
    place = {
        "server": f"https://127.0.0.1:{port}",
        "certificate-authority-data": MASK if MASK in authority else base64.b64encode(authority.encode()).decode(),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "", "cluster": place}],
    }


def _etcd_client(tree: Tree, cluster: Obj) -> list[File]:
    """With what API servers show themselves to etcd."""
    name = str(KubeCluster.etcd_cluster.value(cluster))
    ensemble = tree.find("etcd", name)
    seed = EtcdCluster.authority.value(ensemble) if ensemble is not None else None
    if not isinstance(seed, Secret):
        return []
    authority, certificate, key = MASK, MASK, MASK
    if seed.reveal() != MASK:
        authority, certificate, key = etcd.certified(seed.reveal(), name, f"kube-apiserver {cluster.key}"[:64])
    folder = folder_of(cluster.key)
    return [
        File(path=f"{folder}/etcd-ca.crt", content=authority),
        File(path=f"{folder}/apiserver-etcd-client.crt", content=certificate),
        _secret(f"{folder}/apiserver-etcd-client.key", key),
    ]


def _shared(cluster: Obj) -> list[File]:
    """What all API servers must have alike: the keys of service accounts, and the authority of those that API servers
    pass requests on for. They follow from the cluster's authority, so that a node can join at any time, and nothing of
    them is in the cluster itself."""
    certificate, key = KubeCluster.kube_ca_cert.value(cluster), KubeCluster.kube_ca_key.value(cluster)
    if not isinstance(certificate, Secret) or not isinstance(key, Secret):
        return []
    folder = folder_of(cluster.key)
    return [
        _secret(f"{folder}/{name}", content)
        if name.endswith(".key")
        else File(path=f"{folder}/{name}", content=content)
        for name, content in _derived(certificate.reveal(), key.reveal()).items()
    ]


@functools.lru_cache(maxsize=64)
def _derived(certificate: str, key: str) -> dict[str, str]:
    if MASK in (certificate, key):
        return dict.fromkeys(("front-proxy-ca.crt", "front-proxy-ca.key", "sa.key", "sa.pub"), MASK)
    from bedplate.serving import issuing

    try:
        authority = issuing.Repeatable(issuing.Pair(certificate.encode(), key.encode()))
    except ValueError:
        return {}
    front = authority.authority("front-proxy-ca")
    private, public = authority.key_pair("service accounts")
    contents = {
        "front-proxy-ca.crt": front.certificate,
        "front-proxy-ca.key": front.key,
        "sa.key": private,
        "sa.pub": public,
    }
    return {name: content.decode() for name, content in contents.items()}


def _pod_network(tree: Tree, node: Obj, cluster: Obj) -> Iterable[File]:
    ranges = pod_ranges(cluster)
    own = ranges.get(node.key)
    network = tree.find("network", str(KubeCluster.pod_network.value(cluster)))
    pods = Network.range(network) if network is not None else None
    if own is None or pods is None:
        return []
    routes, inside = [], [str(pods)]
    for name, range_ in ranges.items():
        other = tree.find("device", name)
        if other is None or not other.values.get("ip"):
            continue
        # No other machine of the internal network, the head node neither, has a way back to pods.
        inside.append(str(address(other)))
        if name != node.key:
            routes.append(f"{range_} via {address(other)}")
    script = _SCRIPT_TEXT.format(routes="\n".join(routes), protocol=_PROTOCOL, pods=pods, inside=", ".join(inside))
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isDefaultGateway": True,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": str(own)}]]},
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    plugins = {"cniVersion": "0.4.0", "name": f"kube-{cluster.key}", "plugins": [bridge, ports]}
    return [
        File(path=_NETWORK, content=json.dumps(plugins, indent=2) + "\n"),
        File(path=_SCRIPT, content=script, mode="0755", services=("kubelet",), action="RELOAD"),
        File(path=_DROPIN, content=_DROPIN_TEXT, services=("kubelet",), action="RESTART"),
    ]
