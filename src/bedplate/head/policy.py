"""Who is asking, what they may do, and the rules that every commit is held against, whichever front end it is from.

In: an identity, a verb and a resource; for a commit the tree that it replaces, the edits, the tree they make. Out:
nothing, or `Denied` and `Invalid` that say why not. Pure. `service.Head` applies the rules of commits while nobody else
commits, so that of two commits that are harmless one by one, the second is refused.

Verbs: `read`, `edit`, `report`. Resources: `tree`, `mode/<mode>`, `secrets`, `tokens`, `metrics`, `node/<name>`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from bedplate.core import errors
from bedplate.head.changes import MASK
from bedplate.head.entities.site import User
from bedplate.head.objects import Obj, Secret
from bedplate.head.session import Edit
from bedplate.head.tree import Tree

__all__ = [
    "LOCAL",
    "NODE",
    "Identity",
    "confirm",
    "demand",
    "demand_edits",
    "keep_access",
    "may",
    "require_administrator",
    "user_in",
]

NODE: Final = "node"
"""The role of a node, and the kind of its tokens."""
LOCAL: Final = "data folder"
"""Through what somebody is asking who opened the head's data folder in this process."""


class Identity(NamedTuple):
    """Who is asking: the name of a user or of a node; `admin`, `operator`, `auditor` or `node`; through what."""

    name: str
    role: str
    via: str = ""

    @classmethod
    def local(cls, name: str) -> Identity:
        """Whoever can open the data folder: its files hold every key there is, so the role is admin. The name is what
        history says; what the user of that name may do does not matter."""
        return cls(name, "admin", LOCAL)


def may(identity: Identity, verb: str, resource: str) -> bool:
    """Whether the identity may do that."""
    if identity.role == "admin":
        return True
    if identity.role == NODE:
        return resource == f"node/{identity.name}" and verb in ("read", "report")
    if verb == "read":
        return resource != "secrets"
    return identity.role == "operator" and resource not in ("secrets", "tokens", "mode/user")


def demand(identity: Identity, verb: str, resource: str) -> None:
    """Raise `Denied` unless the identity may do that."""
    if may(identity, verb, resource):
        return
    who = f"node {identity.name}" if identity.role == NODE else f"{identity.name} (role {identity.role})"
    hint = (
        "a node's credential gives access only to its desired state and its reports" if identity.role == NODE else _HINT
    )
    raise errors.Denied(f"{who} may not {verb} {_named(resource)}", hint=hint)


_HINT = "ask an administrator; whoami shows who you are, and user mode in cmsh shows roles"


def _named(resource: str) -> str:
    kind, _, name = resource.partition("/")
    return {"tree": "objects", "mode": f"{name} objects", "node": f"what belongs to {name}"}.get(kind, resource)


def user_in(tree: Tree, name: str) -> Identity | None:
    """The user as a tree has it; None for one that does not exist or is not enabled."""
    user = tree.find("user", name)
    if user is None or not User.enabled.value(user):
        return None
    return Identity(name, str(User.role.value(user)))


def confirm(identity: Identity, tree: Tree) -> Identity:
    """The identity as the tree has it by now: who was disabled after the request was admitted is refused."""
    if identity.via == LOCAL or identity.role == NODE:
        return identity
    user = user_in(tree, identity.name)
    if user is None:
        raise errors.Denied(
            f"user {identity.name} was disabled or removed", hint="another administrator can enable the user again"
        )
    return user._replace(via=identity.via)


def demand_edits(identity: Identity, tree: Tree, edits: Iterable[Edit]) -> None:
    """Raise `Denied` unless the identity may commit the edits onto the tree: each mode, and each secret they touch."""
    for edit in edits:
        demand(identity, "edit", f"mode/{edit.mode}")
        if may(identity, "edit", "secrets"):
            continue
        before, after = dict(_secrets(tree.find(edit.mode, edit.key))), dict(_secrets(edit.new))
        # A mask stands for the secret that is set.
        if before != {path: before.get(path, text) if text == MASK else text for path, text in after.items()}:
            demand(identity, "edit", "secrets")


def keep_access(identity: Identity, before: Tree, after: Tree) -> None:
    """Raise `Invalid` when the commit takes away the access that it is made with, or the last administrator's."""
    if before.mode("user") is after.mode("user"):
        return
    if identity.via != LOCAL:
        user = user_in(after, identity.name)
        if user is None or user.role != identity.role:
            raise errors.Invalid(
                f"{identity.name} would lose their own access by this commit",
                hint="another administrator can do that",
            )
    if _has_administrator(before):
        require_administrator(after)


def require_administrator(tree: Tree) -> None:
    """Raise `Invalid` for a tree that nobody could administer."""
    if not _has_administrator(tree):
        raise errors.Invalid(
            "no enabled user with the role admin would be left", hint="enable another administrator first"
        )


def _has_administrator(tree: Tree) -> bool:
    return any(User.enabled.value(user) and User.role.value(user) == "admin" for user in tree.mode("user").values())


def _secrets(obj: Obj | None, path: str = "") -> Iterator[tuple[str, str]]:
    if obj is None:
        return
    for name, value in obj.values.items():
        if isinstance(value, Secret):
            yield f"{path}{name}", value.reveal()
    for submode, children in obj.children.items():
        for key, child in children.items():
            yield from _secrets(child, f"{path}{submode}[{key}].")
