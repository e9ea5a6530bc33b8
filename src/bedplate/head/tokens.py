"""Bearer tokens: made once, shown once, kept as digests beside the tree.

In: the store. Out: tokens by their text; new ones; revocations, which count on every head of the store as soon as its
watch brings them. A token says whose it is and until when it is good; what its owner may do is not said here.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock, parse_rfc3339, rfc3339
from bedplate.core.logging import get_logger
from bedplate.store.interface import Batch, Compacted, CompareFailed, Delete, Entry, Put, Store

__all__ = ["TOKENS", "USER", "Token", "Tokens"]

TOKENS: Final = "/head/tokens/"
USER: Final = "user"
_LOG = get_logger("head.tokens")
_MARK = "bph"
_SECRET_BYTES = 32
_ID_BYTES = 5
_NOTE_EVERY_S = 60.0
_SPENT_KEPT = timedelta(days=30)


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of a token. Times are RFC 3339; empty: never."""

    id: str
    kind: str
    subject: str
    name: str
    digest: str
    created: str
    expires: str = ""
    used: str = ""
    by: str = ""

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
        self._held: dict[str, Token] = {}
        self._used: dict[str, str] = {}
        self._at = 0

    async def open(self) -> None:
        """Read what the store has."""
        page = await self._store.list(TOKENS)
        self._at = page.revision
        self._held = {}
        for entry in page.entries:
            self._take(entry)

    def list(self) -> list[Token]:
        """All of them, oldest first, with the last use as far as it is known here."""
        tokens = sorted(self._held.values(), key=lambda token: (token.created, token.id))
        return [msgspec.structs.replace(token, used=max(token.used, self._used.get(token.id, ""))) for token in tokens]

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
        token = Token(
            self._entropy(_ID_BYTES).hex(), kind, subject, name, _digest(secret), rfc3339(now), expires, by=by
        )
        await self._store.commit([Put(TOKENS + token.id, msgspec.json.encode(token), expect=0)])
        self._held[token.id] = token
        _LOG.info("head.token_created", token=token.id, kind=kind, subject=subject, by=by, expires=expires or "never")
        return token, f"{_MARK}_{token.id}_{secret}"

    async def revoke(self, id_: str, *, by: str = "") -> Token:
        """Take a token away. Raises `NotFound`."""
        token = self._held.get(id_)
        if token is None:
            raise errors.NotFound(f"there is no token {id_!r}", hint="bedplate head token list shows them")
        await self._store.commit([Delete(TOKENS + id_)])
        self._held.pop(id_, None)
        _LOG.info("head.token_revoked", token=id_, subject=token.subject, by=by)
        return token

    async def run(self) -> None:
        """Follow the store, and write down last uses now and then; until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._keep_noting())

    async def note(self) -> None:
        """Write down when tokens were last used, and forget those that expired long ago."""
        used, self._used = self._used, {}
        now = self._clock.now()
        for id_, moment in used.items():
            entry = await self._store.get(TOKENS + id_)
            if entry is None:
                continue
            token = msgspec.structs.replace(_decode(entry), used=moment)
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
            token = _decode(entry)
        except errors.Invalid as err:
            # One damaged record must not lock everybody out.
            _LOG.error("head.token_unreadable", key=entry.key, error=str(err))
            return
        self._held[token.id] = token


def _decode(entry: Entry) -> Token:
    try:
        return msgspec.json.decode(entry.value, type=Token)
    except msgspec.DecodeError as err:
        raise errors.Invalid(f"the record {entry.key} cannot be read: {err}", hint="restore the newest backup") from err


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
