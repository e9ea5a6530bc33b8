"""Who is asking, and what they may do: the same rules for the REST API and the page.

In: the present tree with its users and devices, bearer tokens, certificates that TLS found good. Out: an `Identity`, or
None for nobody; yes or no for a verb on a resource. What a user may do is said by the user's object alone, so that a
role that was changed, or a user who was shut out, counts from the next request on, whatever the credential says.

Verbs: `read`, `edit`, `report`. Resources: `tree`, `mode/<mode>`, `secrets`, `tokens`, `metrics`, `node/<name>`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from bedplate.core import errors
from bedplate.head.entities.site import User
from bedplate.head.objects import Secret
from bedplate.head.tokens import NODE, Tokens
from bedplate.head.tree import Tree

__all__ = ["LOCAL", "NODES", "USERS", "Access", "Identity", "demand", "may", "subject_of", "user_in"]

USERS: Final = "bedplate:users"
NODES: Final = "bedplate:nodes"
"""The organisation in the client certificates of users and of nodes."""
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


class Access:
    """Turns credentials into identities by what the present tree says. It waits for nothing."""

    def __init__(self, tree: Callable[[], Tree], tokens: Tokens) -> None:
        self._tree = tree
        self.tokens = tokens

    def by_token(self, text: str) -> Identity | None:
        """Whose bearer token that is: one the head made, or the one an administrator wrote into a user's object."""
        token = self.tokens.find(text)
        if token is not None:
            found = self.by_node(token.subject) if token.kind == NODE else self.by_name(token.subject)
            return found._replace(via=f"token {token.id}") if found is not None else None
        return self._by_own_token(text)

    def by_certificate(self, subject: Mapping[str, Sequence[str]], der: bytes) -> Identity | None:
        """Whose client certificate that is. TLS has checked who signed it and its dates; `subject_of` gives `subject`.

        Where a user's object names a fingerprint, no other certificate of that user counts.
        """
        names, groups = subject.get("commonName", ()), subject.get("organizationName", ())
        if len(names) != 1:
            return None
        if NODES in groups:
            found = self.by_node(names[0])
        elif USERS in groups and self._is_pinned(names[0], der):
            found = self.by_name(names[0])
        else:
            return None
        return found._replace(via="certificate") if found is not None else None

    def by_name(self, name: str) -> Identity | None:
        """The user as the present tree has it; None for one that is not there or not let in."""
        return user_in(self._tree(), name)

    def by_node(self, name: str) -> Identity | None:
        """A device of the present tree."""
        return Identity(name, NODE) if self._tree().find("device", name) is not None else None

    def check_subject(self, kind: str, subject: str) -> None:
        """Raise `NotFound` unless the tree has the user, or the device, that a token is asked for."""
        mode = "device" if kind == NODE else "user"
        if self._tree().find(mode, subject) is None:
            raise errors.NotFound(f"there is no {mode} {subject!r}", hint=f"cmsh: {mode}; list shows those there are")

    def _by_own_token(self, text: str) -> Identity | None:
        digest, owner = _digest(text), ""
        for name, user in self._tree().mode("user").items():
            held = User.token.value(user)
            # All are compared, so that the time says nothing about which one was close.
            if isinstance(held, Secret) and held.reveal() and hmac.compare_digest(_digest(held.reveal()), digest):
                owner = name
        found = self.by_name(owner) if owner else None
        return found._replace(via="token") if found is not None else None

    def _is_pinned(self, name: str, der: bytes) -> bool:
        user = self._tree().find("user", name)
        pinned = str(User.certificate.value(user)) if user is not None else ""
        return not pinned or hmac.compare_digest(pinned, hashlib.sha256(der).hexdigest())


def subject_of(certificate: Mapping[str, Any]) -> dict[str, list[str]]:
    """The subject of a certificate as `ssl` gives it, by the names of its parts."""
    found: dict[str, list[str]] = {}
    for part in certificate.get("subject", ()):
        for name, value in part:
            found.setdefault(name, []).append(value)
    return found


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
