"""Client certificates that no longer count, before they end.

In: a certificate's fingerprint, or a user or node whose certificates issued so far are to be refused; the store. Out:
whether a certificate was revoked. A certificate that is issued after a revocation by name counts again. The records
are beside the tree (`/head/revoked/`), so that every head of the store refuses what one was told to.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from bedplate.api.headapi import Certificate, Revocation
from bedplate.core import errors
from bedplate.core.clock import Clock, parse_rfc3339, rfc3339
from bedplate.core.logging import get_logger
from bedplate.head.notices import keep_up
from bedplate.store.interface import Put, Store

__all__ = ["REVOKED", "Revocations"]

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
        record = Revocation(
            kind=kind if subject else "",
            subject=subject,
            fingerprint=fingerprint.lower().replace(":", ""),
            time=rfc3339(self._clock.now()),
            by=by,
        )
        place = f"{kind}/{subject}" if subject else record.fingerprint
        await self._store.commit([Put(REVOKED + place, msgspec.json.encode(record))])
        self._held[place] = record
        _LOG.info("head.certificates_revoked", kind=record.kind, subject=subject, fingerprint=record.fingerprint, by=by)
        return record

    def is_revoked(self, kind: str, subject: str, der: bytes) -> bool:
        """Whether a certificate of that user or node was revoked."""
        if hashlib.sha256(der).hexdigest() in self._held:
            return True
        record = self._held.get(f"{kind}/{subject}")
        if record is None:
            return False
        from bedplate.serving import issuing

        return issuing.issued_at(der) < parse_rfc3339(record.time)

    def covers(self, certificate: Certificate) -> bool:
        """The same of one that is only known by what it says."""
        record = self._held.get(f"{certificate.use}/{certificate.subject}")
        is_old = record is not None and parse_rfc3339(certificate.issued) < parse_rfc3339(record.time)
        return is_old or certificate.fingerprint in self._held
