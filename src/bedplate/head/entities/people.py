"""Users of a Kubernetes cluster: what each may do, where, and as whom their pods run.

The values are those of `cm-kubernetes-setup --add-user`; one that is not set follows from the user's account on the
head, when the rights are made (`head/people`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bedplate.head.entities.base import Named
from bedplate.head.objects import Obj
from bedplate.head.schema.entity import Field, Group, Key, Look, Submode
from bedplate.head.schema.kinds import Bool, Choice, Integer, Text
from bedplate.head.schema.ranges import ListOf

__all__ = ["KubernetesUser", "UserNamespace", "own_namespaces"]

# The words of bedplate.people.settings, which a shell that shows no user need not load; a test compares them.
ROLES = ("edit", "admin", "view", "cluster-admin")
OPERATORS = ("cm-jupyter-kernel-operator", "postgresql-operator", "spark-operator")
NO_PATHS = "none"
MAX_ID = 2**31 - 1
_NAMESPACE = Text(
    r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
    "a namespace (lower-case letters, digits and '-', at most 63 of them, a letter or digit at both ends)",
)
_USER = Text(
    r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?",
    "a user name (letters, digits, '-', '_' and '.', at most 63 of them, a letter or digit at both ends)",
)
_GID = Text(r"0|[1-9][0-9]{0,9}", "the number of a group")
_PATH = Text(rf"{NO_PATHS}|/[^\x00-\x1f\x7f]*", f"an absolute path, or the word {NO_PATHS}")


class UserNamespace(Named):
    """A further namespace in which a user has rights; it must exist in the cluster."""

    noun = "namespace of a user"
    columns = ("role", "operators")

    name = Key(kind=_NAMESPACE, doc="the namespace; it must exist in the cluster")
    role = Field("Role", Choice(ROLES[:3]), ROLES[0], doc="what the user may do there")
    operators = Field("Operators", ListOf(Choice(OPERATORS)), doc="operators that the user may use there")

    @classmethod
    def problems(cls, obj: Obj, look: Look) -> Sequence[str]:
        return _protected("name", obj.key)


class KubernetesUser(Named):
    """A user of the cluster: the head keeps their rights, certificate and kubeconfig as they are said here."""

    noun = "Kubernetes user"
    columns = ("role", "namespace", "more_namespaces", "manage_kubeconfig")
    groups = (
        Group("Rights", ("name", "role", "namespace", "create_namespace", "more_namespaces", "operators")),
        Group("Pods", ("uid", "gids", "paths", "allow_all_uids")),
        Group("Access", ("manage_kubeconfig",)),
    )

    name = Key(kind=_USER, doc="the user's account")
    role = Field(
        "Role",
        Choice(ROLES),
        ROLES[0],
        doc="edit: works in the namespace; admin: also gives rights there; view: reads; cluster-admin: may do anything",
    )
    namespace = Field("Namespace", _NAMESPACE, doc="the user's namespace; empty: NAME-restricted")
    create_namespace = Field(
        "Create namespace", Bool(), True, doc="make the namespace, and delete it with the user; no: it must exist"
    )
    uid = Field("UID", Integer(0, MAX_ID), doc="UID of the user's pods; empty: that of the account")
    gids = Field("GIDs", ListOf(_GID), doc="GIDs of the user's pods, by number; empty: those of the account")
    paths = Field(
        "Paths",
        ListOf(_PATH),
        doc=f"host paths that the user's pods may mount; empty: the home folder; {NO_PATHS}: no host path",
    )
    allow_all_uids = Field(
        "Allow all UIDs", Bool(), False, doc="pods that mount no host path may run as any user, root included"
    )
    operators = Field("Operators", ListOf(Choice(OPERATORS)), doc="operators that the user may use in the namespace")
    manage_kubeconfig = Field("Manage kubeconfig", Bool(), True, doc="write and renew the user's kubeconfig")
    more_namespaces = Submode("More namespaces", UserNamespace, doc="further namespaces with rights of the user")

    @classmethod
    def own_namespace(cls, obj: Obj) -> str:
        """The namespace of the user's own."""
        from bedplate.people.grants import default_namespace

        return str(cls.namespace.value(obj)) or default_namespace(obj.key)

    @classmethod
    def is_cluster_wide(cls, obj: Obj) -> bool:
        """An administrator of the whole cluster has no namespace."""
        return cls.role.value(obj) == ROLES[3]

    @classmethod
    def problems(cls, obj: Obj, look: Look) -> Sequence[str]:
        from bedplate.people.settings import check_path

        paths = cls.paths.value(obj)
        assert isinstance(paths, tuple)
        problems = []
        if NO_PATHS in paths and len(paths) > 1:
            problems.append(f"paths: {NO_PATHS} cannot be together with a path")
        problems += [text for path in paths if path != NO_PATHS for text in check_path(path, "paths:")]
        gids = cls.gids.value(obj)
        assert isinstance(gids, tuple)
        problems += [f"gids: {gid} is larger than {MAX_ID}" for gid in gids if gid and int(gid) > MAX_ID]
        # In a field of its own an empty text is none at all; in a list it would be a group without a number.
        problems += ["gids: must be numbers of groups, not an empty text"] * ("" in gids)
        more = obj.below("more_namespaces")
        if cls.is_cluster_wide(obj):
            if more:
                problems.append(f"role: {ROLES[3]} is for the whole cluster: remove the further namespaces")
            return problems
        own = cls.own_namespace(obj)
        problems += _protected("namespace", own)
        if own in more:
            problems.append(f"morenamespaces: {own} is the user's namespace already")
        return problems


def own_namespaces(users: Mapping[str, Obj]) -> list[str]:
    """What is wrong with the namespaces of all users of a cluster together: each is made for one of them."""
    owners: dict[str, str] = {}
    problems = []
    for name, obj in sorted(users.items()):
        if KubernetesUser.is_cluster_wide(obj) or not KubernetesUser.create_namespace.value(obj):
            continue
        namespace = KubernetesUser.own_namespace(obj)
        other = owners.setdefault(namespace, name)
        if other != name:
            problems.append(
                f"kubernetesusers[{name}]: namespace {namespace} is that of {other}: choose another one, or set"
                " createnamespace no to share it"
            )
    return problems


def _protected(parameter: str, namespace: str) -> list[str]:
    from bedplate.api.permissions import is_protected

    if is_protected(namespace):
        return [f"{parameter}: {namespace} belongs to the cluster itself: choose another namespace"]
    return []
