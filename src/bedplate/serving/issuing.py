"""The one place that issues certificates: authorities, certificates of servers and clients, self-signed ones.

In: names, lifetimes, the time, signing requests. Out: PEM, as a `Pair` of a certificate and its private key, or the
certificate alone for a key that somebody else has. Keys made here are P-256, derived ones Ed25519. For whom a
certificate is and when it is renewed is the caller's decision. Import this module late where a start-up must be quick:
the cryptography library costs a tenth of a second.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import ipaddress
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bedplate.serving.files import write_private

__all__ = [
    "Authority",
    "Derived",
    "Pair",
    "PublicKey",
    "Repeatable",
    "Use",
    "alternative",
    "belongs",
    "generation_of",
    "hosts_of",
    "issued_at",
    "key_digest",
    "new_key_pem",
    "requested_key",
    "self_signed",
]

PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey
_CURVES = ("secp256r1", "secp384r1")
_RSA_BITS = (2048, 4096)
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551

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

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, name: str, now: datetime, life: timedelta, *, path_length: int | None = None) -> Authority:
        """A new authority. `path_length` 0 forbids authorities below it."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(name, ())
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            _builder(subject, subject, key.public_key(), now, life)
            .add_extension(x509.BasicConstraints(ca=True, path_length=path_length), critical=True)
            .add_extension(_key_usage(is_authority=True), critical=True)
            .add_extension(identifier, critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    @classmethod
    def load(cls, pair: Pair) -> Authority:
        """An authority that was created earlier, here or by others (kubeadm's has an RSA key). Raises `ValueError`
        unless this is a certificate with its key."""
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = _loaded(pair.key)
        if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            raise ValueError("the key must be an RSA or an ECDSA key")
        if key.public_key() != certificate.public_key():
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
        certificate = self.certify(
            key.public_key(), name, now, life, uses=uses, groups=groups, hosts=hosts, generation=generation
        )
        return Pair(certificate, _key_pem(key))

    def certify(
        self,
        key: PublicKey,
        name: str,
        now: datetime,
        life: timedelta,
        *,
        uses: Collection[Use],
        groups: Iterable[str] = (),
        hosts: Iterable[str] = (),
        generation: int = 0,
    ) -> bytes:
        """A certificate, as PEM, for a key that somebody else has. Raises `ValueError` as `issue` does."""
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
        return _pem(builder.sign(self._key, hashes.SHA256()))


class Repeatable:
    """What an authority that others made issues, so that the same question has the same answer, byte for byte, without
    keeping it anywhere: keys follow from the authority's, signatures hold nothing random, and certificates are good for
    as long as the authority is."""

    def __init__(self, pair: Pair) -> None:
        """Raises `ValueError` unless this is the certificate of an authority with its RSA or ECDSA key."""
        self._certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = _loaded(pair.key)
        if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            raise ValueError("the key must be an RSA or an ECDSA key")
        if key.public_key() != self._certificate.public_key():
            raise ValueError("the key does not belong to the certificate")
        self._key = key
        self._secret = key.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def issue(self, name: str, *, uses: Collection[Use], hosts: Iterable[str]) -> Pair:
        """The certificate of that name for these hosts, with its key. Raises `ValueError` as `Authority` does."""
        names, about = sorted(set(hosts)), self._certificate
        key = self._key_of(name)
        serial = int.from_bytes(self._bytes(" ".join(["certificate of", name, *names]))[:19], "big") | 1
        begins, ends = about.not_valid_before_utc, about.not_valid_after_utc
        builder = (
            _builder(_subject(name, ()), about.subject, key.public_key(), begins, ends - begins, serial)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(is_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([use.value for use in uses]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(x509.SubjectAlternativeName([alternative(host) for host in names]), critical=False)
        )
        is_elliptic = isinstance(self._key, ec.EllipticCurvePrivateKey)
        return Pair(
            _pem(builder.sign(self._key, hashes.SHA256(), ecdsa_deterministic=True if is_elliptic else None)),
            _key_pem(key),
        )

    def authority(self, name: str) -> Pair:
        """Another authority of that name, good for as long as this one, which does not vouch for it."""
        key, about = self._key_of(name), self._certificate
        begins, ends = about.not_valid_before_utc, about.not_valid_after_utc
        serial = int.from_bytes(self._bytes(f"authority {name}")[:19], "big") | 1
        subject = _subject(name, ())
        certificate = (
            _builder(subject, subject, key.public_key(), begins, ends - begins, serial)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_key_usage(is_authority=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256(), ecdsa_deterministic=True)
        )
        return Pair(_pem(certificate), _key_pem(key))

    def key_pair(self, name: str) -> tuple[bytes, bytes]:
        """A private key of that name and its public one, both PEM."""
        key = self._key_of(name)
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return _key_pem(key), key.public_key().public_bytes(serialization.Encoding.PEM, form)

    def _key_of(self, name: str) -> ec.EllipticCurvePrivateKey:
        number = int.from_bytes(self._bytes(f"key of {name}", "sha512"), "big")
        return ec.derive_private_key(number % (_P256_ORDER - 1) + 1, ec.SECP256R1())

    def _bytes(self, purpose: str, digest: str = "sha256") -> bytes:
        return hmac.digest(self._secret, purpose.encode(), digest)


class Derived:
    """An authority whose keys and certificates follow from a seed: the same seed gives the same ones, byte for
    byte, without keeping them anywhere. Its keys are Ed25519, whose signatures hold nothing random."""

    def __init__(self, seed: bytes, name: str, now: datetime, life: timedelta) -> None:
        self._seed, self._now, self._life = seed, now, life
        self._key = self._key_of("authority")
        self._subject = _subject(name, ())
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        self.certificate = _pem(
            self._builder(self._subject, self._key.public_key(), "authority")
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(is_authority=True), critical=True)
            .add_extension(identifier, critical=False)
            .sign(self._key, None)
        )

    def issue(self, name: str, *, uses: Collection[Use], hosts: Iterable[str]) -> Pair:
        """The certificate of that name for these hosts, with its key. Raises `ValueError` as `Authority` does."""
        names = sorted(set(hosts))
        key = self._key_of(f"key of {name}")
        certificate = (
            self._builder(_subject(name, ()), key.public_key(), " ".join(["certificate of", name, *names]))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(is_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([use.value for use in uses]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(x509.SubjectAlternativeName([alternative(host) for host in names]), critical=False)
            .sign(self._key, None)
        )
        return Pair(_pem(certificate), _key_pem(key))

    def _key_of(self, purpose: str) -> ed25519.Ed25519PrivateKey:
        return ed25519.Ed25519PrivateKey.from_private_bytes(self._bytes(purpose))

    def _bytes(self, purpose: str) -> bytes:
        return hmac.digest(self._seed, purpose.encode(), "sha256")

    def _builder(self, subject: x509.Name, key: PublicKey, purpose: str) -> x509.CertificateBuilder:
        serial = int.from_bytes(self._bytes(f"serial of {purpose}")[:19], "big") | 1
        return _builder(subject, self._subject, key, self._now, self._life, serial)


def requested_key(csr: bytes) -> PublicKey:
    """The public key of a signing request, whose owner has the private one. Raises `ValueError` for what
    cannot be read, for keys that are too weak, and for those that no TLS client can use."""
    try:
        request = x509.load_pem_x509_csr(csr)
        key = request.public_key()
    except (ValueError, UnsupportedAlgorithm) as err:
        raise ValueError(f"it is not a certificate signing request as PEM: {err}") from None
    match key:
        case ec.EllipticCurvePublicKey():
            if key.curve.name not in _CURVES:
                raise ValueError(f"keys on the curve {key.curve.name} are not accepted")
        case rsa.RSAPublicKey():
            least, most = _RSA_BITS
            if not least <= key.key_size <= most:
                raise ValueError(f"an RSA key of {key.key_size} bits is not accepted: it must have {least} to {most}")
        case ed25519.Ed25519PublicKey():
            pass
        case _:
            raise ValueError("keys of this kind are not accepted")
    try:
        is_valid = request.is_signature_valid
    except (ValueError, UnsupportedAlgorithm):
        is_valid = False
    if not is_valid:
        raise ValueError("its signature is wrong: whoever sent it may not have the private key")
    return key


def key_digest(key: PublicKey) -> str:
    """The SHA-256 of a public key, in hexadecimal."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(key.public_bytes(serialization.Encoding.DER, form)).hexdigest()


def self_signed(name: str, hosts: Iterable[str], now: datetime, life: timedelta) -> Pair:
    """A server's certificate that nobody vouches for."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name, ())
    certificate = (
        _builder(subject, subject, key.public_key(), now, life)
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
    subject: x509.Name, issuer: x509.Name, key: PublicKey, now: datetime, life: timedelta, serial: int = 0
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(serial or x509.random_serial_number())
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


def _key_pem(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey) -> bytes:
    # Not encrypted: the file's mode protects it.
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
