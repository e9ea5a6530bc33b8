"""The permission objects of the cluster, as grants: one user in one namespace, with the operators they may use. Pure.

In: custom resources as the server has them. Out: `Grant` values in the order of user and namespace, and the objects
that a grant consists of. An object that the tool did not write is a grant as well: administrators may apply their own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from bedplate.api import permissions
from bedplate.api.resources import RawObject, ResourceRef
from bedplate.core import clock
from bedplate.people.settings import OPERATORS as OPERATOR_NAMES

__all__ = [
    "EXPIRES",
    "ISSUED",
    "KINDS",
    "LEAVING",
    "OPERATORS",
    "OWNED",
    "OWNER",
    "USERS",
    "Grant",
    "Observed",
    "State",
    "default_namespace",
    "objects_of",
    "of_objects",
    "owner_of",
    "state_of",
]

EXPIRES = "charts.brightcomputing.com/certificate-expires"
"""The annotation of a user's object with the moment at which the certificate that was last issued expires."""
ISSUED = "charts.brightcomputing.com/certificate-issued"
"""The same of the moment from which on it is valid."""
OWNER = "bedplate.dev/owner"
"""The label of objects that a head keeps as its tree says; nobody else changes them."""
OWNED, LEAVING = "head", "head-removing"
"""Its values: the tree has the user; the tree has it no more, and it goes as soon as it can."""
USERS = permissions.USERS.raw()
OPERATORS = {name: permissions.OPERATORS[name].raw() for name in dict.fromkeys(OPERATOR_NAMES.values())}
"""Each operator by the name that is printed, and the kind whose objects admit users to it."""
KINDS = (USERS, *OPERATORS.values())


def default_namespace(user: str) -> str:
    """The namespace of a user for whom none was chosen: `john-restricted`."""
    return f"{permissions.user_part(user)}-restricted"


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What one user may do in one namespace; `name` is that of its object, "" before there is one."""

    user: str
    namespace: str
    name: str = ""
    role: str = "edit"
    uid: int = -1
    gids: tuple[int, ...] = (-1,)
    paths: tuple[str, ...] = ()
    allow_all_uids: bool = False
    create_namespace: bool = True
    create_service_account: bool = True
    operators: tuple[str, ...] = ()
    created: str = ""
    expires: datetime | None = None
    issued: datetime | None = None
    owner: str = ""
    is_ready: bool = False
    message: str = ""


class Observed(msgspec.Struct, frozen=True):
    """The permission objects of the cluster by kind (plural), and the names of its namespaces."""

    objects: Mapping[str, tuple[RawObject, ...]]
    namespaces: frozenset[str]

    @property
    def grants(self) -> list[Grant]:
        """What they say, in the order of user and namespace."""
        return of_objects(self.objects)


def of_objects(objects: Mapping[str, Iterable[RawObject]]) -> list[Grant]:
    """The grants of these objects, by the plural of their kind."""
    operators: dict[tuple[str, str], list[str]] = {}
    for operator, ref in OPERATORS.items():
        for obj in objects.get(ref.plural, ()):
            spec = _mapping(obj.get("spec"))
            operators.setdefault((str(spec.get("username")), str(spec.get("namespace"))), []).append(operator)
    grants = [_grant(obj, operators) for obj in objects.get(USERS.plural, ())]
    return sorted(grants, key=lambda grant: (grant.user, grant.namespace, grant.name))


def _grant(obj: RawObject, operators: Mapping[tuple[str, str], list[str]]) -> Grant:
    spec, metadata = _mapping(obj.get("spec")), _mapping(obj.get("metadata"))
    user, namespace = str(spec.get("username") or ""), str(spec.get("namespace") or "")
    state = state_of(obj)
    return Grant(
        user=user,
        namespace=namespace,
        name=str(metadata.get("name", "")),
        role=str(spec.get("role", "edit")),
        uid=int(spec.get("uid", -1)),
        gids=tuple(spec.get("gids") or (-1,)),
        paths=tuple(spec.get("user_paths") or ()),
        allow_all_uids=bool(spec.get("allow_all_uids", False)),
        create_namespace=bool(spec.get("create_namespace", True)),
        create_service_account=bool(spec.get("create_service_account", True)),
        operators=tuple(operators.get((user, namespace), ())),
        created=str(metadata.get("creationTimestamp") or ""),
        expires=_moment(_mapping(metadata.get("annotations")).get(EXPIRES)),
        issued=_moment(_mapping(metadata.get("annotations")).get(ISSUED)),
        owner=owner_of(obj),
        is_ready=state.is_ready,
        message=state.message,
    )


def owner_of(obj: RawObject) -> str:
    """Whose an object is: "" for what the tool or an administrator made."""
    return str(_mapping(_mapping(obj.get("metadata")).get("labels")).get(OWNER) or "")


class State(msgspec.Struct, frozen=True):
    """What the permission manager says of an object as it is now; `is_reported` is False where it says nothing."""

    is_reported: bool = False
    is_ready: bool = False
    reason: str = ""
    message: str = ""


def state_of(obj: RawObject | None) -> State:
    """The condition Ready of an object. One that speaks of an earlier generation says nothing."""
    status, generation = _mapping((obj or {}).get("status")), _mapping((obj or {}).get("metadata")).get("generation")
    observed = status.get("observedGeneration", generation)
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("observedGeneration", observed) == generation:
            reason, message = str(condition.get("reason") or ""), str(condition.get("message") or "")
            return State(True, condition.get("status") == "True", reason, message)
    return State()


def _moment(text: Any) -> datetime | None:
    with contextlib.suppress(ValueError, TypeError):
        return clock.parse_rfc3339(text) if text else None
    return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def objects_of(grant: Grant) -> list[tuple[ResourceRef[RawObject], RawObject]]:
    """The objects of a grant as they are written: the user's, and one for each operator."""
    spec = {
        "username": grant.user,
        "namespace": grant.namespace,
        "role": grant.role,
        "uid": grant.uid,
        "gids": list(grant.gids),
        "user_paths": list(grant.paths),
        "allow_all_uids": grant.allow_all_uids,
        "create_namespace": grant.create_namespace,
        "create_service_account": grant.create_service_account,
    }
    name = grant.name or permissions.release_name(grant.user, grant.namespace)
    result = [(USERS, _object(name, grant, spec))]
    for operator in grant.operators:
        ref = OPERATORS[operator]
        # Every object becomes a release of its name, so that no two kinds may share one.
        name = permissions.release_name(grant.user, f"{grant.namespace}/{ref.plural}")
        result.append((ref, _object(name, grant, {"username": grant.user, "namespace": grant.namespace})))
    return result


def _object(name: str, grant: Grant, spec: Mapping[str, Any]) -> RawObject:
    labels = {**permissions.labels(grant.user, grant.namespace), **({OWNER: grant.owner} if grant.owner else {})}
    return {
        "metadata": {"name": name, "namespace": permissions.NAMESPACE, "labels": labels},
        "spec": dict(spec),
    }
