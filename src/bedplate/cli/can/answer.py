"""May this user run that pod? Pure.

In: a user, a pod or a workload with a template of one, and the objects of a cluster. Out: an `Answer`: yes with what is
set in the pod, or no with every reason: the rule, the field, and the change that would make it yes. The pod itself is
taken to be valid. In the order of an API server: rights first, then the namespace, then the rules of admission.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from bedplate.api import permissions
from bedplate.api.resources import RawObject
from bedplate.apiserver.access.rbac import Policy
from bedplate.apiserver.access.subjects import Attributes, User
from bedplate.cli.can import podsecurity
from bedplate.cli.can.objects import Objects
from bedplate.core import errors
from bedplate.operators.permissions import decision, volumes
from bedplate.operators.permissions import objects as permission_objects
from bedplate.operators.permissions.refusals import Refusal
from bedplate.operators.permissions.rules import NamespaceRules

__all__ = ["WORKLOADS", "Answer", "may_run", "policy_of", "user_of"]

RBAC = "rbac.authorization.k8s.io"
WORKLOADS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "Pod": ("", "pods", ()),
    "ReplicationController": ("", "replicationcontrollers", ("spec", "template")),
    "Deployment": ("apps", "deployments", ("spec", "template")),
    "ReplicaSet": ("apps", "replicasets", ("spec", "template")),
    "StatefulSet": ("apps", "statefulsets", ("spec", "template")),
    "DaemonSet": ("apps", "daemonsets", ("spec", "template")),
    "Job": ("batch", "jobs", ("spec", "template")),
    "CronJob": ("batch", "cronjobs", ("spec", "jobTemplate", "spec", "template")),
}
"""Kind -> its API group, its resource, and where the template of its pods is."""
NEXT_TO_EVERYONE = ("system:authenticated",)
ENDING = "Terminating"


class Answer(msgspec.Struct, frozen=True):
    """Yes, or no with the reasons. `because` is why rights allow it, `pod` what would be created."""

    user: str
    kind: str
    name: str
    namespace: str
    reasons: tuple[Refusal, ...] = ()
    because: str = ""
    pod: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def is_yes(self) -> bool:
        return not self.reasons


def user_of(name: str, groups: tuple[str, ...] = ()) -> User:
    """A user with the groups that the API server adds by itself."""
    own: tuple[str, ...] = NEXT_TO_EVERYONE
    if name.startswith("system:serviceaccount:") and name.count(":") == 3:
        own = ("system:serviceaccounts", f"system:serviceaccounts:{name.split(':')[2]}", *own)
    return User(name, groups=tuple(dict.fromkeys((*groups, *own))))


def policy_of(objects: Objects) -> Policy:
    """All roles and bindings."""
    roles = [*objects.of("roles"), *objects.of("clusterroles")]
    bindings = [*objects.of("rolebindings"), *objects.of("clusterrolebindings")]
    faulty = [obj for obj in bindings if not isinstance(obj.get("roleRef"), dict)]
    if faulty:
        raise errors.Invalid(f"the binding {faulty[0]['metadata']['name']!r} has no roleRef")
    return Policy.build(roles, bindings)


def may_run(user: User, obj: RawObject, objects: Objects, namespace: str = "", policy: Policy | None = None) -> Answer:
    """The answer. `namespace`: where it is to run, if not where the object or the user's only grant says."""
    kind = str(obj.get("kind", ""))
    if kind not in WORKLOADS:
        raise errors.Invalid(
            f"{kind or 'an object without kind'} has no pods", hint=f"give one of {', '.join(WORKLOADS)}"
        )
    group, resource, path = WORKLOADS[kind]
    metadata = _mapping(obj.get("metadata"))
    place = namespace or str(metadata.get("namespace") or "") or _own_namespace(user.name, objects)
    pod = _template(obj, path)
    name = str(metadata.get("name") or metadata.get("generateName") or "")
    wish = Attributes("create", group, "v1", resource, "", place)
    verdict = (policy or policy_of(objects)).decide(user, wish)
    if not verdict.allowed:
        return Answer(user.name, kind, name, place, (_no_right(user, place, resource, objects),))
    reasons, result = [*_namespace(place, objects)], pod
    if not reasons:
        admitted = decision.decide(rules_of(place, objects), pod, claims=_claims(place, pod, objects))
        result = admitted.pod
        reasons = [*_admission(place, result, objects), *admitted.refusals]
    return Answer(user.name, kind, name, place, tuple(reasons), verdict.reason, result)


def _template(obj: RawObject, path: tuple[str, ...]) -> Mapping[str, Any]:
    part: Any = obj
    for key in path:
        part = _mapping(part).get(key)
    pod = _mapping(part)
    if not isinstance(pod.get("spec"), Mapping):
        raise errors.Invalid(f"{'.'.join((*path, 'spec'))} is missing")
    return pod


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _own_namespace(user: str, objects: Objects) -> str:
    """Where kubectl of this user works: their only namespace, else `default`."""
    specs = [_mapping(obj.get("spec")) for obj in objects.of(permissions.USERS.plural)]
    own = sorted({str(spec.get("namespace")) for spec in specs if spec.get("username") == user})
    return own[0] if len(own) == 1 else "default"


def _no_right(user: User, namespace: str, resource: str, objects: Objects) -> Refusal:
    specs = [_mapping(obj.get("spec")) for obj in objects.of(permissions.USERS.plural)]
    own = sorted({str(spec.get("namespace")) for spec in specs if spec.get("username") == user.name})
    message = f"no role gives {user.name} create on {resource} in the namespace {namespace}"
    grant = f"cm-kubernetes-setup --modify-user {user.name} --namespace {namespace} --add-to-namespace"
    if namespace in own:
        remedy = (
            f"give a role that may: cm-kubernetes-setup --modify-user {user.name} --namespace {namespace} --role edit"
        )
    elif own:
        remedy = f"use the namespace {' or '.join(own)}, or grant it: {grant}"
    else:
        remedy = f"add the user: cm-kubernetes-setup --add-user {user.name}"
    return Refusal(RBAC, "metadata.namespace", message, remedy)


def _namespace(name: str, objects: Objects) -> Iterator[Refusal]:
    obj = objects.find("namespaces", name)
    if obj is None:
        yield Refusal("namespace", "metadata.namespace", f"the namespace {name!r} does not exist", "create it first")
    elif _mapping(obj["metadata"]).get("deletionTimestamp") or _mapping(obj.get("status")).get("phase") == ENDING:
        message = f"the namespace {name!r} is being deleted"
        yield Refusal("namespace", "metadata.namespace", message, "use another namespace")


def rules_of(namespace: str, objects: Objects) -> NamespaceRules:
    """The rules that hold for the pods of a namespace: what it carries, else what the permission objects say of which
    something can be made."""
    obj = objects.find("namespaces", namespace)
    carried = NamespaceRules.of_namespace(obj or {})
    if carried.is_restricted or permissions.is_protected(namespace):
        return carried
    users = [
        msgspec.convert(each, permissions.PermissionUser)
        for each in objects.of(permissions.USERS.plural)
        if _mapping(each.get("spec")).get("namespace") == namespace
    ]
    return NamespaceRules.of(user for user in users if not permission_objects.problems(user))


def _claims(namespace: str, pod: Mapping[str, Any], objects: Objects) -> Mapping[str, volumes.Claim]:
    """What the claims of a pod lead to."""

    def find(name: str) -> permissions.PersistentVolumeClaim | None:
        claim = objects.find("persistentvolumeclaims", name, namespace)
        return msgspec.convert(claim, permissions.PersistentVolumeClaim) if claim is not None else None

    def lead(claim: permissions.PersistentVolumeClaim) -> volumes.Claim:
        class_ = objects.find("storageclasses", claim.spec.storage_class_name or "")
        volume = objects.find("persistentvolumes", claim.spec.volume_name)
        return volumes.claim_of(
            claim.spec.volume_name,
            msgspec.convert(class_, permissions.StorageClass) if class_ is not None else None,
            msgspec.convert(volume, permissions.PersistentVolume) if volume is not None else None,
        )

    return volumes.claims_of(pod, find, lead)


def _admission(namespace: str, pod: Mapping[str, Any], objects: Objects) -> Iterator[Refusal]:
    """What the API server itself asks of a pod, as far as objects tell."""
    spec = _mapping(pod.get("spec"))
    account = str(spec.get("serviceAccountName") or spec.get("serviceAccount") or "default")
    accounts = objects.of("serviceaccounts", namespace)
    if accounts and objects.find("serviceaccounts", account, namespace) is None:
        message = f"the ServiceAccount {account!r} does not exist in the namespace {namespace}"
        yield Refusal("serviceaccount", "spec.serviceAccountName", message, "create it, or remove the field")
    yield from _priority(spec, objects)
    yield from _runtime(spec, objects)
    yield from podsecurity.findings(objects.find("namespaces", namespace) or {}, pod)


def _priority(spec: Mapping[str, Any], objects: Objects) -> Iterator[Refusal]:
    """What a pod says of its priority must be what its class says. Every cluster has classes: none means not known."""
    name, classes = spec.get("priorityClassName"), objects.of("priorityclasses")
    if not classes:
        return
    default = next((each for each in classes if each.get("globalDefault") is True), {})
    chosen = objects.find("priorityclasses", str(name)) if name else default
    if chosen is None:
        message = f"there is no PriorityClass {name!r}"
        yield Refusal("priority", "spec.priorityClassName", message, "choose another class or none")
        return
    policy = chosen.get("preemptionPolicy") or "PreemptLowerPriority"
    for field, value in (("priority", chosen.get("value", 0)), ("preemptionPolicy", policy)):
        if spec.get(field) is not None and spec[field] != value:
            message = f"{spec[field]!r} is not what the PriorityClass says, which is {value!r}"
            yield Refusal("priority", f"spec.{field}", message, "remove it and choose a spec.priorityClassName")


def _runtime(spec: Mapping[str, Any], objects: Objects) -> Iterator[Refusal]:
    name = spec.get("runtimeClassName")
    if name and objects.has("runtimeclasses") and objects.find("runtimeclasses", str(name)) is None:
        message = f"there is no RuntimeClass {name!r}"
        yield Refusal("runtimeclass", "spec.runtimeClassName", message, "choose another class or none")
