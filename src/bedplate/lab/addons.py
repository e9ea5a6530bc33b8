"""What a lab with a process control plane runs inside the cluster: CoreDNS. kubeadm brings its own.

In: the plan. Out: manifests as plain objects.
"""

from __future__ import annotations

from typing import Any

from bedplate.lab import catalog
from bedplate.lab.plan import Plan

__all__ = ["coredns"]

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


def coredns(plan: Plan) -> list[dict[str, Any]]:
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
