"""What an administrator applies before the permission manager starts.

In: the address of a webhook outside the cluster, if it runs there; the image otherwise. Out: objects in raw form:
namespaces, the four definitions, rights, webhook configurations, and for a manager inside the cluster its Service,
Deployment and budget. Pure. `caBundle` is left out: the manager fills it in, and applying the manifests again does not
remove it.
"""

from __future__ import annotations

from typing import Any

from bedplate.api import permissions
from bedplate.api.resources import RawObject
from bedplate.operators.permissions import crds, leftovers, policies

__all__ = ["objects"]

NAME = "permissions-manager"
MUTATING = VALIDATING = f"pods.{permissions.GROUP}"
"""The names of the two webhook configurations."""
MUTATE_PODS, VALIDATE_PODS, VALIDATE_CLAIMS = "/mutate-pods", "/validate-pods", "/validate-claims"
PORT = 9443
TIMEOUT_S = 10
SYSTEM = permissions.SYSTEM_NAMESPACE
_RBAC_GROUP = "rbac.authorization.k8s.io"
# A claim serves an ephemeral volume of the pod that owns it.
_ANOTHER_POD = (
    "(has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, o.kind == 'Pod'"
    " && (!has(oldObject.metadata.ownerReferences)"
    " || !oldObject.metadata.ownerReferences.exists(p, p.uid == o.uid))))"
)
_ALL = ["create", "delete", "get", "list", "patch", "update", "watch"]
_READ = ["get", "list", "watch"]


def objects(webhook_url: str = "", image: str = "bedplate:latest") -> list[RawObject]:
    """Everything, in the order in which it is applied."""
    names = (permissions.CHARTS_NAMESPACE, permissions.NAMESPACE, SYSTEM)
    rendered: list[RawObject] = [_namespace(name) for name in names]
    rendered += crds.definitions()
    rendered += _rights()
    if not webhook_url:
        rendered += [_service(), _deployment(image), _budget()]
    return [*rendered, _mutating(webhook_url), _validating(webhook_url)]


def _object(version: str, kind: str, name: str, namespace: str = "", **fields: Any) -> RawObject:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def _namespace(name: str) -> RawObject:
    """With the label that the server adds: left out, the second `kubectl apply --server-side` would take it away from
    itself, which is a write."""
    labels = {"kubernetes.io/metadata.name": name}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def _rule(group: str, resources: list[str], verbs: list[str], **more: Any) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources, **more, "verbs": verbs}


def _rights() -> list[RawObject]:
    """The manager gives rights that it must have or be allowed to give: it is as powerful as an administrator."""
    admission = "admissionregistration.k8s.io"
    kinds = [ref.plural for ref in permissions.KINDS]
    rules = [
        _rule(permissions.GROUP, kinds, ["get", "list", "patch", "update", "watch"]),
        _rule(permissions.GROUP, [f"{kind}/{part}" for kind in kinds for part in ("finalizers", "status")], _ALL),
        _rule("", ["namespaces", "serviceaccounts"], _ALL),
        _rule("", ["persistentvolumes", "persistentvolumeclaims"], _READ),
        # Which pods name a claim that is about to have a path of a node.
        _rule("", ["pods"], ["list"]),
        # Which workloads wait for the end of the rules of a namespace.
        *(_rule(group, plurals, ["list"]) for group, plurals in _workloads().items()),
        _rule("", ["events"], ["create", "patch"]),
        _rule("storage.k8s.io", ["storageclasses"], _READ),
        _rule(_RBAC_GROUP, ["clusterrolebindings", "rolebindings"], _ALL),
        _rule(_RBAC_GROUP, ["clusterroles", "roles"], [*_ALL, "bind", "escalate"]),
        _rule(admission, ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"], [*_READ, "patch"]),
        _rule(admission, ["validatingadmissionpolicies", "validatingadmissionpolicybindings"], _ALL),
        _rule("kyverno.io", ["clusterpolicies"], _ALL),
    ]
    secrets = [_rule("", ["secrets"], _ALL)]
    leases = [_rule("coordination.k8s.io", ["leases"], ["create", "get", "update", "patch"])]
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": SYSTEM}
    version = f"{_RBAC_GROUP}/v1"

    def bound(kind: str, namespace: str = "") -> RawObject:
        ref = {"apiGroup": _RBAC_GROUP, "kind": kind, "name": NAME}
        return _object(version, f"{kind}Binding", NAME, namespace, subjects=[account], roleRef=ref)

    return [
        _object("v1", "ServiceAccount", NAME, SYSTEM),
        _object(version, "ClusterRole", NAME, rules=rules),
        bound("ClusterRole"),
        _object(version, "Role", NAME, SYSTEM, rules=[*secrets, *leases]),
        bound("Role", SYSTEM),
        _object(version, "Role", NAME, permissions.NAMESPACE, rules=secrets),
        bound("Role", permissions.NAMESPACE),
    ]


def _workloads() -> dict[str, list[str]]:
    groups = sorted({ref.group for ref in leftovers.WORKLOADS})
    return {group: sorted(ref.plural for ref in leftovers.WORKLOADS if ref.group == group) for group in groups}


def _service() -> RawObject:
    ports = [{"name": "webhook", "port": 443, "targetPort": PORT, "protocol": "TCP"}]
    return _object("v1", "Service", NAME, SYSTEM, spec={"selector": {"app": NAME}, "ports": ports})


def _deployment(image: str) -> RawObject:
    probe = {"httpGet": {"path": "/readyz", "port": PORT, "scheme": "HTTPS"}}
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}
    container = {
        "name": "manager",
        "image": image,
        "command": [NAME],
        "args": [f"--webhook-port={PORT}"],
        "ports": [{"name": "webhook", "containerPort": PORT, "protocol": "TCP"}],
        "readinessProbe": probe,
        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": context,
    }
    labels = {"app": NAME, "control-plane": "controller-manager"}
    # Without an answer no pod of a user is created: one node that fails must not take both replicas.
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    pod = {
        "topologySpreadConstraints": [{**spread, "labelSelector": {"matchLabels": {"app": NAME}}}],
        "serviceAccountName": NAME,
        "priorityClassName": "system-cluster-critical",
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": {"app": NAME}},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return _object("apps/v1", "Deployment", NAME, SYSTEM, spec=spec)


def _budget() -> RawObject:
    """One replica answers while nodes are drained."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": NAME}}, "unhealthyPodEvictionPolicy": "AlwaysAllow"}
    return _object("policy/v1", "PodDisruptionBudget", NAME, SYSTEM, spec=spec)


def _mutating(url: str) -> RawObject:
    webhook = {
        **_webhook("mutate", url, MUTATE_PODS, policies.namespaces()),
        "rules": [_admits("pods", "CREATE"), _admits("pods/ephemeralcontainers", "UPDATE")],
        "reinvocationPolicy": "Never",
    }
    return _object("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", MUTATING, webhooks=[webhook])


def _validating(url: str) -> RawObject:
    """The final pod, where no policy of the API server checks it; and claims, always."""
    by_webhook = policies.namespaces(permissions.BY_WEBHOOK)
    pods = {
        **_webhook("validate", url, VALIDATE_PODS, by_webhook),
        "rules": [_admits("pods", "CREATE"), _admits("pods/ephemeralcontainers", "UPDATE")],
    }
    claims = {
        **_webhook("claims", url, VALIDATE_CLAIMS, policies.namespaces()),
        "rules": [_admits("persistentvolumeclaims", "CREATE", "UPDATE")],
        # Anything but another volume, or a pod that gets it, passes: status, finalizers, sizes.
        "matchConditions": [
            {
                "name": "another-volume",
                "expression": (
                    "has(object.spec.volumeName) && object.spec.volumeName != ''"
                    " && (request.operation == 'CREATE' || !has(oldObject.spec.volumeName)"
                    f" || oldObject.spec.volumeName != object.spec.volumeName || {_ANOTHER_POD})"
                ),
            }
        ],
    }
    kind = "ValidatingWebhookConfiguration"
    return _object("admissionregistration.k8s.io/v1", kind, VALIDATING, webhooks=[pods, claims])


def _webhook(name: str, url: str, path: str, selector: dict[str, Any]) -> dict[str, Any]:
    service = {"name": NAME, "namespace": SYSTEM, "path": path, "port": 443}
    return {
        "name": f"{name}.{permissions.GROUP}",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": url.rstrip("/") + path} if url else {"service": service},
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_S,
        "namespaceSelector": selector,
    }


def _admits(resource: str, *operations: str) -> dict[str, Any]:
    return {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": list(operations),
        "resources": [resource],
        "scope": "Namespaced",
    }
