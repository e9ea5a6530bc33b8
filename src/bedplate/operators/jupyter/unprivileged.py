"""A kernel's pod runs as its user and without privileges.

In: a PodSpec as it was given, the user's numbers. Out: what in it asks for more than an ordinary process has, each with
its field; and the spec with everything set that makes it one. Pure. What contradicts is refused instead of changed in
silence: who asks for `privileged: true` learns that there is none. Which folders of a node may be mounted is for the
policies of the namespace, which judge the pod that is made of this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["problems", "restricted"]

_HOST = ("hostNetwork", "hostPID", "hostIPC")
_CONTAINERS = ("initContainers", "containers")


def problems(pod: Mapping[str, Any], uid: int, gid: int) -> list[str]:
    """Everything in a PodSpec that an unprivileged pod of this user must not have."""
    return [*_pod_problems(pod, uid, gid), *_all_container_problems(pod, uid, gid)]


def restricted(pod: Mapping[str, Any], uid: int, gid: int) -> dict[str, Any]:
    """The PodSpec, run as this user; of a spec without problems."""
    given = pod.get("securityContext") or {}
    context = {"fsGroup": gid, "seccompProfile": {"type": "RuntimeDefault"}, **given}
    context |= {"runAsUser": uid, "runAsGroup": gid, "runAsNonRoot": True}
    fixed = {**pod, "securityContext": context}
    for kind in _CONTAINERS:
        if pod.get(kind):
            fixed[kind] = [_restricted_container(container) for container in pod[kind]]
    return fixed


def _restricted_container(container: Mapping[str, Any]) -> dict[str, Any]:
    context = {
        **(container.get("securityContext") or {}),
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    return {**container, "securityContext": context}


def _pod_problems(pod: Mapping[str, Any], uid: int, gid: int) -> Iterator[str]:
    for number, name in ((uid, "uid"), (gid, "gid")):
        if number < 1:
            yield f"spec.{name}: must be at least 1, is {number}: a kernel does not run as root"
    yield from (f"spec.pod.{name}: must not be true" for name in _HOST if pod.get(name))
    path, context = "spec.pod.securityContext", pod.get("securityContext") or {}
    yield from _context_problems(path, context, uid, gid)
    if context.get("fsGroup") == 0:
        yield f"{path}.fsGroup: must not be 0"
    if 0 in (context.get("supplementalGroups") or ()):
        yield f"{path}.supplementalGroups: must not contain 0"
    if context.get("sysctls"):
        yield f"{path}.sysctls: must not be set"


def _all_container_problems(pod: Mapping[str, Any], uid: int, gid: int) -> Iterator[str]:
    for kind in _CONTAINERS:
        for number, container in enumerate(pod.get(kind) or ()):
            yield from _container_problems(f"spec.pod.{kind}[{number}]", container, uid, gid)
    if pod.get("ephemeralContainers"):
        yield "spec.pod.ephemeralContainers: must not be set"


def _container_problems(path: str, container: Mapping[str, Any], uid: int, gid: int) -> Iterator[str]:
    context = container.get("securityContext") or {}
    yield from _context_problems(f"{path}.securityContext", context, uid, gid)
    for name in ("privileged", "allowPrivilegeEscalation"):
        if context.get(name):
            yield f"{path}.securityContext.{name}: must not be true"
    if added := (context.get("capabilities") or {}).get("add"):
        yield f"{path}.securityContext.capabilities.add: must be empty, has {', '.join(map(str, added))}"
    if context.get("procMount") not in (None, "Default"):
        yield f"{path}.securityContext.procMount: must be Default"
    for number, port in enumerate(container.get("ports") or ()):
        if port.get("hostPort"):
            yield f"{path}.ports[{number}].hostPort: must not be set"


def _context_problems(path: str, context: Mapping[str, Any], uid: int, gid: int) -> Iterator[str]:
    """What pods and containers have in common."""
    for name, number, source in (("runAsUser", uid, "uid"), ("runAsGroup", gid, "gid")):
        if context.get(name) not in (None, number):
            yield f"{path}.{name}: must be spec.{source} ({number}), is {context[name]}"
    if context.get("runAsNonRoot") is False:
        yield f"{path}.runAsNonRoot: must not be false"
    for name in ("seccompProfile", "appArmorProfile"):
        if (context.get(name) or {}).get("type") == "Unconfined":
            yield f"{path}.{name}.type: must not be Unconfined"
    if (context.get("windowsOptions") or {}).get("hostProcess"):
        yield f"{path}.windowsOptions.hostProcess: must not be true"
    if (context.get("seLinuxOptions") or {}).get("user") or (context.get("seLinuxOptions") or {}).get("role"):
        yield f"{path}.seLinuxOptions: user and role must not be set"
