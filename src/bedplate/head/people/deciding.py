"""What the tree wants of a cluster's users, and what leads there. Pure.

In: a user of the tree with their account, the permission objects of the cluster, what the head has recorded. Out: for
each grant of a user a `Verdict`: changes to make, or why none are made. Who owns what:

- an object with the label `bedplate.dev/owner: head` is kept as the tree says;
- one without it belongs to whoever made it. Where it says the same as the tree it is taken over, and gets the label;
  where it differs nothing is changed, and the difference is named;
- an object is deleted only if it has the label and is recorded here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec

from bedplate.core import errors
from bedplate.head.entities.people import NO_PATHS, KubernetesUser, UserNamespace
from bedplate.head.objects import Obj
from bedplate.people import grants, plan
from bedplate.people.accounts import Account
from bedplate.people.grants import Grant, Observed
from bedplate.people.plan import Change
from bedplate.people.settings import CLUSTER_ADMIN

__all__ = ["Verdict", "decide", "key_of", "needs_account", "removal", "wanted"]

_COMPARED = ("role", "uid", "gids", "paths", "allow_all_uids", "create_namespace", "operators")


class Verdict(msgspec.Struct, frozen=True):
    """What is to be done about one grant. `conflict` and `problem` say why nothing is."""

    grant: Grant
    before: Grant | None = None
    changes: tuple[Change, ...] = ()
    problem: str = ""
    conflict: str = ""
    is_adopted: bool = False
    is_removal: bool = False


def key_of(change: Change) -> str:
    """How a record names an object."""
    return f"{change.ref.plural}/{change.name}"


def needs_account(user: Obj) -> bool:
    """Whether something of the user's rights follows from their account."""
    paths = KubernetesUser.paths.value(user) or KubernetesUser.is_cluster_wide(user)
    return KubernetesUser.uid.value(user) is None or not KubernetesUser.gids.value(user) or not paths


def wanted(user: Obj, account: Account | None) -> list[Grant]:
    """The grants of a user of the tree. Raises `NotFound` where an account is needed and there is none."""
    if account is None and needs_account(user):
        raise errors.NotFound(
            f"there is no account {user.key} on the head",
            hint=f"create it (getent passwd {user.key} must find it), or set uid, gids and paths",
        )
    uid, gids, paths = (row.value(user) for row in (KubernetesUser.uid, KubernetesUser.gids, KubernetesUser.paths))
    operators = KubernetesUser.operators.value(user)
    assert isinstance(gids, tuple) and isinstance(paths, tuple) and isinstance(operators, tuple)
    home = (str(account.home),) if account is not None else ()
    own = Grant(
        user=user.key,
        namespace=KubernetesUser.own_namespace(user),
        role=str(KubernetesUser.role.value(user)),
        uid=int(uid) if isinstance(uid, int) else account.uid if account is not None else -1,
        gids=tuple(map(int, gids)) or (account.gids if account is not None else (-1,)),
        paths=() if paths == (NO_PATHS,) else paths or home,
        allow_all_uids=bool(KubernetesUser.allow_all_uids.value(user)),
        create_namespace=bool(KubernetesUser.create_namespace.value(user)),
        operators=_operators(operators),
        owner=grants.OWNED,
    )
    return [own, *_more(own, user)]


def _more(own: Grant, user: Obj) -> Iterator[Grant]:
    for namespace, obj in sorted(user.below("more_namespaces").items()):
        operators = UserNamespace.operators.value(obj)
        assert isinstance(operators, tuple)
        yield msgspec.structs.replace(
            own,
            namespace=namespace,
            role=str(UserNamespace.role.value(obj)),
            operators=_operators(operators),
            create_namespace=False,
        )


def _operators(names: Sequence[str]) -> tuple[str, ...]:
    """In the order in which the cluster's objects are read."""
    return tuple(name for name in grants.OPERATORS if name in names)


def decide(targets: Sequence[Grant], observed: Observed, recorded: Collection[str]) -> list[Verdict]:
    """What leads to the grants of one user, all of them; `recorded` are the objects that the head made for the user."""
    user = targets[0].user
    present = {grant.namespace: grant for grant in observed.grants if grant.user == user}
    verdicts = [_verdict(target, present.get(target.namespace), observed) for target in targets]
    kept = {target.namespace for target in targets}
    return [
        *verdicts,
        *removal([grant for grant in present.values() if grant.namespace not in kept], observed, recorded),
    ]


def _verdict(target: Grant, present: Grant | None, observed: Observed) -> Verdict:
    if present is None:
        problems = plan.problems_of(target, observed, is_new=True)
        if problems:
            return Verdict(target, problem="; ".join(problems))
        return Verdict(target, changes=tuple(plan.changes(None, target, observed)))
    same = msgspec.structs.replace(target, name=present.name, create_service_account=present.create_service_account)
    changes = tuple(plan.changes(present, same, observed))
    if present.owner in (grants.OWNED, grants.LEAVING):
        return Verdict(same, present, changes)
    other = differences(present, same)
    if other:
        return Verdict(
            same,
            present,
            conflict=f"the head did not make it, and it differs: {', '.join(other)}; set the same here, or remove it"
            f" from the cluster (cm-kubernetes-setup --remove-user {same.user})",
        )
    return Verdict(same, present, changes, is_adopted=True)


def differences(present: Grant, target: Grant) -> list[str]:
    """`role is view, not edit` for what two grants do not have in common."""
    names = [name for name in _COMPARED if not (name == "create_namespace" and target.role == CLUSTER_ADMIN)]
    return [
        f"{name.replace('_', '')} is {_text(getattr(present, name))}, not {_text(getattr(target, name))}"
        for name in names
        if getattr(present, name) != getattr(target, name)
    ]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(map(str, value)) or "nothing" if isinstance(value, tuple) else str(value)


def removal(leaving: Sequence[Grant], observed: Observed, recorded: Collection[str]) -> list[Verdict]:
    """What removes grants that the head made; nothing for those of others."""
    verdicts = []
    for grant in leaving:
        if grant.owner in (grants.OWNED, grants.LEAVING) and f"{grants.USERS.plural}/{grant.name}" in recorded:
            changes = [change for change in plan.changes(grant, None, observed) if key_of(change) in recorded]
            verdicts.append(Verdict(grant, grant, tuple(changes), is_removal=True))
    return verdicts
