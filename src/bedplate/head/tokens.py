"""Bearer tokens: made once, shown once, and kept as digests beside the tree, in the store.

In: whose token is made, for how long; texts that requests carry. Out: the token of a text. A revocation counts on every
head of the store as soon as its watch brings it. A token says whose it is and until when it is good; what its owner may
do is decided in `access`.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from bedplate.api.headapi import Token
from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock, parse_rfc3339, rfc3339
from bedplate.core.logging import get_logger
from bedplate.core.tasks import TaskGroup
from bedplate.head.certificates import Certificates
from bedplate.head.notices import one_line
from bedplate.head.policy import ENROL, ENROL_CATEGORY
from bedplate.head.revocations import Revocations
from bedplate.store.interface import Batch, Compacted, CompareFailed, Delete, Entry, Put, Store

__all__ = ["ENROLLING", "TOKENS", "Tokens", "decode", "digest_of", "end_of"]

TOKENS: Final = "/head/tokens/"
ENROLLING: Final = (ENROL, ENROL_CATEGORY)
"""The kinds of tokens with which machines become nodes."""
_LOG = get_logger("head.tokens")
_MARK = "bph"
_SECRET_BYTES = 32
_ID_BYTES = 5
_NOTE_EVERY_S = 60.0
_USE_EVERY = timedelta(minutes=10)
_BATCH = 100
_SPENT_KEPT = timedelta(days=30)


class _Kept(Token, frozen=True, kw_only=True, omit_defaults=True):
    """A token as it is kept: with the digest of its text. Times are RFC 3339; empty: never."""

    digest: str
    spent: str = ""
    """The digest of the proof that a token for one time was used with."""

    def is_good(self, now: datetime) -> bool:
        """A token for an enrolment still tells its owner what became of it."""
        return self.kind in ENROLLING or not self.has_expired(now)

    def has_expired(self, now: datetime) -> bool:
        return bool(self.expires) and now >= parse_rfc3339(self.expires)


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
        self.changes = 0
        """How often they changed; a use does not count."""
        self.revocations = Revocations(store, self._clock)
        self.certificates = Certificates(store, self._clock)
        self.revocations.on_change = self._shut_out
        self.listeners: list[Callable[[str], None]] = []
        """Called with the name of whoever has lost a credential; empty: of anybody."""

    async def open(self) -> None:
        """Read what the store has, which certificates were used, and which are revoked."""
        await self.revocations.open()
        await self.certificates.open()
        page = await self._store.list(TOKENS)
        self._at = page.revision
        self._held = {}
        self.changes += 1
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
        is_right = hmac.compare_digest(token.digest if token is not None else digest_of(""), digest_of(secret))
        if token is None or mark != _MARK or not is_right or not token.is_good(self._clock.now()):
            return None
        self._used[id_] = rfc3339(self._clock.now())
        return token

    async def create(
        self,
        kind: str,
        subject: str,
        name: str,
        *,
        lasts: timedelta | None = None,
        by: str = "",
        uses: int = 0,
        replace: bool = False,
    ) -> tuple[Token, str]:
        """A new token, and its text, which is nowhere kept. `uses` and `replace` are about enrolments."""
        now = self._clock.now()
        secret = self._entropy(_SECRET_BYTES).hex()
        expires = rfc3339(now + lasts) if lasts is not None else ""
        token = _Kept(
            id=self._entropy(_ID_BYTES).hex(),
            kind=kind,
            subject=subject,
            name=one_line(name),
            digest=digest_of(secret),
            created=rfc3339(now),
            expires=expires,
            by=by,
            uses=uses,
            left=uses,
            replace=replace,
        )
        await self._store.commit([Put(TOKENS + token.id, msgspec.json.encode(token), expect=0)])
        self._keep(token)
        _LOG.info("head.token_created", token=token.id, kind=kind, subject=subject, by=by, expires=expires or "never")
        return _public(token), f"{_MARK}_{token.id}_{secret}"

    async def revoke(self, id_: str, *, by: str = "") -> Token:
        """Revoke a token. Raises `NotFound`."""
        token = self._held.get(id_)
        if token is None:
            raise errors.NotFound(f"there is no token {id_!r}", hint="bedplate head token list shows them")
        await self._store.commit([Delete(TOKENS + id_)])
        self._drop(id_)
        self._shut_out(token.subject)
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
                if proof and hmac.compare_digest(token.spent, digest_of(proof)):
                    return False
                raise used
            spent = msgspec.structs.replace(token, spent=digest_of(proof), name=one_line(f"{token.name}, used by {by}"))
            op = Put(entry.key, msgspec.json.encode(spent), expect=entry.revision)
            try:
                await self._store.commit([op if proof else Delete(entry.key, expect=entry.revision)])
                break
            except CompareFailed:
                continue
        if proof:
            self._keep(spent)
        else:
            self._drop(id_)
        _LOG.info("head.token_spent", token=id_, by=by)
        return True

    async def using(self, id_: str) -> tuple[Put, Token]:
        """What writes down one more use of a token for enrolments, and the token after it; `used` follows once that is
        written. Raises `Denied` for one that has no use left, has expired or was revoked."""
        entry = await self._store.get(TOKENS + id_)
        token = decode(entry) if entry is not None else None
        hint = "ask an administrator for another one: bedplate head token create --enrol NODE"
        if entry is None or token is None or token.left < 1:
            raise errors.Denied("the token was used already", hint=hint)
        if token.has_expired(self._clock.now()):
            raise errors.Denied(f"the token was good until {token.expires}", hint=hint)
        after = msgspec.structs.replace(token, left=token.left - 1, used=rfc3339(self._clock.now()))
        return Put(entry.key, msgspec.json.encode(after), expect=entry.revision), after

    def used(self, token: Token) -> None:
        """Hold a token as `using` made it."""
        assert isinstance(token, _Kept)
        self._keep(token)

    async def run(self) -> None:
        """Follow the store, and write down last uses now and then; until cancelled."""
        async with TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self.revocations.follow())
            tasks.create_task(self.certificates.follow())
            tasks.create_task(self._keep_noting())

    async def note(self) -> None:
        """Write down when tokens and certificates were last used, and forget those that expired long ago.

        A use soon after one that is written down waits, and the others share commits: thousands of nodes ask all the
        time."""
        await self.certificates.write()
        now = self._clock.now()
        self._used = {id_: moment for id_, moment in self._used.items() if id_ in self._held}
        due = {id_: moment for id_, moment in self._used.items() if _is_due(self._held[id_], moment)}
        entries = (await self._store.list(TOKENS)).entries if due else []
        ops = list(_uses(entries, due))
        for first in range(0, len(ops), _BATCH):
            batch = ops[first : first + _BATCH]
            try:
                await self._store.commit(batch)
            except CompareFailed as err:  # another head has noted a use, or revoked one of them; so the next time
                _LOG.v(4).info("head.token_uses_not_noted", error=str(err))
                continue
            for id_ in (op.key.removeprefix(TOKENS) for op in batch):
                if id_ in self._held:
                    self._held[id_] = msgspec.structs.replace(self._held[id_], used=due[id_])
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
                gone = self._drop(event.key.removeprefix(TOKENS))
                if gone is not None:
                    self._shut_out(gone.subject)
            else:
                self._take(event.entry)

    def _shut_out(self, subject: str) -> None:
        for listener in self.listeners:
            listener(subject)

    def _take(self, entry: Entry) -> None:
        try:
            token = decode(entry)
        except errors.Invalid as err:
            # One damaged record must not lock everybody out.
            _LOG.error("head.token_unreadable", key=entry.key, error=str(err))
            return
        self._keep(token)

    def _keep(self, token: _Kept) -> None:
        before = self._held.get(token.id)
        self._held[token.id] = token
        if before is None or msgspec.structs.replace(before, used=token.used) != token:
            self.changes += 1

    def _drop(self, id_: str) -> _Kept | None:
        gone = self._held.pop(id_, None)
        self.changes += gone is not None
        return gone


def decode(entry: Entry) -> _Kept:
    """The token of a record. Raises `Invalid`."""
    try:
        return msgspec.json.decode(entry.value, type=_Kept)
    except msgspec.DecodeError as err:
        raise errors.Invalid(f"the record {entry.key} cannot be read: {err}", hint="restore the newest backup") from err


def _is_due(token: _Kept, moment: str) -> bool:
    return not token.used or parse_rfc3339(moment) - parse_rfc3339(token.used) >= _USE_EVERY


def _uses(entries: Iterable[Entry], moments: Mapping[str, str]) -> Iterator[Put]:
    """The records with when they were used; one that is damaged stays as it is."""
    for entry in entries:
        moment = moments.get(entry.key.removeprefix(TOKENS))
        with contextlib.suppress(errors.Invalid):
            if moment is not None:
                token = msgspec.structs.replace(decode(entry), used=moment)
                yield Put(entry.key, msgspec.json.encode(token), expect=entry.revision)


def _public(token: _Kept, used: str = "") -> Token:
    return msgspec.structs.replace(msgspec.convert(token, Token, from_attributes=True), used=used or token.used)


def end_of(token: Token) -> float:
    """When a token ends, in seconds since 1970. One for an enrolment ends with its last use, and then tells what became
    of that."""
    is_bounded = token.expires and token.kind not in ENROLLING
    return parse_rfc3339(token.expires).timestamp() if is_bounded else math.inf


def digest_of(secret: str) -> str:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()
