"""Pod Security admission: what the label `pod-security.kubernetes.io/enforce` of a namespace asks of a pod. Pure.

In: a Namespace and a pod as it would be created. Out: findings. The standard `baseline` is that of the permission
manager's rules, with host paths; `restricted` adds what is listed here. The version label is ignored: the newest
standard holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from bedplate.operators.permissions import baseline, pods, refusals
from bedplate.operators.permissions.pods import Container
from bedplate.operators.permissions.refusals import Refusal

__all__ = ["findings"]

LABEL = "pod-security.kubernetes.io/enforce"
VOLUMES = (
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
)
PROFILES = ("RuntimeDefault", "Localhost")


def findings(namespace: Mapping[str, Any], pod: Mapping[str, Any]) -> Iterator[Refusal]:
    """Everything that the namespace's standard does not allow."""
    level = pods.mapped(pods.mapped(namespace.get("metadata")).get("labels")).get(LABEL)
    if level in ("baseline", "restricted"):
        for finding in _baseline(pod):
            yield msgspec.structs.replace(finding, rule="pod-security-baseline")
    if level == "restricted":
        yield from _restricted(pod)


def _baseline(pod: Mapping[str, Any]) -> Iterator[Refusal]:
    for finding in baseline.findings(pod):
        # Not part of the standard.
        if finding.rule != refusals.PRIORITY:
            yield finding
    for field, volume in pods.volumes(pod):
        if volume.get("hostPath") is not None:
            yield Refusal("", f"{field}.hostPath", "host paths are not allowed", "use another kind of volume")
    for container in pods.containers(pod):
        if container.security.get("privileged") is True:
            field = f"{container.field}.securityContext.privileged"
            yield Refusal("", field, "privileged containers are not allowed", "remove it")


def _restricted(pod: Mapping[str, Any]) -> Iterator[Refusal]:
    whole = pods.security(pod)
    for field, volume in pods.volumes(pod):
        if not any(volume.get(kind) is not None for kind in VOLUMES) and set(volume) - {"name", "hostPath"}:
            yield _finding(field, "this kind of volume is not allowed", f"use one of {', '.join(VOLUMES)}")
    if whole.get("runAsUser") == 0:
        yield _finding("spec.securityContext.runAsUser", "root is not allowed", "choose another UID")
    for container in pods.containers(pod):
        yield from _container(container, whole)


def _container(container: Container, whole: Mapping[str, Any]) -> Iterator[Refusal]:
    field, context = f"{container.field}.securityContext", container.security
    if context.get("runAsUser") == 0:
        yield _finding(f"{field}.runAsUser", "root is not allowed", "choose another UID")
    if context.get("runAsNonRoot", whole.get("runAsNonRoot")) is not True:
        yield _finding(f"{field}.runAsNonRoot", "must be true for the pod or the container", "set it to true")
    if context.get("allowPrivilegeEscalation") is not False:
        yield _finding(f"{field}.allowPrivilegeEscalation", "must be false", "set it to false")
    profile = pods.mapped(context.get("seccompProfile") or whole.get("seccompProfile")).get("type")
    if profile not in PROFILES:
        yield _finding(f"{field}.seccompProfile.type", "must be set for the pod or the container", "use RuntimeDefault")
    capabilities = pods.mapped(context.get("capabilities"))
    if "ALL" not in pods.listed(capabilities.get("drop")):
        yield _finding(f"{field}.capabilities.drop", "must contain ALL", 'set it to ["ALL"]')
    for index, name in enumerate(pods.listed(capabilities.get("add"))):
        if name != "NET_BIND_SERVICE" and name in baseline.CAPABILITIES:
            yield _finding(f"{field}.capabilities.add[{index}]", f"{name!r} is not allowed", "remove it")


def _finding(field: str, message: str, remedy: str) -> Refusal:
    return Refusal("pod-security-restricted", field, message, remedy)
