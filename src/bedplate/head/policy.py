"""Who is asking, what they may do, and the rules that every commit is held against, whichever front end it is from.

In: an identity, a verb and a resource; for a commit the tree that it replaces, the edits, the tree they make. Out:
nothing, or `Denied` and `Invalid` that say why not. Pure. `service.Head` applies the rules of commits while nobody else
commits, so that of two commits that are harmless one by one, the second is refused.

Verbs: `read`, `edit`, `report`, and for machines alone `enrol` and `renew`. Resources: `tree`, `mode/<mode>`,
`secrets`, `tokens`, `enrolments`, `images`, `setups`, `metrics`, `node/<name>`, and `head nodes`: these, the overlays
they are members of, and the clusters that their roles are about. Whoever decides what runs on a head node can read its
keys, and whoever lets a machine be a node gives it that node's secrets, so both are an administrator's alone; so are
the trees of images, in which commands run as root on a head node, and runs of setup tools, which make the keys of
clusters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from bedplate.core import errors
from bedplate.head.changes import MASK
from bedplate.head.entities.nodes import ConfigurationOverlay
from bedplate.head.entities.site import User
from bedplate.head.objects import Obj, Secret
from bedplate.head.session import Edit
from bedplate.head.tree import Tree

__all__ = [
    "CERTIFICATE",
    "ENROL",
    "ENROL_CATEGORY",
    "JOIN",
    "LOCAL",
    "NODE",
    "Identity",
    "confirm",
    "demand",
    "demand_edits",
    "demand_errands",
    "keep_access",
    "may",
    "require_administrator",
    "user_in",
]

NODE: Final = "node"
"""The role of a node, and the kind of its tokens."""
JOIN: Final = "join"
"""The role of a head node that joins the site, and the kind of its one-time token."""
ENROL: Final = "enrol"
"""The role of a machine that is about to become a node, and the kind of the token for a device."""
ENROL_CATEGORY: Final = "enrol-category"
"""The kind of the token for new nodes of a category; whoever has it has the role `ENROL`."""
CERTIFICATE: Final = "certificate"
"""Through what somebody is asking who has a client certificate."""
LOCAL: Final = "data folder"
"""Through what somebody is asking who opened the head's data folder in this process."""
_OVERLAY = "configurationoverlay"
_CLUSTERS = ("kubernetes", "etcd")


class Identity(NamedTuple):
    """Who is asking: the name of a user or of a node; `admin`, `operator`, `auditor` or `node`; through what; and when
    that ends, in seconds since 1970."""

    name: str
    role: str
    via: str = ""
    until: float = math.inf

    @classmethod
    def local(cls, name: str) -> Identity:
        """Whoever can open the data folder: its files hold every key there is, so the role is admin. The name is what
        history says; what the user of that name may do does not matter."""
        return cls(name, "admin", LOCAL)


def may(identity: Identity, verb: str, resource: str) -> bool:
    """Whether the identity may do that."""
    if verb == "enrol":
        return identity.role == ENROL
    if verb == "renew":
        return identity.role == NODE and resource == f"node/{identity.name}" and identity.via == CERTIFICATE
    if identity.role == "admin":
        return True
    if identity.role == ENROL:
        return verb == "read" and resource == "own enrolment"
    if identity.role == JOIN:
        return resource == JOIN
    if identity.role == NODE:
        return resource == f"node/{identity.name}" and verb in ("read", "report")
    if verb == "read":
        return resource != "secrets"
    return identity.role == "operator" and resource not in _ADMINISTRATORS


_ADMINISTRATORS = ("secrets", "tokens", "enrolments", "images", "kubeadm", "setups", "mode/user", "head nodes", JOIN)


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
    return user._replace(via=identity.via, until=identity.until)


def demand_edits(identity: Identity, tree: Tree, edits: Iterable[Edit]) -> None:
    """Raise `Denied` unless the identity may commit the edits onto the tree: each mode, each secret they touch, and
    what they put on head nodes."""
    edits = list(edits)
    for edit in edits:
        demand(identity, "edit", f"mode/{edit.mode}")
        if may(identity, "edit", "secrets"):
            continue
        before, after = dict(_secrets(tree.find(edit.mode, edit.key))), dict(_secrets(edit.new))
        # A mask stands for the secret that is set.
        if before != {path: before.get(path, text) if text == MASK else text for path, text in after.items()}:
            demand(identity, "edit", "secrets")
    if not may(identity, "edit", "head nodes"):
        later = tree.with_objects((edit.mode, edit.key, edit.new) for edit in edits)
        for edit in edits:
            if _is_unchanged(tree.find(edit.mode, edit.key), edit.new):
                continue
            if any(_reaches_head_nodes(each, edit.mode, edit.key) for each in (tree, later)):
                who = f"{identity.name} (role {identity.role})"
                raise errors.Denied(f"{who} may not edit {edit.mode}[{edit.key}]: it reaches head nodes", hint=_HINT)


def demand_errands(identity: Identity, tree: Tree, nodes: Iterable[str]) -> None:
    """Raise `Denied` unless the identity may have those machines rebooted or switched off."""
    demand(identity, "edit", "errands")
    for node in nodes:
        if _is_head_node(tree, node):
            demand(identity, "edit", "head nodes")


def _is_unchanged(present: Obj | None, new: Obj | None) -> bool:
    return present is not None and new is not None and replace(new, revision=present.revision) == present


def _reaches_head_nodes(tree: Tree, mode: str, key: str) -> bool:
    obj = tree.find(mode, key)
    if obj is None:
        return False
    if mode == "device":
        return _is_head_node(tree, key)
    if mode == _OVERLAY:
        nodes = ConfigurationOverlay.nodes.value(obj)
        assert isinstance(nodes, tuple)
        return bool(ConfigurationOverlay.all_head_nodes.value(obj)) or any(_is_head_node(tree, name) for name in nodes)
    if mode not in _CLUSTERS:
        return False
    for by in ("device", _OVERLAY):
        for name, ways in tree.referrers(mode, key, by).items():
            if any(way.startswith("roles") for way in ways) and _reaches_head_nodes(tree, by, name):
                return True
    others = (by for by in _CLUSTERS if by != mode)
    return any(_reaches_head_nodes(tree, by, name) for by in others for name in tree.referrers(mode, key, by))


def _is_head_node(tree: Tree, name: str) -> bool:
    device = tree.find("device", name)
    return device is not None and device.type == "HeadNode"


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
