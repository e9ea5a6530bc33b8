"""Which objects a request writes and deletes. Pure.

In: a user with settings and an account, and the permission objects and namespaces of the cluster. Out: `Change` values
in the order in which they are carried out, or an error that lists every problem. Nothing here talks to the cluster:
`cluster.py` carries the changes out, and back when that fails.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bedplate.api import permissions
from bedplate.api.resources import RawObject, ResourceRef
from bedplate.core import errors
from bedplate.people import grants, settings
from bedplate.people.accounts import Account
from bedplate.people.grants import Grant, Observed

__all__ = [
    "Change",
    "add",
    "changes",
    "grant_of",
    "grants_of",
    "modify",
    "namespaces_alone",
    "problems_of",
    "remove",
    "revoke",
]


class Change(msgspec.Struct, frozen=True):
    """One object as it is and as it will be; None where there is none."""

    ref: ResourceRef[RawObject]
    name: str
    before: RawObject | None
    after: RawObject | None


def grants_of(user: str, observed: Observed) -> list[Grant]:
    """Everything that a user was granted. Raises `NotFound` where it is nothing."""
    result = [grant for grant in observed.grants if grant.user == user]
    if not result:
        known = sorted({grant.user for grant in observed.grants})
        hint = f"known users: {', '.join(known[:10])}{', …' if len(known) > 10 else ''}" if known else ""
        raise errors.NotFound(
            f"the cluster has no user {user!r}", hint=hint or f"add one with --add-user {user or 'USER'}"
        )
    return result


def grant_of(user: str, namespace: str | None, observed: Observed) -> Grant:
    """The grant of a user that a request means: that of the namespace, else the user's own, else the only one."""
    present = grants_of(user, observed)
    target = namespace or grants.default_namespace(user)
    for grant in present:
        if grant.namespace == target:
            return grant
    names = ", ".join(grant.namespace for grant in present)
    if namespace is None and len(present) == 1:
        return present[0]
    if namespace is None:
        raise errors.Invalid(f"user {user!r} has several namespaces: {names}", hint="choose one with --namespace")
    raise errors.NotFound(
        f"user {user!r} has no rights in the namespace {namespace!r}, only in: {names}",
        hint=f"grant them with --modify-user {user} --namespace {namespace} --add-to-namespace",
    )


def add(account: Account, given: settings.Settings, observed: Observed, *, is_shared: bool) -> list[Change]:
    """Add a user. `is_shared`: to a namespace that is there already."""
    user = account.name
    present = [grant for grant in observed.grants if grant.user == user]
    if present:
        raise errors.AlreadyExists(
            f"the user {user!r} already exists, in: {', '.join(grant.namespace for grant in present)}",
            hint=f"change it with --modify-user {user}; --renew-user {user} issues a new certificate",
        )
    grant = Grant(
        user=user,
        namespace=given.namespace or grants.default_namespace(user),
        role=given.role or "edit",
        uid=account.uid if given.uid is None else given.uid,
        gids=account.gids if given.gids is None else given.gids,
        paths=(str(account.home),) if given.paths is None else given.paths,
        allow_all_uids=bool(given.allow_all_uids),
        create_namespace=not is_shared,
        operators=given.operators or (),
    )
    problems = problems_of(grant, observed, is_new=True)
    if given.paths is None:
        problems += settings.check_path(str(account.home), f"the home folder of {user}")
    _refuse(f"the user {user!r} cannot be added", problems)
    return changes(None, grant, observed)


def modify(user: str, given: settings.Settings, observed: Observed, *, is_shared: bool) -> list[Change]:
    """Replace settings of a user, or grant one more namespace (`is_shared`)."""
    present = grants_of(user, observed)
    _refuse_owned(present, grants.OWNED, grants.LEAVING)
    if is_shared and all(grant.namespace != given.namespace for grant in present):
        own = next((grant for grant in present if grant.create_namespace), present[0])
        assert given.namespace is not None, "settings.read refuses --add-to-namespace without one"
        base = Grant(
            user=user,
            namespace=given.namespace,
            uid=own.uid,
            gids=own.gids,
            paths=own.paths,
            allow_all_uids=own.allow_all_uids,
            create_namespace=False,
        )
        grant = _with(base, given)
        _refuse(f"{user!r} cannot be added to {given.namespace!r}", problems_of(grant, observed, is_new=True))
        return changes(None, grant, observed)
    before = grant_of(user, given.namespace, observed)
    after = _with(before, given)
    _refuse(f"the user {user!r} cannot be changed", problems_of(after, observed, is_new=False))
    return changes(before, after, observed)


def _with(grant: Grant, given: settings.Settings) -> Grant:
    values = {
        "role": given.role,
        "uid": given.uid,
        "gids": given.gids,
        "paths": given.paths,
        "allow_all_uids": given.allow_all_uids,
        "operators": given.operators,
    }
    return msgspec.structs.replace(grant, **{name: value for name, value in values.items() if value is not None})


def revoke(user: str, namespace: str, observed: Observed) -> list[Change]:
    """Take a user's rights in one namespace away, and nothing else."""
    present = grants_of(user, observed)
    _refuse_owned(present, grants.OWNED, grants.LEAVING)
    grant = grant_of(user, namespace, observed)
    if len(present) == 1:
        raise errors.Invalid(
            f"{namespace!r} is the only namespace of the user {user!r}",
            hint=f"remove the user with --remove-user {user}",
        )
    return changes(grant, None, observed)


def remove(user: str, observed: Observed) -> list[Change]:
    """Remove a user: every object of theirs."""
    _refuse_owned(grants_of(user, observed), grants.OWNED)
    return [
        Change(ref, obj["metadata"]["name"], obj, None)
        for ref in grants.KINDS
        for obj in observed.objects.get(ref.plural, ())
        if (obj.get("spec") or {}).get("username") == user
    ]


def namespaces_alone(user: str, observed: Observed) -> list[str]:
    """The namespaces in which nobody but this user was granted anything: what runs there is theirs."""
    others = {grant.namespace for grant in observed.grants if grant.user != user}
    own = {grant.namespace for grant in observed.grants if grant.user == user}
    return sorted(own - others)


def problems_of(grant: Grant, observed: Observed, *, is_new: bool) -> list[str]:
    """Why a grant cannot be made of what is there."""
    if grant.role == settings.CLUSTER_ADMIN:
        return []
    if permissions.is_protected(grant.namespace):
        return [f"namespace {grant.namespace!r} belongs to the cluster itself: choose another one"]
    if not is_new:
        return []
    problems = []
    exists = grant.namespace in observed.namespaces
    if not grant.create_namespace and not exists:
        problems.append(
            f"namespace {grant.namespace!r} does not exist: a namespace that is shared must be there before"
        )
    owners = [other.user for other in observed.grants if other.namespace == grant.namespace and other.create_namespace]
    if grant.create_namespace and owners:
        problems.append(
            f"namespace {grant.namespace!r} belongs to the user {owners[0]!r}: choose another one, or share it"
        )
    return problems


def _refuse_owned(present: Sequence[Grant], *owners: str) -> None:
    """Two owners of one object would undo each other's changes."""
    for grant in present:
        if grant.owner in owners:
            raise errors.Invalid(
                f"the user {grant.user!r} is kept by a head, which would undo the change",
                hint=f"change it there: cmsh, kubernetes use CLUSTER; kubernetesusers; use {grant.user}. Should that"
                f" head be gone: kubectl -n {permissions.NAMESPACE} label {grants.USERS.plural} {grant.name}"
                f" {grants.OWNER}-",
            )


def _refuse(what: str, problems: Sequence[str]) -> None:
    if problems:
        raise errors.Invalid(what, problems=problems)


def changes(before: Grant | None, after: Grant | None, observed: Observed) -> list[Change]:
    """What leads from one grant to another: objects that already are as they should be are left alone."""
    present = _present(before, observed) if before is not None else {}
    target = (
        {(ref.plural, obj["metadata"]["name"]): (ref, obj) for ref, obj in grants.objects_of(after)} if after else {}
    )
    result = []
    for key, (ref, obj) in target.items():
        old = present.get(key, (ref, None))[1]
        new = obj if old is None else _merged(old, obj)
        if old is None or old.get("spec") != new["spec"] or grants.owner_of(old) != grants.owner_of(new):
            result.append(Change(ref, key[1], old, new))
    gone = [Change(ref, key[1], obj, None) for key, (ref, obj) in present.items() if key not in target]
    return [*result, *gone]


def _merged(old: RawObject, obj: RawObject) -> RawObject:
    labels = {**(old["metadata"].get("labels") or {}), **obj["metadata"]["labels"]}
    spec = {**(old.get("spec") or {}), **obj["spec"]}
    return {**old, "metadata": {**old["metadata"], "labels": labels}, "spec": spec}


def _present(grant: Grant, observed: Observed) -> dict[tuple[str, str], tuple[ResourceRef[RawObject], RawObject]]:
    """The objects of a grant: the user's by its name, those of operators by user and namespace."""
    result = {}
    for ref in grants.KINDS:
        for obj in observed.objects.get(ref.plural, ()):
            name, spec = obj["metadata"]["name"], obj.get("spec") or {}
            is_user = ref.plural == grants.USERS.plural
            same = (spec.get("username"), spec.get("namespace")) == (grant.user, grant.namespace)
            if name == grant.name if is_user else same:
                result[ref.plural, name] = (ref, obj)
    return result
