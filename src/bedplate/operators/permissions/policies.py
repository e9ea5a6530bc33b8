"""The rules about pods as one ValidatingAdmissionPolicy with one binding.

In: whether the server knows `supplementalGroupsPolicy`. Out: the two objects, in raw form. Pure. The expressions read
the rules from the annotations of the pod's namespace, so that one policy serves every user, and a further user costs
nothing. They judge a pod as `decision.check` does, but for claims: an expression cannot look at volumes of the cluster.
"""

from __future__ import annotations

from typing import Any

from bedplate.api import permissions
from bedplate.api.resources import RawObject, custom
from bedplate.operators.permissions import baseline, decision, pods, refusals, volumes

__all__ = ["BINDINGS", "POLICIES", "namespaces", "objects"]

GROUP = "admissionregistration.k8s.io"
POLICIES = custom(GROUP, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False)
BINDINGS = custom(GROUP, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False)
NAME = f"pods.{permissions.GROUP}"

_LABELS = {"app.kubernetes.io/managed-by": permissions.FIELD_MANAGER}
_PARTS = "v.hostPath.path.split('/')"
_LINE = f"'path=/' + {_PARTS}.filter(p, p != '' && p != '.').map(p, p + '/').join('')"
_IS_OWN = (
    "r.exists(l, l.startsWith('path=') && p.startsWith(l))"
    " && r.exists(l, l.startsWith('uid=')) && r.exists(l, l.startsWith('gid='))"
)
_OWN_NUMBERS = "(variables.host ? variables.sets.all(r, n in r) : variables.sets.exists(r, n in r))"
_CONTAINER = "c.?securityContext"
_CONTEXTS = "variables.contexts"


def objects(*, has_strict_groups: bool) -> list[RawObject]:
    """The policy and its binding."""
    return [_policy(has_strict_groups), _binding()]


def _policy(has_strict_groups: bool) -> RawObject:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": NAME, "labels": _LABELS},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": {},
                "objectSelector": {},
                "resourceRules": [_resource("pods", "CREATE"), _resource("pods/ephemeralcontainers", "UPDATE")],
            },
            "variables": [{"name": name, "expression": text} for name, text in _variables().items()],
            "validations": [_validation(*each) for each in _validations(has_strict_groups)],
        },
    }


def _binding() -> RawObject:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": NAME, "labels": _LABELS},
        "spec": {
            "policyName": NAME,
            "validationActions": ["Deny"],
            "matchResources": {"matchPolicy": "Equivalent", "namespaceSelector": namespaces(), "objectSelector": {}},
        },
    }


def namespaces(checked: str = "") -> dict[str, Any]:
    """The selector of restricted namespaces, and never of one of the cluster itself, whoever labelled it. `checked`: of
    those alone whose final pods are checked like that."""
    key, own = permissions.LABEL_POD_RULES, "kubernetes.io/metadata.name"
    protected = [*permissions.PROTECTED, "kube-node-lease", "kube-public"]
    marked: dict[str, Any] = {"key": key, "operator": "Exists"}
    if checked:
        marked = {"key": key, "operator": "In", "values": [checked]}
    return {"matchExpressions": [marked, {"key": own, "operator": "NotIn", "values": protected}]}


def _resource(name: str, operation: str) -> dict[str, Any]:
    return {"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [name], "scope": "*"}


def _variables() -> dict[str, str]:
    key = f"k.startsWith('{permissions.RULES_PREFIX}')"
    uid, gid = _effective("runAsUser", "uid="), _effective("runAsGroup", "gid=")
    groups = "variables.context.?supplementalGroups.orValue([]).map(n, 'gid=' + string(n))"
    fs_group = "(variables.context.?fsGroup.hasValue() ? ['gid=' + string(variables.context.fsGroup)] : [])"
    return {
        "notes": "namespaceObject.metadata.?annotations.orValue({})",
        "sets": f"variables.notes.filter(k, {key}).map(k, variables.notes[k].split('\\n'))",
        "rule": "size(variables.sets) > 0 ? variables.sets[0][0].substring(8) + '-' : ''",
        "volumes": "object.spec.?volumes.orValue([])",
        "hosts": "variables.volumes.filter(v, has(v.hostPath))",
        "host": "size(variables.hosts) > 0",
        # As the line of a rule that allows exactly this path; empty where no rule can.
        "paths": (
            f"variables.hosts.map(v, v.hostPath.path.startsWith('/') && !{_PARTS}.exists(p, p == '..') ? {_LINE} : '')"
        ),
        "context": "object.spec.?securityContext.orValue({})",
        "containers": (
            "object.spec.containers + object.spec.?initContainers.orValue([])"
            " + object.spec.?ephemeralContainers.orValue([])"
        ),
        "contexts": "[variables.context] + variables.containers.map(c, c.?securityContext.orValue({}))",
        "bound": "variables.sets.filter(r, variables.host || !('allow=all-uids' in r))",
        "uids": uid,
        "gids": f"{gid} + {fs_group} + {groups}",
    }


def _effective(name: str, prefix: str) -> str:
    """The numbers in effect for all containers, and the pod's own if it has one."""
    whole = f"variables.context.?{name}"
    each = f"variables.containers.map(c, '{prefix}' + string({_CONTAINER}.?{name}.orValue({whole}.orValue(-1))))"
    return f"{each} + ({whole}.hasValue() ? ['{prefix}' + string(variables.context.{name})] : [])"


def _validations(has_strict_groups: bool) -> list[tuple[str, str, str]]:
    """Rule, expression and what is wrong when it is false."""
    strict = "!variables.host || variables.context.?supplementalGroupsPolicy.orValue('') == 'Strict'"
    return [
        ("pod-rules", "size(variables.sets) > 0", "the namespace has lost its rules: wait for the permission manager"),
        (
            refusals.SIZE,
            " && ".join(f"size(object.spec.?{name}.orValue([])) <= {decision.LARGEST}" for name in pods.COUNTED),
            f"spec: at most {decision.LARGEST} containers and volumes are allowed",
        ),
        (
            refusals.HOST_PATHS,
            f"variables.paths.all(p, variables.sets.all(r, {_IS_OWN}))"
            f" && !variables.hosts.exists(v, v.hostPath.?type.orValue('') in {_listed(volumes.CREATING)})",
            "spec.volumes: a hostPath is not one of the user, or would be created as root",
        ),
        (
            refusals.VOLUMES,
            "!variables.volumes.exists(v, has(v.gitRepo))",
            "spec.volumes: gitRepo is not allowed: the node would run git as root",
        ),
        (
            refusals.IDENTITY_CONTAINERS,
            f"!variables.bound.exists(r, r.exists(l, l.startsWith('uid='))) || variables.uids.all(n, {_OWN_NUMBERS})",
            "securityContext.runAsUser must be the UID of the user",
        ),
        (
            refusals.IDENTITY,
            f"!variables.bound.exists(r, r.exists(l, l.startsWith('gid='))) || variables.gids.all(n, {_OWN_NUMBERS})",
            "securityContext: runAsGroup, fsGroup and supplementalGroups must be GIDs of the user",
        ),
        *(
            [(refusals.IDENTITY, strict, "spec.securityContext.supplementalGroupsPolicy must be Strict")]
            if has_strict_groups
            else []
        ),
        *_privileges(),
        *_baseline(),
    ]


def _privileges() -> list[tuple[str, str, str]]:
    privileged = f"{_CONTAINER}.?privileged.orValue(false)"
    escalation = f"{_CONTAINER}.?allowPrivilegeEscalation"
    allowed = f"size(variables.bound) > 0 ? !{escalation}.orValue(true) : !{escalation}.orValue(false)"
    return [
        (
            refusals.PRIVILEGES,
            f"variables.sets.all(r, 'allow=privileged' in r) || !variables.containers.exists(c, {privileged})",
            "securityContext.privileged is not allowed",
        ),
        (
            refusals.PRIVILEGES,
            "variables.sets.all(r, 'allow=escalation' in r)"
            f" || variables.containers.all(c, {privileged} || ({allowed}))",
            "securityContext.allowPrivilegeEscalation must be false",
        ),
    ]


def _baseline() -> list[tuple[str, str, str]]:
    namespaces = " && ".join(f"!object.spec.?{name}.orValue(false)" for name in baseline.HOST_NAMESPACES)
    selinux = "x.?seLinuxOptions"
    options = (
        f"{_CONTEXTS}.all(x, {selinux}.?type.orValue('') in {_listed(baseline.SELINUX_TYPES)}"
        f" && {selinux}.?user.orValue('') == '' && {selinux}.?role.orValue('') == '')"
    )
    profiles = (
        f"{_CONTEXTS}.all(x, x.?seccompProfile.?type.orValue('') != 'Unconfined'"
        " && x.?appArmorProfile.?type.orValue('') != 'Unconfined')"
        f" && object.metadata.?annotations.orValue({{}}).all(k, !k.startsWith('{baseline.APPARMOR_PREFIX}')"
        " || object.metadata.annotations[k] == 'runtime/default'"
        " || object.metadata.annotations[k].startsWith('localhost/'))"
    )
    added = f"{_CONTAINER}.?capabilities.?add.orValue([])"
    handlers = [f"c.?{name}" for name in baseline.PROBES] + [f"c.?lifecycle.?{name}" for name in baseline.HOOKS]
    hosts = " && ".join(
        f"{each}.?{action}.?host.orValue('') == ''" for each in handlers for action in ("httpGet", "tcpSocket")
    )
    sysctls = f"variables.context.?sysctls.orValue([]).all(s, s.name in {_listed(baseline.SYSCTLS)})"
    name = refusals.BASELINE
    return [
        (name, namespaces, "spec.hostNetwork, spec.hostPID and spec.hostIPC are not allowed"),
        (name, options, "securityContext.seLinuxOptions is not allowed"),
        (name, profiles, "securityContext: seccompProfile and appArmorProfile must not be Unconfined"),
        (
            name,
            f"{_CONTEXTS}.all(x, !x.?windowsOptions.?hostProcess.orValue(false))",
            "securityContext.windowsOptions.hostProcess is not allowed",
        ),
        (name, sysctls, "spec.securityContext.sysctls has one that is not safe"),
        (
            name,
            f"variables.containers.all(c, {_CONTAINER}.?procMount.orValue('Default') == 'Default')",
            "securityContext.procMount must be Default",
        ),
        (
            name,
            f"variables.containers.all(c, {added}.all(a, a in {_listed(baseline.CAPABILITIES)}))",
            "securityContext.capabilities.add has one that is not allowed",
        ),
        (name, f"variables.containers.all(c, {hosts})", "a probe or hook has a host"),
        (
            refusals.HOST_PORTS,
            "variables.containers.all(c, c.?ports.orValue([]).all(p, p.?hostPort.orValue(0) == 0))",
            "ports.hostPort is not allowed",
        ),
        (
            refusals.PRIORITY,
            f"!object.spec.?priorityClassName.orValue('').startsWith('{baseline.SYSTEM_CLASSES}')",
            "spec.priorityClassName is reserved for the cluster",
        ),
    ]


def _listed(words: tuple[str, ...]) -> str:
    return "[" + ", ".join(f"'{word}'" for word in words) + "]"


def _validation(rule: str, expression: str, message: str) -> dict[str, Any]:
    return {
        "expression": expression,
        "message": f"{rule}: {message}",
        "messageExpression": f"variables.rule + '{rule}: {message}'",
        "reason": "Forbidden",
    }
