"""Who may commit what: the rules that every commit is held against, whichever front end it comes from.

In: who is committing, the tree that the commit replaces, the edits, the tree they make. Out: nothing, or `Denied` and
`Invalid` that say why not. Pure. `service.Head` applies the rules while nobody else commits, so that of two commits
that are harmless one by one, the second is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bedplate.core import errors
from bedplate.head.changes import MASK
from bedplate.head.entities.site import User
from bedplate.head.identity import LOCAL, NODE, Identity, demand, user_in
from bedplate.head.objects import Obj, Secret
from bedplate.head.session import Edit
from bedplate.head.tree import Tree

__all__ = ["confirm", "demand_edits", "keep_access", "require_administrator"]


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
        before, after = dict(_secrets(tree.find(edit.mode, edit.key))), dict(_secrets(edit.new))
        # A mask stands for the secret that is set.
        if before != {path: before.get(path, text) if text == MASK else text for path, text in after.items()}:
            demand(identity, "edit", "secrets")


def keep_access(identity: Identity, before: Tree, after: Tree) -> None:
    """Raise `Invalid` when the commit takes away the access that it is made with, or the last administrator's."""
    if identity.via != LOCAL:
        user = user_in(after, identity.name)
        if user is None or user.role != identity.role:
            raise errors.Invalid(
                f"{identity.name} would lose the access this commit is made with",
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
