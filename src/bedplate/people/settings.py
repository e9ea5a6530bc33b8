"""What can be said of a user's rights, and which values it can have. Pure.

In: values. Out: `Settings`, in which None is what was not given, and the problems of single values in the words of
whoever asks: a flag of the tool, a parameter of the shell.
"""

from __future__ import annotations

import posixpath

import msgspec

__all__ = ["CLUSTER_ADMIN", "MAX_ID", "OPERATORS", "ROLES", "Settings", "check_path"]

ROLES = ("edit", "admin", "view", "cluster-admin")
CLUSTER_ADMIN = "cluster-admin"
OPERATORS = {
    "cm-jupyter-kernel-operator": "cm-jupyter-kernel-operator",
    "jupyter-kernel-operator": "cm-jupyter-kernel-operator",
    "postgresql-operator": "postgresql-operator",
    "postgres-operator": "postgresql-operator",
    "cm-kubernetes-postgresql-operator": "postgresql-operator",
    "spark-operator": "spark-operator",
    "cm-kubernetes-spark-operator": "spark-operator",
}
"""Every spelling of an operator that users can be admitted to, with the name that is printed."""

MAX_ID = 2**31 - 1


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The values of a request; None was not given."""

    namespace: str | None = None
    role: str | None = None
    uid: int | None = None
    gids: tuple[int, ...] | None = None
    paths: tuple[str, ...] | None = None
    allow_all_uids: bool | None = None
    operators: tuple[str, ...] | None = None


def check_path(path: str, flag: str) -> list[str]:
    """Why a host path cannot be admitted."""
    if not path.startswith("/") or ".." in path.split("/") or "\0" in path or "\n" in path:
        return [f"{flag} {path!r}: must be an absolute path without '..'"]
    if posixpath.normpath(path).strip("/") == "":
        return [f"{flag} {path!r}: the root of the host would open every file of every node"]
    return []
