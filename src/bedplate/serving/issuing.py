"""The one place that issues certificates: authorities, certificates of servers and clients, self-signed ones.

In: names, lifetimes, the time. Out: PEM, as a `Pair` of a certificate and its private key. Keys are P-256. For whom a
certificate is and when it is renewed is the caller's decision. Import this module late where a start-up must be quick:
the cryptography library costs a tenth of a second.
"""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bedplate.serving.files import write_private

__all__ = [
    "Authority",
    "Pair",
    "Use",
    "alternative",
    "belongs",
    "generation_of",
    "hosts_of",
    "issued_at",
    "new_key_pem",
    "self_signed",
]

# Clocks of two machines differ: a certificate is valid a little before it was issued.
_LEEWAY = timedelta(hours=1)
# Ours, made of a random UUID (ITU-T X.667): a number that `generation_of` reads.
_GENERATION = x509.ObjectIdentifier("2.25.222845176590338812073410987143200134865")


class Use(enum.Enum):
    """What a certificate is for."""

    SERVER = ExtendedKeyUsageOID.SERVER_AUTH
    CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH


class Pair(NamedTuple):
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str, *, certificate_mode: int = 0o644) -> None:
        """Write `name.crt` and `name.key`; only the owner may read the key."""
        write_private(folder / f"{name}.key", self.key)
        write_private(folder / f"{name}.crt", self.certificate, mode=certificate_mode)


class Authority:
    """A certificate authority: it signs with its own key."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, name: str, now: datetime, life: timedelta, *, path_length: int | None = None) -> Authority:
        """A new authority. `path_length` 0 forbids authorities below it."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(name, ())
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            _builder(subject, subject, key, now, life)
            .add_extension(x509.BasicConstraints(ca=True, path_length=path_length), critical=True)
            .add_extension(_key_usage(is_authority=True), critical=True)
            .add_extension(identifier, critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    @classmethod
    def load(cls, pair: Pair) -> Authority:
        """An authority that was created earlier. Raises `ValueError` unless this is a certificate with its key."""
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = _loaded(pair.key)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise ValueError("the key does not belong to the certificate")
        return cls(certificate, key)

    @property
    def pair(self) -> Pair:
        """Its own certificate and key."""
        return Pair(_pem(self._certificate), _key_pem(self._key))

    def issue(
        self,
        name: str,
        now: datetime,
        life: timedelta,
        *,
        uses: Collection[Use],
        groups: Iterable[str] = (),
        hosts: Iterable[str] = (),
        generation: int = 0,
    ) -> Pair:
        """A certificate with a new key: for a server that is reached at `hosts`, or a client that is in `groups`.

        `generation` is a number of the caller's that the certificate carries. Raises `ValueError` for names that no
        certificate can hold.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(_subject(name, groups), self._certificate.subject, key, now, life)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(is_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([use.value for use in uses]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        names = [alternative(host) for host in hosts]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        if generation:
            size = generation.bit_length() // 8 + 1
            number = bytes([2, size]) + generation.to_bytes(size, "big")  # an INTEGER in DER
            builder = builder.add_extension(x509.UnrecognizedExtension(_GENERATION, number), critical=False)
        return Pair(_pem(builder.sign(self._key, hashes.SHA256())), _key_pem(key))


def self_signed(name: str, hosts: Iterable[str], now: datetime, life: timedelta) -> Pair:
    """A server's certificate that nobody vouches for."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name, ())
    certificate = (
        _builder(subject, subject, key, now, life)
        .add_extension(x509.SubjectAlternativeName([alternative(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Pair(_pem(certificate), _key_pem(key))


def new_key_pem() -> tuple[bytes, bytes]:
    """A new private key and its public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return _key_pem(key), key.public_key().public_bytes(serialization.Encoding.PEM, form)


def alternative(host: str) -> x509.GeneralName:
    """A name or an address as a certificate holds it. Raises `ValueError` for a name that is not ASCII."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def issued_at(der: bytes) -> datetime:
    """When a certificate of ours was issued, to the second."""
    return x509.load_der_x509_certificate(der).not_valid_before_utc + _LEEWAY


def belongs(key: bytes, certificate: bytes) -> bool:
    """Whether a private key is that of a certificate, both PEM. Raises `ValueError` for what is none."""
    own = _loaded(key)
    named = x509.load_pem_x509_certificate(certificate).public_key()
    return isinstance(own, ec.EllipticCurvePrivateKey) and own.public_key() == named


def _loaded(key: bytes) -> object:
    try:
        return serialization.load_pem_private_key(key, None)
    except TypeError as err:
        raise ValueError("the key is encrypted") from err


def generation_of(der: bytes) -> int:
    """The number that a certificate of ours was issued with; 0 for none."""
    for extension in x509.load_der_x509_certificate(der).extensions:
        if extension.oid == _GENERATION and isinstance(extension.value, x509.UnrecognizedExtension):
            return int.from_bytes(extension.value.value[2:], "big")
    return 0


def hosts_of(certificate: x509.Certificate) -> set[str]:
    """The names and addresses that a certificate is for; none where it says nothing of them."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in names}


def _subject(name: str, groups: Iterable[str]) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _LEEWAY)
        .not_valid_after(now + life)
    )


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    # Not encrypted: the file's mode protects it.
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
