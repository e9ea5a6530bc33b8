"""Who a request comes from: the same rules for the REST API and the page.

In: the present tree with its users and devices, bearer tokens, certificates that TLS accepted. Out: an `Identity`, or
None for an unknown credential. The user's object alone says what a user may do, so that a changed role, or a disabled
user, counts from the next request on, whatever the credential says.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from bedplate.core import errors
from bedplate.head.entities.site import User
from bedplate.head.objects import Secret
from bedplate.head.policy import NODE, Identity, user_in
from bedplate.head.tokens import Tokens
from bedplate.head.tree import Tree

__all__ = ["NODES", "USERS", "Access", "subject_of"]

USERS: Final = "bedplate:users"
NODES: Final = "bedplate:nodes"
"""The organisation in the client certificates of users and of nodes."""


class Access:
    """Turns credentials into identities by what the present tree says. It waits for nothing."""

    def __init__(self, tree: Callable[[], Tree], tokens: Tokens) -> None:
        self._tree = tree
        self.tokens = tokens

    def by_token(self, text: str) -> Identity | None:
        """Whose bearer token that is: one the head made, or the one an administrator wrote into a user's object."""
        token = self.tokens.find(text)
        if token is not None:
            identity = self.by_node(token.subject) if token.kind == NODE else self.by_name(token.subject)
            return identity._replace(via=f"token {token.id}") if identity is not None else None
        return self._by_own_token(text)

    def by_certificate(self, subject: Mapping[str, Sequence[str]], der: bytes) -> Identity | None:
        """Whose client certificate that is. TLS has checked who signed it and its dates; `subject_of` gives `subject`.

        Where a user's object names a fingerprint, no other certificate of that user counts.
        """
        names, groups = subject.get("commonName", ()), subject.get("organizationName", ())
        if len(names) != 1:
            return None
        if NODES in groups:
            identity = self.by_node(names[0])
        elif USERS in groups and self._is_pinned(names[0], der):
            identity = self.by_name(names[0])
        else:
            return None
        return identity._replace(via="certificate") if identity is not None else None

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
            token = User.token.value(user)
            # All are compared, so that the time says nothing about which one was close.
            if isinstance(token, Secret) and token.reveal() and hmac.compare_digest(_digest(token.reveal()), digest):
                owner = name
        identity = self.by_name(owner) if owner else None
        return identity._replace(via="token") if identity is not None else None

    def _is_pinned(self, name: str, der: bytes) -> bool:
        user = self._tree().find("user", name)
        pinned = str(User.certificate.value(user)) if user is not None else ""
        return not pinned or hmac.compare_digest(pinned, hashlib.sha256(der).hexdigest())


def subject_of(certificate: Mapping[str, Any]) -> dict[str, list[str]]:
    """The subject of a certificate as `ssl` gives it, by the names of its parts."""
    subject: dict[str, list[str]] = {}
    for part in certificate.get("subject", ()):
        for name, value in part:
            subject.setdefault(name, []).append(value)
    return subject


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
