"""What `kubectl apply --server-side` installs for the operator.

In: an image. Out: the definition, the namespace, the account with its rights, and the Deployment. Pure. In the whole
cluster the operator may only look, and say how kernels stand. What it does for a kernel it may do in namespaces where
it was admitted: by a grant of the permission manager, or by a RoleBinding to the ClusterRole of `namespace_rules`.
ConfigMaps and Secrets it makes and deletes unread.
"""

from __future__ import annotations

from typing import Any

from bedplate.operators.jupyter import crd, names

__all__ = ["documents"]

_LABELS = {"control-plane": "controller-manager"}
_ACCOUNT = "cm-jupyter-kernel-operator-controller-manager"
_ROLE = "cm-jupyter-kernel-operator-manager-role"
_ELECTION = "cm-jupyter-kernel-operator-leader-election-role"
_NAMESPACE_ROLE = "cm-jupyter-kernel-operator-namespace-role"
_USER_ROLE = "cm-jupyter-kernel-operator-user-role"
_DEPLOYMENT = "cm-jupyter-kernel-operator-controller-manager"
_RBAC = "rbac.authorization.k8s.io"


def _rule(group: str, resources: list[str], verbs: list[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


def _namespace() -> dict[str, Any]:
    """With the label that the server adds: left out, a second apply would write."""
    labels = {**_LABELS, "kubernetes.io/metadata.name": names.NAMESPACE}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.NAMESPACE, "labels": labels}}


def rules() -> list[dict[str, Any]]:
    """What the operator may do in the whole cluster: find kernels and what it made for them, and say how they stand,
    also where it was not admitted."""
    return [
        _rule(names.GROUP, [names.PLURAL], ["get", "list", "watch"]),
        _rule(names.GROUP, [f"{names.PLURAL}/status"], ["patch"]),
        _rule("", ["pods"], ["get", "list", "watch"]),
        _rule("", ["services"], ["list", "watch"]),
        _rule("", ["events"], ["create", "patch"]),
    ]


def namespace_rules() -> list[dict[str, Any]]:
    """What it may do besides in a namespace where it was admitted; the permission manager grants the same."""
    return [
        _rule(names.GROUP, [names.PLURAL], ["delete"]),
        # Owners that block deletion: the plugin OwnerReferencesPermissionEnforcement asks for it.
        _rule(names.GROUP, [f"{names.PLURAL}/finalizers"], ["update"]),
        # Made and deleted by name, never read; of pods the log.
        _rule("", ["configmaps", "pods", "secrets", "services"], ["create", "delete"]),
        _rule("", ["pods/log"], ["get"]),
    ]


def election_rules() -> list[dict[str, Any]]:
    """What it may do in its own namespace."""
    return [
        _rule("coordination.k8s.io", ["leases"], ["create", "get", "update"]),
        _rule("", ["events"], ["create", "patch"]),
    ]


def _user_role() -> dict[str, Any]:
    """For people: to be bound in the namespaces whose users may run kernels."""
    body = [_rule(names.GROUP, [names.PLURAL], ["create", "delete", "get", "list", "patch", "update", "watch"])]
    return _rbac("ClusterRole", _USER_ROLE, {"rules": body})


def _rbac(kind: str, name: str, body: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, **body}


def _binding(kind: str, role_kind: str, role: str, namespace: str = "") -> dict[str, Any]:
    body = {
        "roleRef": {"apiGroup": _RBAC, "kind": role_kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": _ACCOUNT, "namespace": names.NAMESPACE}],
    }
    return _rbac(kind, f"{role}binding", body, namespace)


def documents(image: str, pull_policy: str = "IfNotPresent") -> list[dict[str, Any]]:
    """Everything, in the order in which it is applied."""
    own = {"namespace": names.NAMESPACE}
    return [
        _namespace(),
        crd.definition(),
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": _ACCOUNT, **own}},
        _rbac("ClusterRole", _ROLE, {"rules": rules()}),
        _binding("ClusterRoleBinding", "ClusterRole", _ROLE),
        _rbac("ClusterRole", _NAMESPACE_ROLE, {"rules": namespace_rules()}),
        _rbac("Role", _ELECTION, {"rules": election_rules()}, names.NAMESPACE),
        _binding("RoleBinding", "Role", _ELECTION, names.NAMESPACE),
        _user_role(),
        _deployment(image, pull_policy),
    ]


def _deployment(image: str, pull_policy: str) -> dict[str, Any]:
    def probe(path: str) -> dict[str, Any]:
        return {"httpGet": {"path": path, "port": 8081}, "initialDelaySeconds": 5, "periodSeconds": 10}

    manager = {
        "name": "manager",
        "image": image,
        "imagePullPolicy": pull_policy,
        "command": [names.OPERATOR],
        "args": ["--leader-elect", f"--sidecar-image={image}", f"--sidecar-pull-policy={pull_policy}"],
        "ports": [{"name": "probes", "containerPort": 8081}, {"name": "metrics", "containerPort": 8080}],
        "livenessProbe": probe("/healthz"),
        "readinessProbe": probe("/readyz"),
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    pod = {
        "serviceAccountName": _ACCOUNT,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": 10,
        "containers": [manager],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": _DEPLOYMENT, "namespace": names.NAMESPACE, "labels": _LABELS},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": _LABELS},
            "template": {"metadata": {"labels": _LABELS}, "spec": pod},
        },
    }
