"""Some hundred pods, and what the rules say about each as it is: the table that the pure function, the policy and the
webhook are compared with.

A `Case` has a pod that is complete (nothing is left open, so that nothing has to be set) but for the part that it is
about, and the rule that refuses it; empty for an admitted one.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from bedplate.api import meta, permissions
from bedplate.api.permissions import PermissionUser, PermissionUserSpec
from bedplate.operators.permissions import baseline, decision, refusals
from bedplate.operators.permissions.rules import NamespaceRules

Pod = dict[str, Any]
UID, GIDS = 1000, (1000, 100)
HOST, PRIVILEGES = refusals.HOST_PATHS, refusals.PRIVILEGES
# Rules about containers have longer names that begin like this one.
USER = GROUP = refusals.IDENTITY
BASELINE, PORTS, PRIORITY, VOLUMES = refusals.BASELINE, refusals.HOST_PORTS, refusals.PRIORITY, refusals.VOLUMES
SIZE = refusals.SIZE


class Case(msgspec.Struct, frozen=True):
    """A pod of a user; `rule` is the one that refuses it."""

    name: str
    user: str
    pod: Pod
    rule: str = ""


def resource(name: str, namespace: str, **spec: Any) -> PermissionUser:
    """The custom resource of one of the users of the table."""
    fields: dict[str, Any] = {"username": name, "namespace": namespace, "uid": UID, "gids": GIDS}
    fields["user_paths"] = ("/home/john", "/scratch/")
    values = PermissionUserSpec(**{**fields, **spec})
    metadata = meta.ObjectMeta(name=permissions.release_name(name, namespace), namespace=permissions.NAMESPACE)
    return PermissionUser(metadata=metadata, spec=values, kind=permissions.USERS.kind)


USERS: dict[str, dict[str, Any]] = {
    "john": {},
    "free": {"allow_all_uids": True},
    "power": {"allowPrivileged": True, "allowPrivilegeEscalation": True},
    "nobody": {"uid": permissions.UNKNOWN, "gids": (permissions.UNKNOWN,)},
    "pathless": {"user_paths": ()},
}
"""What the spec of each user says besides the defaults of `resource`."""


def rules(user: str) -> NamespaceRules:
    """The rules of the namespace of a user."""
    return NamespaceRules.of([resource(user, f"{user}-restricted", **USERS[user])])


def complete(**changes: Any) -> Pod:
    """A pod of john that leaves nothing open."""
    context = {"runAsUser": UID, "runAsGroup": GIDS[0], "fsGroup": GIDS[0], "supplementalGroups": list(GIDS)}
    container = {"name": "main", "image": "busybox", "securityContext": {"allowPrivilegeEscalation": False}}
    spec: dict[str, Any] = {"securityContext": context, "containers": [container], **changes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}


def whole(**context: Any) -> Pod:
    """With other values in the pod's security context; None removes one."""
    pod = complete()
    merged = {**pod["spec"]["securityContext"], **context}
    pod["spec"]["securityContext"] = {key: value for key, value in merged.items() if value is not None}
    return pod


def contained(pod: Pod | None = None, kind: str = "containers", **context: Any) -> Pod:
    """With other values in the security context of a container of this kind; None removes one."""
    changed = copy.deepcopy(pod if pod is not None else complete())
    spec = changed["spec"]
    if kind == "initContainers":
        spec[kind] = [{**copy.deepcopy(spec["containers"][0]), "name": "first"}]
    merged = {**spec[kind][0].get("securityContext", {}), **context}
    spec[kind][0]["securityContext"] = {key: value for key, value in merged.items() if value is not None}
    return changed


def mounting(path: str, pod: Pod | None = None, **source: Any) -> Pod:
    """With a host path, and all that a pod with one needs."""
    changed = copy.deepcopy(pod if pod is not None else complete())
    changed["spec"].setdefault("volumes", []).append({"name": "h", "hostPath": {"path": path, **source}})
    changed["spec"].setdefault("securityContext", {})["supplementalGroupsPolicy"] = "Strict"
    return changed


def contain(**fields: Any) -> Pod:
    """With other fields of its container."""
    pod = complete()
    pod["spec"]["containers"][0].update(fields)
    return pod


def open_pod(**context: Any) -> Pod:
    """A pod that says nothing, but what is given for the whole pod."""
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "busybox"}]}
    return {"metadata": {"name": "pod"}, "spec": {**spec, **({"securityContext": context} if context else {})}}


def _host_paths() -> list[Case]:
    admitted = (
        "/home/john",
        "/home/john/",
        "/home/john/data",
        "/home//john",
        "/home/./john/x",
        "/scratch",
        "/scratch/deep/er",
        "//home/john",
    )
    refused = (
        "/",
        "/home",
        "/home/",
        "/home/johnny",
        "/home/johnny/x",
        "/home/joh",
        "/home/jane",
        "/etc",
        "/etc/kubernetes",
        "/var/run/docker.sock",
        "/root",
        "/proc",
        "/scratchy",
        "/Home/john",
        "/x/home/john",
        "/home/john x",
    )
    cases = [Case(f"path {path}", "john", mounting(path)) for path in admitted]
    cases += [Case(f"path {path}", "john", mounting(path), HOST) for path in refused]
    two = mounting("/home/john")
    two["spec"]["volumes"].append({"name": "second", "hostPath": {"path": "/etc"}})
    unmounted = mounting("/etc")
    subpath = mounting("/etc")
    subpath["spec"]["containers"][0]["volumeMounts"] = [{"name": "h", "mountPath": "/m", "subPath": "ssh"}]
    inside = mounting("/home/john")
    inside["spec"]["containers"][0]["volumeMounts"] = [{"name": "h", "mountPath": "/m", "subPath": "data"}]
    return [
        *cases,
        Case("the second of two paths", "john", two, HOST),
        Case("a path that nothing mounts", "john", unmounted, HOST),
        Case("a foreign path by way of a subPath", "john", subpath, HOST),
        Case("a subPath of the own path", "john", inside),
        Case("Directory", "john", mounting("/home/john/d", type="Directory")),
        Case("DirectoryOrCreate", "john", mounting("/home/john/d", type="DirectoryOrCreate"), HOST),
        Case("FileOrCreate", "john", mounting("/home/john/f", type="FileOrCreate"), HOST),
        Case("a path without an identity", "nobody", mounting("/home/john"), HOST),
        Case("a path of a user without paths", "pathless", mounting("/home/john"), HOST),
        Case("no path of a user without paths", "pathless", complete()),
        Case(
            "a repository", "john", complete(volumes=[{"name": "r", "gitRepo": {"repository": "https://x/y"}}]), VOLUMES
        ),
        Case(
            "a repository as anybody",
            "free",
            complete(volumes=[{"name": "r", "gitRepo": {"repository": "u"}}]),
            VOLUMES,
        ),
        Case("other volumes", "john", complete(volumes=[{"name": "e", "emptyDir": {}}])),
        Case("groups of the image beside a path", "john", _without_strict(mounting("/home/john")), GROUP),
    ]


def _without_strict(pod: Pod) -> Pod:
    del pod["spec"]["securityContext"]["supplementalGroupsPolicy"]
    return pod


def _identities() -> list[Case]:
    both = contained(whole(runAsUser=None, runAsGroup=None), runAsUser=UID, runAsGroup=GIDS[0])
    return [
        Case("complete", "john", complete()),
        Case("nothing set", "john", open_pod(), USER),
        Case("root", "john", whole(runAsUser=0), USER),
        Case("another user", "john", whole(runAsUser=1001), USER),
        Case("no user", "john", whole(runAsUser=None), USER),
        Case("no group", "john", whole(runAsGroup=None), GROUP),
        Case("root's group", "john", whole(runAsGroup=0), GROUP),
        Case("the second group", "john", whole(runAsGroup=100)),
        Case("root's fsGroup", "john", whole(fsGroup=0), GROUP),
        Case("no fsGroup", "john", whole(fsGroup=None)),
        Case("the second group as fsGroup", "john", whole(fsGroup=100)),
        Case("a foreign supplementary group", "john", whole(supplementalGroups=[1000, 0]), GROUP),
        Case("no supplementary groups", "john", whole(supplementalGroups=None)),
        Case("one supplementary group", "john", whole(supplementalGroups=[100])),
        Case("user and group in the container", "john", both),
        Case("root in a container", "john", contained(runAsUser=0), USER),
        Case("root's group in a container", "john", contained(runAsGroup=0), GROUP),
        Case("root in an init container", "john", contained(kind="initContainers", runAsUser=0), USER),
        Case("root's group in an init container", "john", contained(kind="initContainers", runAsGroup=0), GROUP),
        Case("a good init container", "john", contained(kind="initContainers", runAsUser=UID)),
        Case(
            "a foreign user for the pod, the own one for the container",
            "john",
            contained(whole(runAsUser=5), runAsUser=UID),
            USER,
        ),
        Case("runAsNonRoot alone", "john", whole(runAsUser=None, runAsNonRoot=True), USER),
        Case("anybody may be root without a path", "free", whole(runAsUser=0, runAsGroup=0, fsGroup=0)),
        Case("nothing set is as good", "free", open_pod()),
        Case("root with a path", "free", mounting("/home/john", whole(runAsUser=0)), USER),
        Case("another user with a path", "free", mounting("/home/john", whole(runAsUser=7)), USER),
        Case("a foreign group with a path", "free", mounting("/home/john", whole(runAsGroup=7)), GROUP),
        Case("oneself with a path", "free", mounting("/home/john")),
        Case("a foreign path as root", "free", mounting("/etc", whole(runAsUser=0)), HOST),
        Case("nothing set with a path", "free", mounting("/home/john", open_pod()), USER),
        Case(
            "no identity is forced that is not known", "nobody", contained(open_pod(), allowPrivilegeEscalation=False)
        ),
    ]


def many(count: int) -> Pod:
    """With so many containers and init containers."""
    pod = complete()
    (container,) = pod["spec"]["containers"]
    pod["spec"]["containers"] = [{**container, "name": f"c{number}"} for number in range(count)]
    pod["spec"]["initContainers"] = [{**container, "name": f"i{number}"} for number in range(count)]
    return pod


def _sizes() -> list[Case]:
    empty = [{"name": f"v{number}", "emptyDir": {}} for number in range(decision.LARGEST + 1)]
    return [
        Case("all containers that a pod may have", "john", many(decision.LARGEST)),
        Case("a container too many", "john", many(decision.LARGEST + 1), SIZE),
        Case("all volumes that a pod may have", "john", complete(volumes=empty[1:])),
        Case("a volume too many", "john", complete(volumes=empty), SIZE),
    ]


def _privileges() -> list[Case]:
    cases = [
        Case("privileged", "john", contained(privileged=True, allowPrivilegeEscalation=None), PRIVILEGES),
        Case("a privileged init container", "john",
             contained(kind="initContainers", privileged=True, allowPrivilegeEscalation=None), PRIVILEGES),
        Case("privileged: false", "john", contained(privileged=False)),
        Case("escalation", "john", contained(allowPrivilegeEscalation=True), PRIVILEGES),
        Case("escalation not said", "john", contained(allowPrivilegeEscalation=None), PRIVILEGES),
        Case("escalation in an init container", "john",
             contained(kind="initContainers", allowPrivilegeEscalation=True), PRIVILEGES),
        Case("privileged where it is allowed", "power", contained(privileged=True, allowPrivilegeEscalation=None)),
        Case("escalation where it is allowed", "power", contained(allowPrivilegeEscalation=True)),
        Case("not said where it is allowed", "power", contained(allowPrivilegeEscalation=None)),
        Case("root where privileges are allowed", "power", whole(runAsUser=0), USER),
        Case("escalation without a prescribed user", "free",
             contained(open_pod(), allowPrivilegeEscalation=True), PRIVILEGES),
        Case("privileged without a prescribed user", "free", contained(open_pod(), privileged=True), PRIVILEGES),
    ]  # fmt: skip
    cases += [
        Case(f"capability {name}", "john", contained(capabilities={"add": [name]}), BASELINE)
        for name in ("NET_ADMIN", "NET_RAW", "SYS_PTRACE", "ALL", "CAP_CHOWN")
    ]
    cases += [
        Case(f"capability {name}", "john", contained(capabilities={"add": [name]}))
        for name in baseline.CAPABILITIES[:4]
    ]
    return [*cases, Case("dropped capabilities", "john", contained(capabilities={"drop": ["ALL"]}))]


def _baseline() -> list[Case]:
    cases = [Case(name, "john", complete(**{name: True}), BASELINE) for name in baseline.HOST_NAMESPACES]
    cases += [
        Case(f"{name} even with privileges", "power", complete(**{name: True}), BASELINE) for name in ("hostPID",)
    ]
    cases += [
        Case(f"sysctl {name}", "john", whole(sysctls=[{"name": name, "value": "1"}]))
        for name in ("net.ipv4.tcp_syncookies", "kernel.shm_rmid_forced")
    ]
    unconfined = {"type": "Unconfined"}
    annotated = complete()
    annotated["metadata"]["annotations"] = {f"{baseline.APPARMOR_PREFIX}main": "unconfined"}
    fine = complete()
    fine["metadata"]["annotations"] = {f"{baseline.APPARMOR_PREFIX}main": "runtime/default", "other": "x"}
    probe = {"httpGet": {"path": "/", "port": 80}}
    elsewhere = {"httpGet": {"path": "/", "port": 80, "host": "169.254.169.254"}}
    tcp = {"tcpSocket": {"port": 80, "host": "10.0.0.1"}}
    return [
        *cases,
        Case("an unsafe sysctl", "john", whole(sysctls=[{"name": "kernel.msgmax", "value": "1"}]), BASELINE),
        Case("no seccomp", "john", whole(seccompProfile=unconfined), BASELINE),
        Case("no seccomp in a container", "john", contained(seccompProfile=unconfined), BASELINE),
        Case("the runtime's seccomp", "john", whole(seccompProfile={"type": "RuntimeDefault"})),
        Case("no AppArmor", "john", whole(appArmorProfile=unconfined), BASELINE),
        Case("no AppArmor in a container", "john", contained(appArmorProfile=unconfined), BASELINE),
        Case("no AppArmor by annotation", "john", annotated, BASELINE),
        Case("AppArmor by annotation", "john", fine),
        Case("an SELinux type", "john", whole(seLinuxOptions={"type": "spc_t"}), BASELINE),
        Case("the SELinux type of containers", "john", whole(seLinuxOptions={"type": "container_t"})),
        Case("an SELinux user", "john", contained(seLinuxOptions={"user": "system_u"}), BASELINE),
        Case("an SELinux role", "john", contained(seLinuxOptions={"role": "system_r"}), BASELINE),
        Case("an SELinux level", "john", contained(seLinuxOptions={"level": "s0:c1"})),
        Case("procMount Default", "john", contained(procMount="Default")),
        Case("a host port", "john", contain(ports=[{"containerPort": 80, "hostPort": 80}]), PORTS),
        Case("a container port", "john", contain(ports=[{"containerPort": 8080}])),
        Case("a probe", "john", contain(livenessProbe=probe)),
        Case("a probe elsewhere", "john", contain(livenessProbe=elsewhere), BASELINE),
        Case("a readiness probe elsewhere", "john", contain(readinessProbe=tcp), BASELINE),
        Case("a startup probe elsewhere", "john", contain(startupProbe=tcp), BASELINE),
        Case("a hook elsewhere", "john", contain(lifecycle={"preStop": elsewhere}), BASELINE),
        Case("a hook", "john", contain(lifecycle={"postStart": {"exec": {"command": ["true"]}}})),
        Case("a node of choice", "john", complete(nodeName="node001")),
        Case("a toleration of everything", "john", complete(tolerations=[{"operator": "Exists"}])),
        Case("a shared process namespace", "john", complete(shareProcessNamespace=True)),
    ]  # fmt: skip


def cases() -> list[Case]:
    """All that an API server would take. What it refuses before it asks anybody is in `early`."""
    return [*_host_paths(), *_identities(), *_sizes(), *_privileges(), *_baseline()]


def early() -> list[Case]:
    """Pods that an API server refuses by itself, in whole or with some features."""
    unmasked = contained(procMount="Unmasked")
    unmasked["spec"]["hostUsers"] = False
    return [
        Case("capability SYS_ADMIN", "john", contained(capabilities={"add": ["SYS_ADMIN"]}), BASELINE),
        Case("procMount Unmasked", "john", unmasked, BASELINE),
        Case("system-node-critical", "john", complete(priorityClassName="system-node-critical"), PRIORITY),
        Case("system-cluster-critical", "john", complete(priorityClassName="system-cluster-critical"), PRIORITY),
        Case("dots", "john", mounting("/home/john/../jane"), HOST),
        Case("dots at the end", "john", mounting("/home/john/.."), HOST),
        Case("a relative path", "john", mounting("home/john"), HOST),
        Case("an empty path", "john", mounting(""), HOST),
        Case("Windows", "john", complete(os={"name": "windows"}), USER),
        Case("Windows as anybody", "free", {**open_pod(), "spec": {**open_pod()["spec"], "os": {"name": "windows"}}}),
        Case("Windows host process", "john", whole(windowsOptions={"hostProcess": True}), BASELINE),
    ]
