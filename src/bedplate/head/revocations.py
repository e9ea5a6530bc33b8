"""Client certificates that no longer count, before they end.

In: a certificate's fingerprint, or a user or node whose certificates issued so far are to be refused; the store. Out:
whether a certificate was revoked. A certificate that is issued after a revocation by name counts again. Which of two
was first is not asked of a clock, which counts seconds and may be set back: a revocation by name has a generation,
greater than all before, and whoever issues a certificate writes the present one into it. The records are beside the
tree (`/head/revoked/`), so that every head of the store refuses what one was told to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from bedplate.api.headapi import Certificate, Revocation
from bedplate.core import errors
from bedplate.core.clock import Clock, parse_rfc3339, rfc3339
from bedplate.core.logging import get_logger
from bedplate.head.notices import keep_up
from bedplate.store.interface import Entry, Put, Store

__all__ = ["REVOKED", "Revocations", "generation_in", "put"]

REVOKED: Final = "/head/revoked/"
_LOG = get_logger("head.certificates")


def put(record: Revocation) -> Put:
    """What writes a revocation."""
    return Put(REVOKED + _place(record), msgspec.json.encode(record))


def _place(record: Revocation) -> str:
    return f"{record.kind}/{record.subject}" if record.subject else record.fingerprint


class Revocations:
    """All revocations of a store, in memory. `open` reads them; `follow` keeps them as the store has them."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._held: dict[str, Revocation] = {}
        self.changes = 0
        """How often they changed."""
        self.on_change: Callable[[str], None] = lambda subject: None
        """Called with the name of whose certificates no longer count; empty: of anybody's."""

    async def open(self) -> None:
        """Read what the store has. A record that cannot be read refuses nobody, and is told."""
        read = {entry.key.removeprefix(REVOKED): _read(entry) for entry in (await self._store.list(REVOKED)).entries}
        records = {place: record for place, record in read.items() if record is not None}
        if records != self._held:
            self._held = records
            self.changes += 1
            self.on_change("")

    async def follow(self) -> None:
        """Keep up with what other head nodes revoke; runs until cancelled."""
        await keep_up(self._store, REVOKED, self.open)

    def list(self) -> list[Revocation]:
        """All of them, oldest first."""
        return sorted(self._held.values(), key=lambda item: (item.time, item.subject, item.fingerprint))

    async def revoke(self, *, kind: str = "", subject: str = "", fingerprint: str = "", by: str = "") -> Revocation:
        """Refuse one certificate from now on, or all that a user or a node has so far."""
        if bool(subject) == bool(fingerprint):
            raise errors.Invalid(
                "a revocation is about one certificate, or about those of one user or node",
                hint="give a fingerprint, or a name",
            )
        if subject:
            record = await self.of_all(kind, subject, by=by)
        else:
            digest = fingerprint.lower().replace(":", "")
            record = Revocation(fingerprint=digest, time=rfc3339(self._clock.now()), by=by)
        await self._store.commit([put(record)])
        self.take(record)
        return record

    async def of_all(self, kind: str, subject: str, *, by: str = "") -> Revocation:
        """What refuses all certificates that a user or a node has so far, once `put` has written it."""
        present, now = await self.refreshed(kind, subject), self._clock.now()
        # As late as the clock says, too: certificates may be newer than the records of a head that was restored.
        generation = max(present + 1, int(now.timestamp() * 1_000_000))
        return Revocation(kind=kind, subject=subject, time=rfc3339(now), by=by, generation=generation)

    def take(self, record: Revocation) -> None:
        """Hold what is in the store by now."""
        self._held[_place(record)] = record
        self.changes += 1
        self.on_change(record.subject)
        _LOG.info(
            "head.certificates_revoked",
            kind=record.kind,
            subject=record.subject,
            fingerprint=record.fingerprint,
            by=record.by,
        )

    def generation(self, kind: str, subject: str) -> int:
        """What a certificate of that user or node must be issued with to count; 0 where none was revoked by name."""
        record = self._held.get(f"{kind}/{subject}")
        return record.generation if record is not None else 0

    async def refreshed(self, kind: str, subject: str) -> int:
        """The same as the store has it: another head node may have been the last to revoke."""
        entry = await self._store.get(f"{REVOKED}{kind}/{subject}")
        record = _read(entry) if entry is not None else None
        if record is not None and record != self._held.get(_place(record)):
            self.take(record)
        return self.generation(kind, subject)

    def is_revoked(self, kind: str, subject: str, der: bytes) -> bool:
        """Whether a certificate of that user or node was revoked."""
        if hashlib.sha256(der).hexdigest() in self._held:
            return True
        record = self._held.get(f"{kind}/{subject}")
        if record is None:
            return False
        from bedplate.serving import issuing

        if record.generation:
            return issuing.generation_of(der) < record.generation
        return issuing.issued_at(der) < parse_rfc3339(record.time)  # a record of an earlier version

    def covers(self, certificate: Certificate) -> bool:
        """The same of one that is only known by what it says."""
        record = self._held.get(f"{certificate.use}/{certificate.subject}")
        if certificate.fingerprint in self._held or record is None:
            return certificate.fingerprint in self._held
        if record.generation:
            return certificate.generation < record.generation
        return parse_rfc3339(certificate.issued) < parse_rfc3339(record.time)


def _read(entry: Entry) -> Revocation | None:
    try:
        return msgspec.json.decode(entry.value, type=Revocation)
    except msgspec.DecodeError as err:
        _LOG.error("head.revocation_unreadable", key=entry.key, error=str(err))
        return None


def generation_in(revocations: Iterable[Revocation], kind: str, subject: str) -> int:
    """The generation that the certificates of a user or a node are issued with; 0 where none was revoked by name."""
    return max((item.generation for item in revocations if (item.kind, item.subject) == (kind, subject)), default=0)
