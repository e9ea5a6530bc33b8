"""A user of a cluster as an object of the tree, with the values that the cluster has. Pure.

In: the rows of one user. Out: the object. Committed as it is, it says the same as the cluster, so that the head takes
the user over (`deciding`).
"""

from __future__ import annotations

from collections.abc import Sequence

from bedplate.api.headapi import PersonState
from bedplate.core import errors
from bedplate.head.entities.people import NO_PATHS, KubernetesUser
from bedplate.head.objects import Obj, Value
from bedplate.people.grants import default_namespace

__all__ = ["as_object"]


def as_object(user: str, rows: Sequence[PersonState]) -> Obj:
    """The user of these rows. Raises `NotFound` where the cluster has none, `AlreadyExists` where the tree has it."""
    own = [row for row in rows if row.user == user]
    if not own:
        raise errors.NotFound(f"the cluster has no user {user!r}", hint="userstatus lists those that it has")
    if any(row.owner == "tree" for row in own):
        raise errors.AlreadyExists(f"the user {user} is in the tree already", hint="list shows the users of the tree")
    KubernetesUser.check_name(user)
    first = next((row for row in own if not row.shared), own[0])
    values: dict[str, Value | None] = {
        "role": first.role,
        "namespace": _own_namespace(user, first),
        "create_namespace": not first.shared,
        "uid": first.uid,
        "gids": tuple(map(str, first.gids)),
        "paths": tuple(first.paths) or (NO_PATHS,),
        "allow_all_uids": first.all_uids,
        "operators": tuple(first.operators),
    }
    rows_of = {field.attribute: field for field in KubernetesUser.fields}
    kept = {
        name: value for name, value in values.items() if value is not None and rows_of[name].normal(value) is not None
    }
    more = {row.namespace: Obj("UserNamespace", row.namespace, _more(row)) for row in own if row is not first}
    return Obj("KubernetesUser", user, kept, children={"more_namespaces": more} if more else {})


def _own_namespace(user: str, row: PersonState) -> str:
    return "" if row.namespace in ("*", default_namespace(user)) else row.namespace


def _more(row: PersonState) -> dict[str, Value]:
    values: dict[str, Value] = {}
    if row.role != "edit":
        values["role"] = row.role
    if row.operators:
        values["operators"] = tuple(row.operators)
    return values
