"""Kinds and names of the permission manager: group `charts.brightcomputing.com/v1alpha1`.

In: JSON of an API server. Out: frozen values, and the names that follow from a user and a namespace. Pure. The fields
of a spec keep the spelling of the custom resource, which mixes snake case and camel case.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

from bedplate.api import meta, names
from bedplate.api.resources import ResourceRef

__all__ = [
    "CLAIMS",
    "CLUSTER_ROLES",
    "CLUSTER_ROLE_BINDINGS",
    "GROUP",
    "JUPYTER_KERNELS",
    "KINDS",
    "OPERATORS",
    "PERSISTENT_VOLUMES",
    "POSTGRESQLS",
    "ROLES_REF",
    "ROLE_BINDINGS",
    "SPARKS",
    "STORAGE_CLASSES",
    "USERS",
    "Binding",
    "OperatorPermission",
    "OperatorPermissionSpec",
    "Permission",
    "PermissionStatus",
    "PermissionUser",
    "PermissionUserSpec",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PersistentVolumeClaimSpec",
    "PersistentVolumeSpec",
    "PolicyRule",
    "Role",
    "RoleRef",
    "StorageClass",
    "Subject",
    "is_protected",
    "labels",
    "release_name",
    "suffix",
    "user_part",
    "username_problems",
]

GROUP, VERSION = "charts.brightcomputing.com", "v1alpha1"
NAMESPACE = "cm-permissions"
"""Where the custom resources live."""
CHARTS_NAMESPACE, SYSTEM_NAMESPACE = "cm", "cmkpm-system"
FINALIZER = f"{GROUP}/finalizer"
FIELD_MANAGER = "permissions-manager"

# Labels and annotations
LABEL_NAMESPACE, LABEL_USERNAME = "namespace", "username"
"""On custom resources, as the manual shows them."""
LABEL_RELEASE, LABEL_USER = f"{GROUP}/release", f"{GROUP}/user"
"""On objects that were made: for one custom resource, or for all of one user."""
LABEL_POD_RULES = f"{GROUP}/pod-rules"
"""On restricted namespaces: who checks the final pod, `policy` or `webhook`."""
BY_POLICY, BY_WEBHOOK = "policy", "webhook"
ANNOTATION_CREATED = f"{GROUP}/created"
"""On namespaces that the manager created, and may therefore delete."""
ANNOTATION_KEEP_BINDINGS = f"{GROUP}/keep-bindings"
"""`true` on a custom resource: it goes although its user has rights by bindings of others, or left workloads behind
that the rules refuse; both stay."""
STILL_BOUND, LEFT_BEHIND = "StillBound", "LeftBehind"
HELD = (STILL_BOUND, LEFT_BEHIND)
"""Reasons of a condition: a removed user has such rights or workloads, and the rules for pods hold until they are
gone."""
RULES_PREFIX = f"rules.{GROUP}/"
"""On restricted namespaces: one annotation per custom resource, named after it."""
ANNOTATION_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"

ROLES = ("view", "edit", "admin", "cluster-admin")
PROTECTED = (names.NAMESPACE_SYSTEM, CHARTS_NAMESPACE, NAMESPACE, SYSTEM_NAMESPACE, "kyverno")
UNKNOWN = -1
"""A UID or GID that was not given."""
SUFFIX_LENGTH = 7
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_LONGEST_USER_PART = 37
"""With both suffixes the name of a release has 53 characters, and Helm takes no longer ones."""


class PermissionUserSpec(msgspec.Struct, frozen=True, gc=False):
    """What one person may do in one namespace."""

    username: str = ""
    create_service_account: bool = True
    role: str = "edit"
    user_paths: tuple[str, ...] = ()
    uid: int = UNKNOWN
    gids: tuple[int, ...] = (UNKNOWN,)
    namespace: str = ""
    create_namespace: bool = True
    allowPrivilegeEscalation: bool = False
    allowPrivileged: bool = False
    allow_all_uids: bool = False
    psp_spec_override: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def is_cluster_wide(self) -> bool:
        """An administrator of the whole cluster: the namespace plays no part."""
        return self.role == "cluster-admin"


class OperatorPermissionSpec(msgspec.Struct, frozen=True, gc=False):
    """Who may use an operator in which namespace."""

    username: str = ""
    namespace: str = ""


class PermissionStatus(meta.Model, frozen=True):
    """What was made of a custom resource, or why not."""

    conditions: tuple[meta.Condition, ...] = ()
    objects: tuple[str, ...] = ()
    """`Kind/name`, or `Kind/namespace/name`, of everything that was made."""
    digest: str = ""
    """Of the objects as they should be: tells a change of the manager from a change by somebody else."""
    observed_generation: int = 0

    @property
    def ready(self) -> meta.Condition | None:
        return meta.find_condition(self.conditions, "Ready")


class PermissionUser(meta.Object, frozen=True):
    """The custom resource of one person in one namespace."""

    spec: PermissionUserSpec = PermissionUserSpec()
    status: PermissionStatus = PermissionStatus()


class OperatorPermission(meta.Object, frozen=True):
    """A custom resource of one of the three operator kinds."""

    spec: OperatorPermissionSpec = OperatorPermissionSpec()
    status: PermissionStatus = PermissionStatus()


Permission = PermissionUser | OperatorPermission


def _ref(kind: str, plural: str) -> ResourceRef[OperatorPermission]:
    return ResourceRef(GROUP, VERSION, plural, kind, True, OperatorPermission)


USERS = ResourceRef(GROUP, VERSION, "cmkubernetespermissionusers", "CmkubernetesPermissionUser", True, PermissionUser)
JUPYTER_KERNELS = _ref("CmkubernetesOperatorPermissionsJupyterKernel", "cmkubernetesoperatorpermissionsjupyterkernels")
POSTGRESQLS = _ref("CmkubernetesOperatorPermissionsPostgresql", "cmkubernetesoperatorpermissionspostgresqls")
SPARKS = _ref("CmkubernetesOperatorPermissionsSpark", "cmkubernetesoperatorpermissionssparks")
KINDS: tuple[ResourceRef[Any], ...] = (USERS, JUPYTER_KERNELS, POSTGRESQLS, SPARKS)

OPERATORS: dict[str, ResourceRef[OperatorPermission]] = {
    "cm-jupyter-kernel-operator": JUPYTER_KERNELS,
    "postgresql-operator": POSTGRESQLS,
    "spark-operator": SPARKS,
    "cm-kubernetes-postgresql-operator": POSTGRESQLS,
    "cm-kubernetes-spark-operator": SPARKS,
}
"""By the names under which users ask for them; two have an alias."""


class PersistentVolumeSpec(meta.Model, frozen=True):
    """Where a volume's data is: only what leads to a path of a node."""

    host_path: dict[str, Any] | None = None
    local: dict[str, Any] | None = None


class PersistentVolume(meta.Object, frozen=True):
    """Storage of the cluster."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class PersistentVolumeClaimSpec(meta.Model, frozen=True):
    """What storage is asked for."""

    volume_name: str = ""
    storage_class_name: str | None = None


class PersistentVolumeClaim(meta.Object, frozen=True):
    """A claim on storage."""

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


class StorageClass(meta.Object, frozen=True):
    """Who makes volumes."""

    provisioner: str = ""


class PolicyRule(meta.Model, frozen=True):
    """One rule of a role."""

    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = meta.field("nonResourceURLs", ())
    verbs: tuple[str, ...] = ()


class Subject(meta.Model, frozen=True):
    """Whom a role is given to."""

    kind: str = ""
    api_group: str = ""
    name: str = ""
    namespace: str = ""


class RoleRef(meta.Model, frozen=True):
    """The role that a binding gives."""

    api_group: str = ""
    kind: str = ""
    name: str = ""


class Role(meta.Object, frozen=True):
    """A Role or a ClusterRole."""

    rules: tuple[PolicyRule, ...] | None = None


class Binding(meta.Object, frozen=True):
    """A RoleBinding or a ClusterRoleBinding."""

    subjects: tuple[Subject, ...] | None = None
    role_ref: RoleRef = RoleRef()


_RBAC = "rbac.authorization.k8s.io"
PERSISTENT_VOLUMES = ResourceRef("", "v1", "persistentvolumes", "PersistentVolume", False, PersistentVolume)
CLAIMS = ResourceRef("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, PersistentVolumeClaim)
STORAGE_CLASSES = ResourceRef("storage.k8s.io", "v1", "storageclasses", "StorageClass", False, StorageClass)
CLUSTER_ROLES = ResourceRef(_RBAC, "v1", "clusterroles", "ClusterRole", False, Role)
CLUSTER_ROLE_BINDINGS = ResourceRef(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False, Binding)
ROLES_REF = ResourceRef(_RBAC, "v1", "roles", "Role", True, Role)
ROLE_BINDINGS = ResourceRef(_RBAC, "v1", "rolebindings", "RoleBinding", True, Binding)


def suffix(username: str, namespace: str) -> str:
    """Seven lower-case letters and digits, the same for the same user and namespace at any time."""
    number = int.from_bytes(hashlib.sha256(f"{username}\n{namespace}".encode()).digest()[:8])
    text = ""
    while len(text) < SUFFIX_LENGTH:
        number, digit = divmod(number, len(_DIGITS))
        text += _DIGITS[digit]
    return text


def user_part(username: str) -> str:
    """The user's part of object names: the name itself where it is a DNS label of fair length, else one that tells
    apart what would look alike."""
    text = re.sub(r"[^a-z0-9-]+", "-", username.lower()).strip("-")[:_LONGEST_USER_PART].strip("-")
    if text == username:
        return text
    return f"{text}-{suffix(username, '')}" if text else f"user-{suffix(username, '')}"


def release_name(username: str, namespace: str) -> str:
    """The name of a user's custom resource for a namespace: `john-4k2j9xa`."""
    return f"{user_part(username)}-{suffix(username, namespace)}"


def labels(username: str, namespace: str) -> dict[str, str]:
    """The labels of a custom resource."""
    return {LABEL_NAMESPACE: namespace, LABEL_USERNAME: username}


def username_problems(username: str) -> list[str]:
    """Why no rights can be given to a user of this name."""
    if not username:
        return ["the user name is empty"]
    if username.startswith("system:"):
        return [f"the user name {username!r} is reserved for Kubernetes"]
    return [f"the user name {problem}" for problem in names.label_value_problems(username)]


def is_protected(namespace: str) -> bool:
    """Whether the namespace belongs to the cluster itself, so that no user can have it."""
    return namespace in PROTECTED or namespace.startswith("kube-")
