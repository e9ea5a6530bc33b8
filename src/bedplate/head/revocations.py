"""Client certificates that no longer count, before they end.

In: a certificate's fingerprint, or a user or node whose certificates issued so far are to be refused; the store. Out:
whether a certificate was revoked. A certificate that is issued after a revocation by name counts again. Which of two
was first is not asked of a clock, which counts seconds and may be set back: a revocation by name has a generation,
greater than all before, and whoever issues a certificate writes the present one into it. The records are beside the
tree (`/head/revoked/`), so that every head of the store refuses what one was told to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec

from bedplate.api.headapi import Certificate, Revocation
from bedplate.core import errors
from bedplate.core.clock import Clock, parse_rfc3339, rfc3339
from bedplate.core.logging import get_logger
from bedplate.head.notices import keep_up
from bedplate.store.interface import Put, Store

__all__ = ["REVOKED", "Revocations", "generation_in"]

REVOKED: Final = "/head/revoked/"
_LOG = get_logger("head.certificates")


class Revocations:
    """All revocations of a store, in memory. `open` reads them; `follow` keeps them as the store has them."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._held: dict[str, Revocation] = {}

    async def open(self) -> None:
        """Read what the store has. A record that cannot be read refuses nobody, and is told."""
        records = {}
        for entry in (await self._store.list(REVOKED)).entries:
            try:
                records[entry.key.removeprefix(REVOKED)] = msgspec.json.decode(entry.value, type=Revocation)
            except msgspec.DecodeError as err:
                _LOG.error("head.revocation_unreadable", key=entry.key, error=str(err))
        self._held = records

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
        await self.open()  # another head node may have been the last to revoke
        now = self._clock.now()
        # As late as the clock says, too: certificates may be newer than the records of a head that was restored.
        generation = max(self.generation(kind, subject) + 1, int(now.timestamp() * 1_000_000)) if subject else 0
        record = Revocation(
            kind=kind if subject else "",
            subject=subject,
            fingerprint=fingerprint.lower().replace(":", ""),
            time=rfc3339(now),
            by=by,
            generation=generation,
        )
        place = f"{kind}/{subject}" if subject else record.fingerprint
        await self._store.commit([Put(REVOKED + place, msgspec.json.encode(record))])
        self._held[place] = record
        _LOG.info("head.certificates_revoked", kind=record.kind, subject=subject, fingerprint=record.fingerprint, by=by)
        return record

    def generation(self, kind: str, subject: str) -> int:
        """What a certificate of that user or node must be issued with to count; 0 where none was revoked by name."""
        return generation_in(self._held.values(), kind, subject)

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


def generation_in(revocations: Iterable[Revocation], kind: str, subject: str) -> int:
    """The generation that the certificates of a user or a node are issued with; 0 where none was revoked by name."""
    return max((item.generation for item in revocations if (item.kind, item.subject) == (kind, subject)), default=0)
