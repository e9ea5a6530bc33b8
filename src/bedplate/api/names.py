"""Names that Kubernetes fixes: syntax of names and labels; well-known labels, annotations, taints and finalizers.

In: text. Out: a list of problems (empty when valid), worded for people. Pure.
"""

from __future__ import annotations

import re

__all__ = [
    "dns_label_problems",
    "dns_subdomain_problems",
    "label_key_problems",
    "label_value_problems",
]

# Labels of nodes
LABEL_HOSTNAME = "kubernetes.io/hostname"
LABEL_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
LABEL_REGION = "topology.kubernetes.io/region"
LABEL_ZONE = "topology.kubernetes.io/zone"
LABEL_INSTANCE_TYPE_BETA = "beta.kubernetes.io/instance-type"
LABEL_REGION_BETA = "failure-domain.beta.kubernetes.io/region"
LABEL_ZONE_BETA = "failure-domain.beta.kubernetes.io/zone"
LABEL_EXCLUDE_FROM_LOAD_BALANCERS = "node.kubernetes.io/exclude-from-external-load-balancers"
LABEL_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
# Labels of other objects
LABEL_SERVICE_NAME = "kubernetes.io/service-name"

# Annotations
ANNOTATION_PROVIDED_NODE_IP = "alpha.kubernetes.io/provided-node-ip"
ANNOTATION_INITIAL_EVENTS_END = "k8s.io/initial-events-end"

# Taints
TAINT_UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
TAINT_SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
TAINT_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

# Finalizers
FINALIZER_LOAD_BALANCER = "service.kubernetes.io/load-balancer-cleanup"

# Namespaces
NAMESPACE_SYSTEM = "kube-system"

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_QUALIFIED_RULE = "must consist of letters, digits, '-', '_' and '.', and begin and end with a letter or digit"


def dns_label_problems(text: str) -> list[str]:
    """Why `text` is not a DNS-1123 label (namespace and most short names): at most 63 of a-z, 0-9 and inner hyphens."""
    problems = []
    if len(text) > 63:
        problems.append(f"{text!r} is longer than 63 characters")
    if not _LABEL.fullmatch(text):
        problems.append(f"{text!r} must consist of a-z, 0-9 and '-', and begin and end with a letter or digit")
    return problems


def dns_subdomain_problems(text: str) -> list[str]:
    """Why `text` is not a DNS-1123 subdomain (names of nodes and most objects): labels joined by dots, at most 253."""
    problems = []
    if len(text) > 253:
        problems.append(f"{text!r} is longer than 253 characters")
    if not all(_LABEL.fullmatch(part) for part in text.split(".")):
        problems.append(
            f"{text!r} must consist of a-z, 0-9, '-' and '.', and each part must begin and end with a letter or digit"
        )
    return problems


def label_key_problems(key: str) -> list[str]:
    """Why `key` is not a label or annotation key: an optional DNS prefix and a slash, then a name of at most 63."""
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
    """Why `value` is not a label value: empty, or at most 63 letters, digits and inner '-', '_', '.'."""
    problems = []
    if len(value) > 63:
        problems.append(f"{value!r} is longer than 63 characters")
    if value and not _QUALIFIED.fullmatch(value):
        problems.append(f"{value!r} {_QUALIFIED_RULE}")
    return problems
