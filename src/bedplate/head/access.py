"""Who a request comes from: the same rules for the REST API and the page.

In: the present tree with its users and devices, certificates that TLS accepted, bearer tokens. Out: an `Identity`, or
None for an unknown credential. The user's object alone says what a user may do, so that a changed role, or a disabled
user, counts from the next request on, whatever the credential says.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec

from bedplate.api.headapi import Certificate, Token, TokenRequest
from bedplate.core import errors
from bedplate.head.certificates import AnyAuthority, Trusts
from bedplate.head.entities.site import User
from bedplate.head.objects import Obj, Secret
from bedplate.head.policy import CERTIFICATE, ENROL, ENROL_CATEGORY, JOIN, NODE, Identity, user_in
from bedplate.head.schema.kinds import is_strong_token
from bedplate.head.tokens import ENROLLING, Tokens, digest_of, end_of
from bedplate.head.tree import Tree

__all__ = ["NODES", "USER", "USERS", "Access", "subject_of"]

USER: Final = "user"
_ENROLS_WITHIN = timedelta(hours=1)
_ONCE = (JOIN, *ENROLLING)
USERS: Final = "bedplate:users"
NODES: Final = "bedplate:nodes"
"""The organisation in the client certificates of users and of nodes."""


_OWNERS = {NODE: "device", ENROL: "device", ENROL_CATEGORY: "category"}


class Access:
    """Turns credentials into identities by what the present tree says. It waits for nothing.

    `trusts` is asked about client certificates: their authority may have been replaced since the connection was made.
    """

    def __init__(self, tree: Callable[[], Tree], tokens: Tokens, trusts: Trusts | None = None) -> None:
        self._tree = tree
        self.tokens = tokens
        self._trusts = trusts or AnyAuthority()
        self._users: Mapping[str, Obj] = {}
        self._changes = 0

    @property
    def mark(self) -> int:
        """A number that changes whenever a credential of a user may have ended or a role may have changed, but for the
        times that `Identity.until` says: with users, tokens, revocations and authorities."""
        users = self._tree().mode("user")
        if users is not self._users:
            self._users = users
            self._changes += 1
        return self._changes + self.tokens.changes + self.tokens.revocations.changes + self._trusts.changes

    def by_token(self, text: str) -> Identity | None:
        """Whose bearer token that is: one the head made, or the one an administrator wrote into a user's object."""
        token = self.tokens.find(text)
        if token is not None and token.kind in _ONCE:
            role = JOIN if token.kind == JOIN else ENROL
            return Identity(token.subject, role, f"token {token.id}", end_of(token))
        if token is not None:
            identity = self.by_node(token.subject) if token.kind == NODE else self.by_name(token.subject)
            via, until = f"token {token.id}", end_of(token)
            return identity._replace(via=via, until=until) if identity is not None else None
        return self._by_own_token(text)

    def by_certificate(self, subject: Mapping[str, Sequence[str]], der: bytes) -> Identity | None:
        """Whose client certificate that is. TLS has checked who signed it and its dates; `subject_of` gives `subject`.

        One that was revoked, or has ended since, gives no identity. Where a user's object names a fingerprint, no other
        certificate of that user counts.
        """
        names, groups = subject.get("commonName", ()), subject.get("organizationName", ())
        if len(names) != 1:
            return None
        kind = NODE if NODES in groups else USER
        if self.tokens.revocations.is_revoked(kind, names[0], der) or not self._trusts(der):
            return None
        if NODES in groups:
            identity = self.by_node(names[0])
        elif USERS in groups and self._is_pinned(names[0], der):
            identity = self.by_name(names[0])
        else:
            return None
        until = self.tokens.certificates.admit(kind, der) if identity is not None else None
        if identity is None or until is None:
            return None
        return identity._replace(via=CERTIFICATE, until=until)

    def certificates(self, own: Iterable[Certificate] = ()) -> list[Certificate]:
        """Those of the site (`own`), and those that users and nodes have used; those that end first before the others,
        with whether they were revoked."""
        known = {item.fingerprint: item for item in (*own, *self.tokens.certificates.list())}
        is_revoked = self.tokens.revocations.covers
        shown = [msgspec.structs.replace(item, revoked=is_revoked(item)) for item in known.values()]
        return sorted(shown, key=lambda item: (item.expires, item.use, item.subject))

    def by_name(self, name: str) -> Identity | None:
        """The user as the present tree has it; None for one that is not there or not let in."""
        return user_in(self._tree(), name)

    def by_node(self, name: str) -> Identity | None:
        """A device of the present tree."""
        return Identity(name, NODE) if self._tree().find("device", name) is not None else None

    def weak_tokens(self) -> list[str]:
        """The users whose objects hold a token that is too weak to be taken."""
        tokens = ((name, User.token.value(user)) for name, user in self._tree().mode("user").items())
        return sorted(
            name
            for name, token in tokens
            if isinstance(token, Secret) and token.reveal() and not is_strong_token(token.reveal())
        )

    async def create_token(self, by: Identity, request: TokenRequest) -> tuple[Token, str]:
        """A new token for a user, a device or a category of the tree, and its text. Raises `NotFound`."""
        self.check_subject(request.kind, request.subject)
        if request.kind in ENROLLING:
            return await self.tokens.create(
                request.kind,
                request.subject,
                request.name,
                lasts=timedelta(seconds=request.lasts) if request.lasts else _ENROLS_WITHIN,
                by=by.name,
                uses=request.uses if request.kind == ENROL_CATEGORY else 1,
                replace=request.replace,
            )
        lasts = timedelta(days=request.days) if request.days else None
        return await self.tokens.create(request.kind, request.subject, request.name, lasts=lasts, by=by.name)

    async def revoke_token(self, by: Identity, id_: str) -> Token:
        """Revoke a token. Raises `NotFound`; `Invalid` for the one that is asked with."""
        if by.via == f"token {id_}":
            raise errors.Invalid("this is the token that this request uses", hint="revoke it with another credential")
        return await self.tokens.revoke(id_, by=by.name)

    def check_subject(self, kind: str, subject: str) -> None:
        """Raise `NotFound` unless the tree has the user, device or category that a token is asked for."""
        mode = _OWNERS.get(kind, "user")
        if self._tree().find(mode, subject) is None:
            raise errors.NotFound(f"there is no {mode} {subject!r}", hint=f"cmsh: {mode}; list shows the existing ones")

    def _by_own_token(self, text: str) -> Identity | None:
        digest, owner = digest_of(text), ""
        if not is_strong_token(text):
            return None  # written before weak ones were refused
        for name, user in self._tree().mode("user").items():
            token = User.token.value(user)
            # All are compared, so that the time says nothing about which one was close.
            if isinstance(token, Secret) and token.reveal() and hmac.compare_digest(digest_of(token.reveal()), digest):
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
