"""What `kubectl apply --server-side` installs for the operator.

In: an image. Out: the definition, the namespace, the account with its rights, and the Deployment. Pure. The operator
may read kernels, pods, their logs and Services everywhere; ConfigMaps and Secrets it makes and deletes unread.
"""

from __future__ import annotations

from typing import Any

from bedplate.operators.jupyter import crd, names

__all__ = ["documents"]

_LABELS = {"control-plane": "controller-manager"}
_ACCOUNT = "cm-jupyter-kernel-operator-controller-manager"
_ROLE = "cm-jupyter-kernel-operator-manager-role"
_ELECTION = "cm-jupyter-kernel-operator-leader-election-role"
_USER_ROLE = "cm-jupyter-kernel-operator-user-role"
_DEPLOYMENT = "cm-jupyter-kernel-operator-controller-manager"
_RBAC = "rbac.authorization.k8s.io"


def _rule(group: str, resources: list[str], verbs: list[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


def rules() -> list[dict[str, Any]]:
    """What the operator may do in the whole cluster."""
    return [
        _rule(names.GROUP, [names.PLURAL], ["get", "list", "watch", "delete"]),
        _rule(names.GROUP, [f"{names.PLURAL}/status"], ["patch"]),
        # Owners that block deletion: the plugin OwnerReferencesPermissionEnforcement asks for it.
        _rule(names.GROUP, [f"{names.PLURAL}/finalizers"], ["update"]),
        _rule("", ["pods"], ["get", "list", "watch", "create", "delete"]),
        _rule("", ["services"], ["list", "watch", "create", "delete"]),
        # Made and deleted by name, never read.
        _rule("", ["configmaps", "secrets"], ["create", "delete"]),
        _rule("", ["pods/log"], ["get"]),
        _rule("", ["events"], ["create", "patch"]),
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
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.NAMESPACE, "labels": _LABELS}},
        crd.definition(),
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": _ACCOUNT, **own}},
        _rbac("ClusterRole", _ROLE, {"rules": rules()}),
        _binding("ClusterRoleBinding", "ClusterRole", _ROLE),
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
