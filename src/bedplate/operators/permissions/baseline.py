"""The Pod Security Standard "baseline", but for host paths, which have a rule of their own.

In: a pod. Out: findings without the name of a rule set: rule, field, message, remedy. Pure. `policies.py` says the same
in CEL; both are compared on a real API server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bedplate.operators.permissions import pods, refusals
from bedplate.operators.permissions.pods import Container
from bedplate.operators.permissions.refusals import Refusal

__all__ = ["findings"]

CAPABILITIES = (
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
)
SYSCTLS = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
)
SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
HOST_NAMESPACES = ("hostNetwork", "hostPID", "hostIPC")
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
HOOKS = ("postStart", "preStop")
APPARMOR_PREFIX = "container.apparmor.security.beta.kubernetes.io/"
SYSTEM_CLASSES = "system-"


def findings(pod: Mapping[str, Any]) -> Iterator[Refusal]:
    """Everything in the pod that the standard does not allow, and host ports and system priority classes."""
    spec = pods.spec_of(pod)
    for name in HOST_NAMESPACES:
        if spec.get(name) is True:
            yield _finding(f"spec.{name}", "the namespaces of the node cannot be shared", f"remove {name}")
    yield from _contexts("spec.securityContext", pods.security(pod))
    for index, sysctl in enumerate(pods.listed(pods.security(pod).get("sysctls"))):
        name = str(pods.mapped(sysctl).get("name", ""))
        if name not in SYSCTLS:
            yield _finding(f"spec.securityContext.sysctls[{index}]", f"{name!r} is not a safe sysctl", "remove it")
    yield from _annotations(pod)
    priority = spec.get("priorityClassName")
    if isinstance(priority, str) and priority.startswith(SYSTEM_CLASSES):
        message = f"the priority class {priority!r} is reserved for the cluster"
        yield Refusal(refusals.PRIORITY, "spec.priorityClassName", message, "choose another class or none")
    for container in pods.containers(pod):
        yield from _container(container)


def _finding(field: str, message: str, remedy: str) -> Refusal:
    return Refusal(refusals.BASELINE, field, message, remedy)


def _annotations(pod: Mapping[str, Any]) -> Iterator[Refusal]:
    annotations = pods.mapped(pods.mapped(pod.get("metadata")).get("annotations"))
    for key, value in annotations.items():
        is_known = value == "runtime/default" or str(value).startswith("localhost/")
        if str(key).startswith(APPARMOR_PREFIX) and not is_known:
            message = f"the AppArmor profile {value!r} is not allowed"
            yield _finding(f"metadata.annotations[{key}]", message, "remove the annotation")


def _contexts(field: str, context: Mapping[str, Any]) -> Iterator[Refusal]:
    """What a pod's security context and a container's have in common."""
    for name in ("seccompProfile", "appArmorProfile"):
        if pods.mapped(context.get(name)).get("type") == "Unconfined":
            yield _finding(f"{field}.{name}.type", "Unconfined is not allowed", "use RuntimeDefault")
    selinux = pods.mapped(context.get("seLinuxOptions"))
    if selinux.get("type", "") not in SELINUX_TYPES:
        message = f"the SELinux type {selinux['type']!r} is not allowed"
        yield _finding(f"{field}.seLinuxOptions.type", message, "remove it")
    for name in ("user", "role"):
        if selinux.get(name):
            yield _finding(f"{field}.seLinuxOptions.{name}", f"the SELinux {name} cannot be chosen", "remove it")
    if pods.mapped(context.get("windowsOptions")).get("hostProcess") is True:
        yield _finding(f"{field}.windowsOptions.hostProcess", "host processes are not allowed", "remove it")


def _container(container: Container) -> Iterator[Refusal]:
    field, context = f"{container.field}.securityContext", container.security
    yield from _contexts(field, context)
    if context.get("procMount", "Default") not in ("Default", None):
        yield _finding(f"{field}.procMount", f"{context['procMount']!r} is not allowed", "use Default")
    for index, name in enumerate(pods.listed(pods.mapped(context.get("capabilities")).get("add"))):
        if name not in CAPABILITIES:
            path = f"{field}.capabilities.add[{index}]"
            yield _finding(path, f"the capability {name!r} is not allowed", "remove it")
    for index, port in enumerate(pods.listed(container.value.get("ports"))):
        number = pods.mapped(port).get("hostPort") or 0
        if number:
            path = f"{container.field}.ports[{index}].hostPort"
            message = f"the port {number} of the node cannot be used"
            yield Refusal(refusals.HOST_PORTS, path, message, "remove hostPort and use a Service")
    yield from _hosts(container)


def _hosts(container: Container) -> Iterator[Refusal]:
    lifecycle = pods.mapped(container.value.get("lifecycle"))
    handlers = [(name, container.value.get(name)) for name in PROBES]
    handlers += [(f"lifecycle.{name}", lifecycle.get(name)) for name in HOOKS]
    for name, handler in handlers:
        for action in ("httpGet", "tcpSocket"):
            if pods.mapped(pods.mapped(handler).get(action)).get("host"):
                field = f"{container.field}.{name}.{action}.host"
                yield _finding(field, "a probe may only reach the pod itself", "remove host")
