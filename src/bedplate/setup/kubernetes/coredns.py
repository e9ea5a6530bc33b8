"""Cluster DNS: CoreDNS as objects of the API. Pure.

In: settings. Out: manifests in the order in which they are applied. kubeadm would give its Service another address than
the one that the cluster's settings name, so it is left out there and made here, under the same names.
"""

from __future__ import annotations

from typing import Any

from bedplate.setup.kubernetes.kubeadm import minor_of
from bedplate.setup.kubernetes.settings import Settings

__all__ = ["image", "manifests", "updated"]

_RELEASES = {33: "v1.12.0", 34: "v1.12.1", 35: "v1.13.1"}
"""What kubeadm of each minor release brings; later ones get that of the last."""
_UPSTREAM = "registry.k8s.io/coredns"
_LABELS = {"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS"}
_NAMESPACE = "kube-system"
_COREFILE = """\
.:53 {
    errors
    health {
        lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
        max_concurrent 1000
    }
    cache 30
    loop
    reload
    loadbalance
}
"""
_RULES = [
    {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": ["list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
]


def image(settings: Settings) -> str:
    """The image for a release of Kubernetes."""
    return f"{settings.repository or _UPSTREAM}/coredns:{_release(settings.version)}"


def _release(version: str) -> str:
    return _RELEASES.get(minor_of(version)) or _RELEASES[max(_RELEASES)]


def updated(present: str, version: str) -> str:
    """The image of another release of Kubernetes in place of the present one; one that somebody chose stays."""
    name, _, tag = present.rpartition(":")
    return f"{name}:{_release(version)}" if tag in _RELEASES.values() else present


def manifests(settings: Settings) -> list[dict[str, Any]]:
    """What runs cluster DNS."""
    account = {"kind": "ServiceAccount", "name": "coredns", "namespace": _NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"}
    rbac = "rbac.authorization.k8s.io/v1"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "coredns", "namespace": _NAMESPACE}},
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": "system:coredns"}, "rules": _RULES},
        {
            "apiVersion": rbac,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "system:coredns"},
            "roleRef": role,
            "subjects": [account],
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "coredns", "namespace": _NAMESPACE},
            "data": {"Corefile": _COREFILE},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": _NAMESPACE, "labels": _LABELS},
            "spec": {
                "clusterIP": settings.dns,
                "selector": {"k8s-app": "kube-dns"},
                "ports": [
                    {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53},
                    {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53},
                    {"name": "metrics", "port": 9153, "protocol": "TCP", "targetPort": 9153},
                ],
            },
        },
        _deployment(settings),
    ]


def _deployment(settings: Settings) -> dict[str, Any]:
    probe = {"path": "/health", "port": 8080, "scheme": "HTTP"}
    container = {
        "name": "coredns",
        "image": image(settings),
        "imagePullPolicy": "IfNotPresent",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
            {"name": "metrics", "containerPort": 9153, "protocol": "TCP"},
        ],
        "resources": {"limits": {"memory": "170Mi"}, "requests": {"cpu": "100m", "memory": "70Mi"}},
        "livenessProbe": {"httpGet": probe, "initialDelaySeconds": 60, "timeoutSeconds": 5, "failureThreshold": 5},
        "readinessProbe": {"httpGet": {**probe, "path": "/ready", "port": 8181}, "periodSeconds": 2},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "config-volume", "mountPath": "/etc/coredns", "readOnly": True}],
    }
    spread = {
        "weight": 100,
        "podAffinityTerm": {
            "labelSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
            "topologyKey": "kubernetes.io/hostname",
        },
    }
    pod = {
        "priorityClassName": "system-cluster-critical",
        "serviceAccountName": "coredns",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
            {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
        ],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [spread]}},
        "dnsPolicy": "Default",
        "containers": [container],
        "volumes": [
            {
                "name": "config-volume",
                "configMap": {"name": "coredns", "items": [{"key": "Corefile", "path": "Corefile"}]},
            }
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "coredns", "namespace": _NAMESPACE, "labels": _LABELS},
        "spec": {
            "replicas": 2,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "selector": {"matchLabels": {"k8s-app": "kube-dns"}},
            "template": {"metadata": {"labels": {"k8s-app": "kube-dns"}}, "spec": pod},
        },
    }
