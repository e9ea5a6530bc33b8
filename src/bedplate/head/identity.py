"""Who is asking, and what they may do.

In: nothing but the values named. Out: yes or no for a verb on a resource. Pure, and small: a shell loads it, too.

Verbs: `read`, `edit`, `report`. Resources: `tree`, `mode/<mode>`, `secrets`, `tokens`, `metrics`, `node/<name>`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bedplate.core import errors
from bedplate.head.entities.site import User
from bedplate.head.tree import Tree

__all__ = ["LOCAL", "NODE", "Identity", "demand", "may", "user_in"]

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
    who = f"node {identity.name}" if identity.role == NODE else f"{identity.name}, who is {identity.role},"
    hint = "a node's credential serves its desired state and its reports alone" if identity.role == NODE else _HINT
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
