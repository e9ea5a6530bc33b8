"""Names that Kubernetes fixes: syntax of names and labels; well-known labels, annotations, taints and finalizers.

In: text. Out: a list of problems (empty when valid), worded for people. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = [
    "annotation_problems",
    "dns_label_problems",
    "dns_subdomain_problems",
    "label_key_problems",
    "label_value_problems",
    "labels_problems",
]

# Labels of nodes
LABEL_HOSTNAME = "kubernetes.io/hostname"
LABEL_OS = "kubernetes.io/os"
LABEL_ARCH = "kubernetes.io/arch"
LABEL_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
LABEL_REGION = "topology.kubernetes.io/region"
LABEL_ZONE = "topology.kubernetes.io/zone"
LABEL_INSTANCE_TYPE_BETA = "beta.kubernetes.io/instance-type"
LABEL_REGION_BETA = "failure-domain.beta.kubernetes.io/region"
LABEL_ZONE_BETA = "failure-domain.beta.kubernetes.io/zone"
LABEL_EXCLUDE_FROM_LOAD_BALANCERS = "node.kubernetes.io/exclude-from-external-load-balancers"
LABEL_ROLE_PREFIX = "node-role.kubernetes.io/"
LABEL_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
# Labels of other objects
LABEL_NAMESPACE_NAME = "kubernetes.io/metadata.name"
LABEL_SERVICE_NAME = "kubernetes.io/service-name"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"

# Annotations
ANNOTATION_PROVIDED_NODE_IP = "alpha.kubernetes.io/provided-node-ip"
ANNOTATION_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
ANNOTATION_INITIAL_EVENTS_END = "k8s.io/initial-events-end"

# Taints
TAINT_UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
TAINT_SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
TAINT_NOT_READY = "node.kubernetes.io/not-ready"
TAINT_UNREACHABLE = "node.kubernetes.io/unreachable"
TAINT_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
TAINT_NETWORK_UNAVAILABLE = "node.kubernetes.io/network-unavailable"
TAINT_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

# Finalizers
FINALIZER_LOAD_BALANCER = "service.kubernetes.io/load-balancer-cleanup"
FINALIZER_FOREGROUND = "foregroundDeletion"
FINALIZER_ORPHAN = "orphan"

# Namespaces
NAMESPACE_DEFAULT = "default"
NAMESPACE_SYSTEM = "kube-system"
NAMESPACE_NODE_LEASE = "kube-node-lease"

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_QUALIFIED_RULE = "must consist of letters, digits, '-', '_' and '.', and begin and end with a letter or digit"
ANNOTATIONS_MAX_BYTES = 256 * 1024


def dns_label_problems(text: str) -> list[str]:
    """Why `text` is no DNS-1123 label (namespace and most short names): at most 63 of a-z, 0-9 and inner hyphens."""
    problems = []
    if len(text) > 63:
        problems.append(f"{text!r} is longer than 63 characters")
    if not _LABEL.fullmatch(text):
        problems.append(f"{text!r} must consist of a-z, 0-9 and '-', and begin and end with a letter or digit")
    return problems


def dns_subdomain_problems(text: str) -> list[str]:
    """Why `text` is no DNS-1123 subdomain (names of nodes and most objects): labels joined by dots, at most 253."""
    problems = []
    if len(text) > 253:
        problems.append(f"{text!r} is longer than 253 characters")
    if not all(_LABEL.fullmatch(part) for part in text.split(".")):
        problems.append(
            f"{text!r} must consist of a-z, 0-9, '-' and '.', and each part must begin and end with a letter or digit"
        )
    return problems


def label_key_problems(key: str) -> list[str]:
    """Why `key` is no label or annotation key: an optional DNS prefix and a slash, then a name of at most 63."""
    prefix, slash, name = key.rpartition("/")
    problems = []
    if slash and not prefix:
        problems.append(f"the prefix of {key!r} is empty")
    elif "/" in prefix:
        problems.append(f"{key!r} has more than one '/'")
    elif prefix:
        problems.extend(dns_subdomain_problems(prefix))
    if not name:
        problems.append(f"the name in {key!r} is empty")
    elif len(name) > 63:
        problems.append(f"the name in {key!r} is longer than 63 characters")
    elif not _QUALIFIED.fullmatch(name):
        problems.append(f"the name in {key!r} {_QUALIFIED_RULE}")
    return problems


def label_value_problems(value: str) -> list[str]:
    """Why `value` is no label value: empty, or at most 63 letters, digits and inner '-', '_', '.'."""
    problems = []
    if len(value) > 63:
        problems.append(f"{value!r} is longer than 63 characters")
    if value and not _QUALIFIED.fullmatch(value):
        problems.append(f"{value!r} {_QUALIFIED_RULE}")
    return problems


def labels_problems(labels: Mapping[str, str]) -> list[str]:
    """All that is wrong with a set of labels."""
    return [
        problem
        for key, value in labels.items()
        for problem in (*label_key_problems(key), *(f"{key}: {text}" for text in label_value_problems(value)))
    ]


def annotation_problems(annotations: Mapping[str, str]) -> list[str]:
    """All that is wrong with a set of annotations: keys (compared in lower case) and the total size."""
    problems = [problem for key in annotations for problem in label_key_problems(key.lower())]
    size_bytes = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size_bytes > ANNOTATIONS_MAX_BYTES:
        problems.append(f"annotations take {size_bytes} bytes, more than {ANNOTATIONS_MAX_BYTES}")
    return problems
