"""The client certificates that users and nodes have shown, so that their ends can be seen in time.

In: certificates that TLS and `access` accepted; the store. Out: whose they are, who issued them, when they end, when
they were last used. The head signs certificates and does not keep them: one appears here when it is first used. The
records are beside the tree (`/head/certificates/`); one that ended a month ago is forgotten. A last use is written once
a day, so that thousands of nodes cost little.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, Protocol

import msgspec

from bedplate.api.headapi import Certificate
from bedplate.core.clock import Clock, parse_rfc3339, rfc3339
from bedplate.core.logging import get_logger
from bedplate.head.notices import keep_up
from bedplate.store.interface import Delete, Op, Put, Store

__all__ = ["CERTIFICATES", "AnyAuthority", "Certificates", "Trusts", "describe"]

CERTIFICATES: Final = "/head/certificates/"
_LOG = get_logger("head.certificates")
_USE_EVERY = timedelta(days=1)
_KEPT = timedelta(days=30)
_BATCH = 100


class Trusts(Protocol):
    """Whether the authority of a client certificate still counts; `changes` counts how often that changed."""

    changes: int

    def __call__(self, der: bytes) -> bool: ...


class AnyAuthority:
    """Where authorities are not replaced."""

    changes = 0

    def __call__(self, der: bytes) -> bool:
        return True


def describe(use: str, der: bytes) -> Certificate:
    """What there is to say about a certificate; `use` is authority, head, user or node."""
    from cryptography import x509

    from bedplate.serving import issuing

    certificate = x509.load_der_x509_certificate(der)
    return Certificate(
        use=use,
        subject=_common_name(certificate.subject),
        issuer=_common_name(certificate.issuer),
        fingerprint=hashlib.sha256(der).hexdigest(),
        issued=rfc3339(issuing.issued_at(der)),
        expires=rfc3339(certificate.not_valid_after_utc),
        generation=issuing.generation_of(der),
    )


def _common_name(name: object) -> str:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    assert isinstance(name, x509.Name)
    return ", ".join(str(part.value) for part in name.get_attributes_for_oid(NameOID.COMMON_NAME))


class Certificates:
    """What was shown to the heads of a store, in memory. `open` reads it, `follow` keeps it as the store has it,
    `write` adds what was shown here."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._held: dict[str, Certificate] = {}
        self._used: dict[str, datetime] = {}

    async def open(self) -> None:
        """Read what the store has. A record that cannot be read is told."""
        records = {}
        for entry in (await self._store.list(CERTIFICATES)).entries:
            try:
                record = msgspec.json.decode(entry.value, type=Certificate)
                records[record.fingerprint] = record
            except msgspec.DecodeError as err:
                _LOG.error("head.certificate_unreadable", key=entry.key, error=str(err))
        # What is not written yet stays.
        self._held = {name: self._held[name] for name in self._used if name in self._held} | records

    async def follow(self) -> None:
        """Keep up with what other head nodes are shown; runs until cancelled."""
        await keep_up(self._store, CERTIFICATES, self.open)

    def admit(self, use: str, der: bytes) -> float | None:
        """When a certificate ends, in seconds since 1970, and record that it is used; None for one that has ended since
        its connection was made."""
        fingerprint = hashlib.sha256(der).hexdigest()
        if fingerprint not in self._held:
            try:
                self._held[fingerprint] = describe(use, der)
            except ValueError as err:
                # Who is let in does not depend on what can be said about it.
                _LOG.warning("head.certificate_unreadable", key=fingerprint, error=str(err))
                return math.inf
        now, ends = self._clock.now(), parse_rfc3339(self._held[fingerprint].expires)
        if now >= ends:
            return None
        self._used[fingerprint] = now
        return ends.timestamp()

    def list(self) -> list[Certificate]:
        """All of them, those that end first before the others, with the last use as far as it is known here."""
        shown = [
            msgspec.structs.replace(record, used=max(record.used, self._used_here(record.fingerprint)))
            for record in self._held.values()
        ]
        return sorted(shown, key=lambda record: (record.expires, record.use, record.subject))

    def of(self, use: str, subject: str) -> Iterator[Certificate]:
        """Those of one user or node, in no order."""
        return (record for record in self._held.values() if record.subject == subject and record.use == use)

    def _used_here(self, fingerprint: str) -> str:
        moment = self._used.get(fingerprint)
        return rfc3339(moment) if moment is not None else ""

    async def write(self) -> None:
        """Write down what is new, and forget what ended long ago."""
        now = self._clock.now()
        ops: list[Op] = []
        for fingerprint, moment in list(self._used.items()):
            record = self._held.get(fingerprint)
            if record is not None and (not record.used or moment - parse_rfc3339(record.used) >= _USE_EVERY):
                record = self._held[fingerprint] = msgspec.structs.replace(record, used=rfc3339(moment))
                ops.append(Put(CERTIFICATES + fingerprint, msgspec.json.encode(record)))
        for fingerprint, record in list(self._held.items()):
            if parse_rfc3339(record.expires) + _KEPT < now:
                del self._held[fingerprint]
                self._used.pop(fingerprint, None)
                ops.append(Delete(CERTIFICATES + fingerprint))
        for at in range(0, len(ops), _BATCH):
            await self._store.commit(ops[at : at + _BATCH])
