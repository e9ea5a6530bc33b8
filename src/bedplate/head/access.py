"""Who a request comes from: the same rules for the REST API and the page.

In: the present tree with its users and devices, certificates that TLS accepted, bearer tokens. Out: an `Identity`, or
None for an unknown credential. The user's object alone says what a user may do, so that a changed role, or a disabled
user, counts from the next request on, whatever the credential says.

Tokens are made once, shown once, and kept as digests beside the tree, in the store. A revocation counts on every head
of the store as soon as its watch brings it. A token says whose it is and until when it is good.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from bedplate.api.headapi import Certificate, Token, TokenRequest
from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock, parse_rfc3339, rfc3339
from bedplate.core.logging import get_logger
from bedplate.head.certificates import Certificates
from bedplate.head.entities.site import User
from bedplate.head.notices import one_line
from bedplate.head.objects import Secret
from bedplate.head.policy import JOIN, NODE, Identity, user_in
from bedplate.head.revocations import Revocations
from bedplate.head.schema.kinds import is_strong_token
from bedplate.head.tree import Tree
from bedplate.store.interface import Batch, Compacted, CompareFailed, Delete, Entry, Put, Store

__all__ = ["NODES", "TOKENS", "USER", "USERS", "Access", "Tokens", "decode", "subject_of"]

TOKENS: Final = "/head/tokens/"
USER: Final = "user"
_LOG = get_logger("head.tokens")
_MARK = "bph"
_SECRET_BYTES = 32
_ID_BYTES = 5
_NOTE_EVERY_S = 60.0
_SPENT_KEPT = timedelta(days=30)

USERS: Final = "bedplate:users"
NODES: Final = "bedplate:nodes"
"""The organisation in the client certificates of users and of nodes."""


class Access:
    """Turns credentials into identities by what the present tree says. It waits for nothing.

    `trusts` says whether the authority of a client certificate still counts: it may have been replaced since the
    connection was made.
    """

    def __init__(
        self, tree: Callable[[], Tree], tokens: Tokens, trusts: Callable[[bytes], bool] = lambda der: True
    ) -> None:
        self._tree = tree
        self.tokens = tokens
        self._trusts = trusts

    def by_token(self, text: str) -> Identity | None:
        """Whose bearer token that is: one the head made, or the one an administrator wrote into a user's object."""
        token = self.tokens.find(text)
        if token is not None and token.kind == JOIN:
            return Identity(token.subject, JOIN, f"token {token.id}")
        if token is not None:
            identity = self.by_node(token.subject) if token.kind == NODE else self.by_name(token.subject)
            return identity._replace(via=f"token {token.id}") if identity is not None else None
        return self._by_own_token(text)

    def by_certificate(self, subject: Mapping[str, Sequence[str]], der: bytes) -> Identity | None:
        """Whose client certificate that is. TLS has checked who signed it and its dates; `subject_of` gives `subject`.

        One that was revoked gives no identity. Where a user's object names a fingerprint, no other certificate of that
        user counts.
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
        if identity is None:
            return None
        self.tokens.certificates.note(kind, der)
        return identity._replace(via="certificate")

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
        """A new token for a user or a device of the tree, and its text. Raises `NotFound`."""
        self.check_subject(request.kind, request.subject)
        lasts = timedelta(days=request.days) if request.days else None
        return await self.tokens.create(request.kind, request.subject, request.name, lasts=lasts, by=by.name)

    async def revoke_token(self, by: Identity, id_: str) -> Token:
        """Revoke a token. Raises `NotFound`; `Invalid` for the one that is asked with."""
        if by.via == f"token {id_}":
            raise errors.Invalid("this is the token that this request uses", hint="revoke it with another credential")
        return await self.tokens.revoke(id_, by=by.name)

    def check_subject(self, kind: str, subject: str) -> None:
        """Raise `NotFound` unless the tree has the user, or the device, that a token is asked for."""
        mode = "device" if kind == NODE else "user"
        if self._tree().find(mode, subject) is None:
            raise errors.NotFound(f"there is no {mode} {subject!r}", hint=f"cmsh: {mode}; list shows the existing ones")

    def _by_own_token(self, text: str) -> Identity | None:
        digest, owner = _digest(text), ""
        if not is_strong_token(text):
            return None  # written before weak ones were refused
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


class _Kept(Token, frozen=True, kw_only=True, omit_defaults=True):
    """A token as it is kept: with the digest of its text. Times are RFC 3339; empty: never."""

    digest: str
    spent: str = ""
    """The digest of the proof that a token for one time was used with."""

    def is_good(self, now: datetime) -> bool:
        return not self.expires or now < parse_rfc3339(self.expires)


class Tokens:
    """All tokens of a store, in memory. `open` reads them; `run` keeps them as the store has them."""

    def __init__(
        self, store: Store, *, clock: Clock | None = None, entropy: Callable[[int], bytes] = os.urandom
    ) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._entropy = entropy
        self._held: dict[str, _Kept] = {}
        self._used: dict[str, str] = {}
        self._at = 0
        self.revocations = Revocations(store, self._clock)
        self.certificates = Certificates(store, self._clock)

    async def open(self) -> None:
        """Read what the store has, which certificates were used, and which are revoked."""
        await self.revocations.open()
        await self.certificates.open()
        page = await self._store.list(TOKENS)
        self._at = page.revision
        self._held = {}
        for entry in page.entries:
            self._take(entry)

    def list(self) -> list[Token]:
        """All of them, oldest first, with the last use as far as it is known here."""
        tokens = sorted(self._held.values(), key=lambda token: (token.created, token.id))
        return [_public(token, used=max(token.used, self._used.get(token.id, ""))) for token in tokens]

    def find(self, text: str) -> Token | None:
        """The token of a text, unless it is wrong, revoked or has expired; notes its use."""
        mark, _, rest = text.partition("_")
        id_, _, secret = rest.partition("_")
        token = self._held.get(id_)
        # Something is compared in any case, so that the time does not tell which ids there are.
        is_right = hmac.compare_digest(token.digest if token is not None else _digest(""), _digest(secret))
        if token is None or mark != _MARK or not is_right or not token.is_good(self._clock.now()):
            return None
        self._used[id_] = rfc3339(self._clock.now())
        return token

    async def create(
        self, kind: str, subject: str, name: str, *, lasts: timedelta | None = None, by: str = ""
    ) -> tuple[Token, str]:
        """A new token, and its text, which is nowhere kept."""
        now = self._clock.now()
        secret = self._entropy(_SECRET_BYTES).hex()
        expires = rfc3339(now + lasts) if lasts is not None else ""
        token = _Kept(
            id=self._entropy(_ID_BYTES).hex(),
            kind=kind,
            subject=subject,
            name=one_line(name),
            digest=_digest(secret),
            created=rfc3339(now),
            expires=expires,
            by=by,
        )
        await self._store.commit([Put(TOKENS + token.id, msgspec.json.encode(token), expect=0)])
        self._held[token.id] = token
        _LOG.info("head.token_created", token=token.id, kind=kind, subject=subject, by=by, expires=expires or "never")
        return _public(token), f"{_MARK}_{token.id}_{secret}"

    async def revoke(self, id_: str, *, by: str = "") -> Token:
        """Revoke a token. Raises `NotFound`."""
        token = self._held.get(id_)
        if token is None:
            raise errors.NotFound(f"there is no token {id_!r}", hint="bedplate head token list shows them")
        await self._store.commit([Delete(TOKENS + id_)])
        self._held.pop(id_, None)
        _LOG.info("head.token_revoked", token=id_, subject=token.subject, by=by)
        return token

    async def spend(self, id_: str, *, by: str = "", proof: str = "") -> bool:
        """Use a token for the one time that it is good for; whether this was it. Raises `Denied` when somebody else
        has. Who has used it with a `proof` may use it again with the same one, until it expires: the answer was lost.
        """
        used = errors.Denied("the token was used already", hint="ask for another one")
        while True:
            entry = await self._store.get(TOKENS + id_)
            if entry is None:
                raise used
            token = decode(entry)
            if token.spent:
                if proof and hmac.compare_digest(token.spent, _digest(proof)):
                    return False
                raise used
            spent = msgspec.structs.replace(token, spent=_digest(proof), name=one_line(f"{token.name}, used by {by}"))
            op = Put(entry.key, msgspec.json.encode(spent), expect=entry.revision)
            try:
                await self._store.commit([op if proof else Delete(entry.key, expect=entry.revision)])
                break
            except CompareFailed:
                continue
        if proof:
            self._held[id_] = spent
        else:
            self._held.pop(id_, None)
        _LOG.info("head.token_spent", token=id_, by=by)
        return True

    async def run(self) -> None:
        """Follow the store, and write down last uses now and then; until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self.revocations.follow())
            tasks.create_task(self.certificates.follow())
            tasks.create_task(self._keep_noting())

    async def note(self) -> None:
        """Write down when tokens and certificates were last used, and forget those that expired long ago."""
        await self.certificates.write()
        used, self._used = self._used, {}
        now = self._clock.now()
        for id_, moment in used.items():
            entry = await self._store.get(TOKENS + id_)
            if entry is None:
                continue
            token = msgspec.structs.replace(decode(entry), used=moment)
            try:
                await self._store.commit([Put(entry.key, msgspec.json.encode(token), expect=entry.revision)])
            except CompareFailed:
                _LOG.v(4).info("head.token_use_not_noted", token=id_)
        for token in list(self._held.values()):
            if token.expires and parse_rfc3339(token.expires) + _SPENT_KEPT < now:
                await self.revoke(token.id, by="expiry")

    async def _keep_noting(self) -> None:
        while True:
            await self._clock.sleep(_NOTE_EVERY_S)
            try:
                await self.note()
            except errors.Retryable as err:
                _LOG.warning("head.token_use_not_noted", error=str(err))

    async def _follow(self) -> None:
        while True:
            watch = self._store.watch(TOKENS, after=self._at)
            try:
                async for batch in watch:
                    self._follow_batch(batch)
            except Compacted:
                await self.open()
            finally:
                await watch.aclose()

    def _follow_batch(self, batch: Batch) -> None:
        for event in batch:
            self._at = max(self._at, event.revision)
            if event.entry is None:
                self._held.pop(event.key.removeprefix(TOKENS), None)
            else:
                self._take(event.entry)

    def _take(self, entry: Entry) -> None:
        try:
            token = decode(entry)
        except errors.Invalid as err:
            # One damaged record must not lock everybody out.
            _LOG.error("head.token_unreadable", key=entry.key, error=str(err))
            return
        self._held[token.id] = token


def decode(entry: Entry) -> _Kept:
    """The token of a record. Raises `Invalid`."""
    try:
        return msgspec.json.decode(entry.value, type=_Kept)
    except msgspec.DecodeError as err:
        raise errors.Invalid(f"the record {entry.key} cannot be read: {err}", hint="restore the newest backup") from err


def _public(token: _Kept, used: str = "") -> Token:
    return msgspec.structs.replace(msgspec.convert(token, Token, from_attributes=True), used=used or token.used)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
