"""Rights that are data: what every user of a namespace may read, and what a grant of an operator consists of.

In: nothing. Out: rules of roles, in raw form.
"""

from __future__ import annotations

from typing import Any

import msgspec

from bedplate.api import permissions

__all__ = ["NAMESPACE_RIGHTS", "OPERATOR", "Grant"]

Rules = list[dict[str, Any]]
_READ = ["get", "list", "watch"]
_ALL = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]

NAMESPACE_RIGHTS: Rules = [
    # Who may do what here; the ClusterRoles view and edit leave that out.
    {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": _READ},
]


class Grant(msgspec.Struct, frozen=True):
    """One operator: its kinds, and its account, which acts in the user's namespace."""

    name: str
    group: str
    resources: tuple[str, ...]
    account: str
    namespaces: tuple[str, ...]
    """Where the operator's account may be: the namespace of its chart, and the one that the manual names."""
    makes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """What the operator makes for the user: API group and resources."""
    needs: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = ()
    """Exactly what the operator needs, where that is known: API group, resources and verbs."""

    @property
    def user_rules(self) -> Rules:
        """Full rights on the operator's kinds; the status is the operator's own."""
        return [
            {"apiGroups": [self.group], "resources": list(self.resources), "verbs": _ALL},
            {"apiGroups": [self.group], "resources": [f"{each}/status" for each in self.resources], "verbs": ["get"]},
        ]

    @property
    def operator_rules(self) -> Rules:
        """What the operator needs in the namespace."""
        if self.needs:
            return [
                {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
                for group, resources, verbs in self.needs
            ]
        own = [part for each in self.resources for part in (each, f"{each}/finalizers", f"{each}/status")]
        rules: Rules = [{"apiGroups": [self.group], "resources": own, "verbs": _ALL}]
        return rules + [
            {"apiGroups": [group], "resources": list(resources), "verbs": _ALL} for group, resources in self.makes
        ]


_WORKLOADS = ("configmaps", "events", "persistentvolumeclaims", "pods", "secrets", "services")

OPERATOR: dict[str, Grant] = {
    permissions.JUPYTER_KERNELS.kind: Grant(
        "jupyter-kernel",
        "apps.brightcomputing.com",
        ("cmjupyterkernels",),
        "cm-jupyter-kernel-operator-controller-manager",
        ("cm-jupyter-kernel-operator-system", "cm"),
        needs=(
            ("apps.brightcomputing.com", ("cmjupyterkernels",), ("delete",)),
            ("apps.brightcomputing.com", ("cmjupyterkernels/finalizers",), ("update",)),
            ("", ("configmaps", "pods", "secrets", "services"), ("create", "delete")),
            ("", ("pods/log",), ("get",)),
        ),
    ),
    permissions.POSTGRESQLS.kind: Grant(
        "postgresql",
        "acid.zalan.do",
        ("postgresqls",),
        "postgres-operator",
        ("postgres-operator",),
        (
            ("", (*_WORKLOADS, "endpoints", "serviceaccounts")),
            ("apps", ("deployments", "statefulsets")),
            ("batch", ("cronjobs",)),
            ("policy", ("poddisruptionbudgets",)),
        ),
    ),
    permissions.SPARKS.kind: Grant(
        "spark",
        "sparkoperator.k8s.io",
        ("scheduledsparkapplications", "sparkapplications"),
        "spark-operator",
        ("spark-operator",),
        (("", _WORKLOADS), ("networking.k8s.io", ("ingresses",))),
    ),
}
"""By the kind of the custom resource."""
