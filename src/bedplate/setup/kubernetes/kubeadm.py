"""The part of kubeadm's configuration that all nodes of a cluster share. Pure.

In: settings. Out: the text of the cluster's `Kubeadm init file`: the cluster, its kubelets and kube-proxy. What is a
node's own, and what is secret, the head adds (`head/render/kubeadm.py`).
"""

from __future__ import annotations

from typing import Any

import yaml

from bedplate.head.render.kubeadm import api_version, folder_of
from bedplate.setup.kubernetes.settings import Settings

__all__ = ["ETCD_PORT", "PAUSE", "init_file", "minor_of"]

ETCD_PORT = 5001
PAUSE = "registry.k8s.io/pause:3.10.1"
_NFTABLES_SINCE = 33
_CGROUPS_SINCE = 31


def minor_of(version: str) -> int:
    """34 of 1.34.4."""
    return int(version.removeprefix("v").split(".")[1])


def init_file(settings: Settings) -> str:
    """Three documents: ClusterConfiguration, KubeletConfiguration, KubeProxyConfiguration."""
    documents = [_cluster(settings), _kubelet(settings), _proxy(settings)]
    return "---\n".join(yaml.safe_dump(document, sort_keys=False) for document in documents)


def _cluster(settings: Settings) -> dict[str, Any]:
    folder = folder_of(settings.name)
    cluster: dict[str, Any] = {
        "apiVersion": api_version(settings.version),
        "kind": "ClusterConfiguration",
        "clusterName": settings.name,
        "kubernetesVersion": f"v{settings.version}",
        # Every node has a proxy of its own that leads to all API servers.
        "controlPlaneEndpoint": f"127.0.0.1:{settings.port}",
        "certificatesDir": folder,
        "networking": {
            "podSubnet": str(settings.pods),
            "serviceSubnet": str(settings.services),
            "dnsDomain": "cluster.local",
        },
        "etcd": {
            "external": {
                "endpoints": [f"https://{settings.addresses[node]}:{ETCD_PORT}" for node in settings.members.etcd],
                "caFile": f"{folder}/etcd-ca.crt",
                "certFile": f"{folder}/apiserver-etcd-client.crt",
                "keyFile": f"{folder}/apiserver-etcd-client.key",
            }
        },
        "apiServer": {"certSANs": settings.trusted_domains},
        "controllerManager": {"extraArgs": _arguments(settings, _manager(settings))},
    }
    if settings.repository:
        cluster["imageRepository"] = settings.repository
    return cluster


def _manager(settings: Settings) -> dict[str, str]:
    if settings.cni == "bridge":
        # The head gives out the ranges, as it is the head that makes bridges and routes of them.
        return {"allocate-node-cidrs": "false"}
    return {"node-cidr-mask-size": str(settings.node_mask)}


def _arguments(settings: Settings, values: dict[str, str]) -> Any:
    if api_version(settings.version).endswith("v1beta3"):
        return values
    return [{"name": name, "value": value} for name, value in values.items()]


def _kubelet(settings: Settings) -> dict[str, Any]:
    kubelet: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": settings.cgroup_driver,
        "clusterDNS": [settings.dns],
        "clusterDomain": "cluster.local",
        "failSwapOn": False,
        "resolvConf": "/etc/resolv.conf",
    }
    if minor_of(settings.version) >= _CGROUPS_SINCE:
        kubelet["failCgroupV1"] = False
    return kubelet


def _proxy(settings: Settings) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables" if minor_of(settings.version) >= _NFTABLES_SINCE else "iptables",
        "clusterCIDR": str(settings.pods),
        # The size of the connection table is a setting of the node.
        "conntrack": {"maxPerCore": 0, "min": 0},
    }
