"""The webhook's own certificates: an authority and a serving pair, as the content of one Secret.

In: what the Secret holds, the names of the Service, the time. Out: what it should hold; equal when all is well. Pure
but for the random numbers of keys. An authority that nears its end is followed by a new one, and both are published
while the old one lasts, so that no connection fails in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from bedplate.serving import issuing

__all__ = ["Pair", "renewed", "serving_names"]

AUTHORITY_LIFE, AUTHORITY_RENEW = timedelta(days=3650), timedelta(days=400)
SERVING_LIFE, SERVING_RENEW = timedelta(days=365), timedelta(days=60)
AUTHORITY, AUTHORITY_KEY, CERTIFICATE, KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"


@dataclass(frozen=True, slots=True)
class Pair:
    """The four texts. `authority` may hold two certificates: the present one first."""

    authority: bytes = b""
    authority_key: bytes = b""
    certificate: bytes = b""
    key: bytes = b""

    @classmethod
    def of(cls, data: Mapping[str, bytes]) -> Pair:
        """From the keys of a Secret; what is missing is empty."""
        return cls(*(data.get(key, b"") for key in (AUTHORITY, AUTHORITY_KEY, CERTIFICATE, KEY)))

    def data(self) -> dict[str, bytes]:
        """The keys of a Secret."""
        return {
            AUTHORITY: self.authority,
            AUTHORITY_KEY: self.authority_key,
            CERTIFICATE: self.certificate,
            KEY: self.key,
        }


def serving_names(service: str, namespace: str) -> tuple[str, ...]:
    """Under which names the API server, and a test beside it, reach the webhook."""
    return (
        f"{service}.{namespace}.svc",
        f"{service}.{namespace}",
        f"{service}.{namespace}.svc.cluster.local",
        "localhost",
        "127.0.0.1",
        "::1",
    )


def renewed(pair: Pair, names: Sequence[str], now: datetime, authority: str = "nv-ipam-webhook-ca") -> Pair:
    """The same when it is good for a while; else one whose broken or old parts are new. `authority`: how a new one is
    called."""
    with_authority = _with_authority(pair, now, authority)
    if with_authority is pair and _is_serving_good(pair, names, now):
        return pair
    return _with_serving(with_authority, names, now)


def _with_authority(pair: Pair, now: datetime, authority: str) -> Pair:
    known = _certificates(pair.authority)
    if known and _fits(known[0], pair.authority_key) and known[0].not_valid_after_utc > now + AUTHORITY_RENEW:
        return pair
    name = f"{authority}@{int(now.timestamp())}"
    certificate, key = issuing.Authority.create(name, now, AUTHORITY_LIFE, path_length=0).pair
    previous = [old.public_bytes(serialization.Encoding.PEM) for old in known[:1] if old.not_valid_after_utc > now]
    return replace(pair, authority=b"".join([certificate, *previous]), authority_key=key)


def _is_serving_good(pair: Pair, names: Sequence[str], now: datetime) -> bool:
    certificates, authorities = _certificates(pair.certificate), _certificates(pair.authority)
    if not certificates or not authorities or not _fits(certificates[0], pair.key):
        return False
    certificate = certificates[0]
    try:
        certificate.verify_directly_issued_by(authorities[0])
        hosts = issuing.hosts_of(certificate)
    except Exception:
        # Another authority's signature, or none that this library can check: either way not what we would issue.
        return False
    return certificate.not_valid_after_utc > now + SERVING_RENEW and hosts.issuperset(names)


def _with_serving(pair: Pair, names: Sequence[str], now: datetime) -> Pair:
    authority = issuing.Authority.load(issuing.Pair(pair.authority, pair.authority_key))
    serving = authority.issue(names[0][:64], now, SERVING_LIFE, uses=[issuing.Use.SERVER], hosts=names)
    return replace(pair, certificate=serving.certificate, key=serving.key)


def _certificates(text: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(text)
    except ValueError:
        return []


def _fits(certificate: x509.Certificate, key: bytes) -> bool:
    """Whether this is the certificate of that key."""
    try:
        private: Any = serialization.load_pem_private_key(key, None)
    except (ValueError, TypeError):
        return False
    return bool(private.public_key() == certificate.public_key())
