"""What a deployment writes to the tree of the head: networks, clusters, overlays with their roles, checks. Pure.

In: settings and secrets. Out: objects as the head's interface has them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, NamedTuple

from bedplate.head.render.kubeadm import POD_RANGES, pod_ranges_text
from bedplate.head.render.presence import PACKAGES, PRESENT
from bedplate.setup.kubernetes import dropins, kubeadm, modules
from bedplate.setup.kubernetes.settings import Chosen, Settings

__all__ = ["CHECKS", "PRIORITIES", "Secrets", "checks", "cluster", "etcd", "networks", "overlays"]

PRIORITIES = {"etcd": 500, "master": 510, "worker": 500}
CHECKS = {
    "KubernetesChildNode": "everything that should run on active nodes is running",
    "KubernetesComponentsStatus": "all daemons of the node are healthy",
    "KubernetesNodesStatus": "nodes are Ready",
    "KubernetesPodsStatus": "every pod is Running, Succeeded or Pending",
}
Object = dict[str, Any]


class Secrets(NamedTuple):
    """What is made for one cluster and known to the head alone."""

    authority: str
    authority_key: str
    certificate_key: str


def networks(settings: Settings) -> dict[str, Object]:
    """The networks of pods and of Services, by name."""
    return {
        settings.pod_network: _network(settings.pods),
        settings.service_network: _network(settings.services),
    }


def _network(range_: ipaddress.IPv4Network) -> Object:
    values = {"base_address": str(range_.network_address), "netmask_bits": range_.prefixlen}
    return {"type": "Network", "values": values}


def etcd(seed: str) -> Object:
    """The etcd cluster; its authority follows from the seed."""
    return {"type": "EtcdCluster", "values": {"authority": seed}}


def cluster(settings: Settings, secrets: Secrets, ranges: Mapping[str, ipaddress.IPv4Network]) -> Object:
    """The Kubernetes cluster; `ranges` are those of its nodes' pods, where the head makes their network."""
    return {
        "type": "KubeCluster",
        "values": {
            "etcd_cluster": settings.etcd,
            "pod_network": settings.pod_network,
            "pod_network_node_mask": settings.node_mask,
            "service_network": settings.service_network,
            "internal_network": settings.internal,
            "kubedns_ip": settings.dns,
            "kubernetes_api_server_proxy_port": settings.port,
            "version": settings.version,
            "trusted_domains": settings.trusted_domains,
            "module_file_template": modules.TEMPLATE,
            "kubeadm_init_file": kubeadm.init_file(settings),
            "kubeadm_cert_key": secrets.certificate_key,
            "kube_ca_cert": secrets.authority,
            "kube_ca_key": secrets.authority_key,
        },
        "extras": {
            **({POD_RANGES: pod_ranges_text(ranges)} if ranges else {}),
            **({} if settings.has_packages else {PACKAGES: PRESENT}),
        },
    }


def overlays(settings: Settings) -> dict[str, Object]:
    """The overlays with their roles, by name."""
    etcd_host = {
        "type": "EtcdHostRole",
        "values": {"etcd_cluster": settings.etcd, "spool": settings.spool},
    }
    chosen = settings.chosen
    # Without etcd nodes of its own a cluster stores on its control plane nodes.
    etcd_members = chosen["etcd"] if chosen["etcd"] != Chosen() else chosen["masters"]
    members = {"etcd": etcd_members, "master": chosen["masters"], "worker": chosen["workers"]}
    roles: dict[str, dict[str, Object]] = {
        "etcd": {"Etcd::Host": etcd_host},
        "master": _kubernetes(settings, is_master=True),
        "worker": _kubernetes(settings, is_master=False),
    }
    return {
        name: {
            "type": "ConfigurationOverlay",
            "values": {
                "priority": PRIORITIES[role],
                "nodes": list(members[role].nodes),
                "categories": list(members[role].categories),
            },
            "children": {"roles": roles[role]},
        }
        for role, name in settings.overlays.items()
    }


def _kubernetes(settings: Settings, *, is_master: bool) -> dict[str, Object]:
    kubelet = {
        "kubernetes_cluster": settings.name,
        "control_plane": is_master,
        "worker": not is_master or settings.are_masters_workers,
    }
    return {
        "generic::containerd": {
            "type": "GenericRole",
            "values": {"services_run": ["containerd"]},
            "children": {
                "configurations": dropins.configurations(settings),
                **dropins.environments(settings),
                "exclude_list_snippets": {
                    "containerd": {"type": "ExcludeListSnippet", "values": {"exclude_list": ["/var/lib/containerd"]}}
                },
            },
        },
        "kubelet": {"type": "KubeletRole", "values": kubelet},
        "Kubernetes::ApiServerProxy": {
            "type": "KubernetesApiServerProxyRole",
            "values": {"kubernetes_cluster": settings.name},
        },
    }


def checks() -> dict[str, Object]:
    """The health checks of Kubernetes, by name."""
    return {name: {"type": "HealthCheck", "values": {"description": about}} for name, about in CHECKS.items()}
