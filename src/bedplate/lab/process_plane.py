"""The control plane as plain processes on the first node, kubelets with certificates of our own authority.

In: a `ground.Ground`. Out: a running control plane, kubelets, kube-proxies and CoreDNS (kubeadm brings its own).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from bedplate.api.names import LABEL_CONTROL_PLANE
from bedplate.core.tasks import TaskGroup
from bedplate.lab import catalog, components, credentials, kubernetes_node
from bedplate.lab.ground import PRELOADED, Ground
from bedplate.lab.nodes import INSIDE
from bedplate.lab.plan import NodePlan, Plan

__all__ = ["NEEDS", "start", "start_node"]

NEEDS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
_CORE_FILE = """.:53 {
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 5
    }
    forward . /etc/resolv.conf
    cache 5
    reload
}
"""
_LABELS = {"k8s-app": "kube-dns"}


async def start(ground: Ground) -> None:
    """Everything up to a cluster with all nodes registered."""
    here = _site(ground.plan, ground.folder)
    components.issue_all(here)
    _issue_node_credentials(ground, here)
    async with TaskGroup() as group:
        group.create_task(ground.start_containerd(PRELOADED))
        group.create_task(_start_control_plane(ground))
    ground.report("starting kubelets")
    for this in ground.plan.nodes:
        start_node(ground, this)
    await ground.apply(_coredns(ground.plan))
    await ground.connect_pods()
    # As kubeadm does it, but without its taint: a lab's first node runs pods like the others.
    await ground.kubectl("label", "--overwrite", "node", ground.first.name, f"{LABEL_CONTROL_PLANE}=")


def start_node(ground: Ground, this: NodePlan) -> None:
    """The programs of one node, apart from its containerd."""
    node = ground.nodes[this.name]
    root = ground.tree.root_of(this.name)
    ground.waiter.daemons.append(kubernetes_node.start_kubelet(node, ground.plan, this, root))
    ground.waiter.daemons.append(kubernetes_node.start_proxy(node, ground.plan, this))


def _site(plan: Plan, folder: Path) -> components.Site:
    extra: dict[str, tuple[str, ...]] = {}
    if plan.cloud_provider:
        extra["kube-controller-manager"] = (f"--cloud-provider={plan.cloud_provider}",)
    return components.Site(
        pki=folder / "pki",
        config=folder,
        data=Path("/var/lib"),
        address=plan.nodes[0].address,
        service_cidr=plan.service_cidr,
        pod_cidr=plan.pod_cidr,
        hosts=(plan.nodes[0].name,),
        extra_args=extra,
    )


def _issue_node_credentials(ground: Ground, here: components.Site) -> None:
    authority = credentials.Authority.open(here.pki, "ca")
    for this in ground.plan.nodes:
        user = f"system:node:{this.name}"
        pair = authority.issue(
            f"kubelet-{this.name}", user, groups=["system:nodes"], hosts=[this.name, this.address, "127.0.0.1"]
        )
        target = ground.folder / f"{this.name}.kubeconfig"
        credentials.write_kubeconfig(target, here.url, authority.certificate_path, pair, user=user)
    pair = authority.issue("kube-proxy", "system:kube-proxy")
    target = ground.folder / "kube-proxy.kubeconfig"
    credentials.write_kubeconfig(target, here.url, authority.certificate_path, pair, user="system:kube-proxy")


async def _start_control_plane(ground: Ground) -> None:
    inside = dataclasses.replace(_site(ground.plan, ground.folder), pki=INSIDE / "pki", config=INSIDE)
    node = ground.first
    ground.report("starting etcd and kube-apiserver")
    commands = {
        "etcd": components.etcd(inside, is_durable=False),
        "kube-apiserver": components.apiserver(inside),
        "kube-controller-manager": components.controller_manager(inside),
        "kube-scheduler": components.scheduler(inside),
    }
    for name, args in commands.items():
        ground.waiter.daemons.append(node.start(name, [name, *args]))
        if name == "kube-apiserver":
            await ground.waiter.until("kube-apiserver is ready", ground.api_is_ready, node.logs / f"{name}.log")


def _coredns(plan: Plan) -> list[dict[str, Any]]:
    """Cluster DNS at the address every kubelet tells its pods. Its pods start on nodes that still wait for a cloud."""
    meta = {"name": "coredns", "namespace": "kube-system"}
    subject = [{"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"}]
    rules = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    rbac = "rbac.authorization.k8s.io"
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": "system:coredns"}
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53},
    ]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": "system:coredns"}, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "system:coredns"},
            "roleRef": role,
            "subjects": subject,
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"Corefile": _CORE_FILE}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": _LABELS},
            "spec": {"clusterIP": plan.dns, "selector": _LABELS, "ports": ports},
        },
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {**meta, "labels": _LABELS}, "spec": _deployment()},
    ]


def _deployment() -> dict[str, Any]:
    container = {
        "name": "coredns",
        "image": catalog.COREDNS_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "protocol": "TCP"}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}],
    }
    pod = {
        "serviceAccountName": "coredns",
        "priorityClassName": "system-cluster-critical",
        "dnsPolicy": "Default",
        "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
    }
    return {
        "replicas": 1,
        "selector": {"matchLabels": _LABELS},
        "template": {"metadata": {"labels": _LABELS}, "spec": pod},
    }
