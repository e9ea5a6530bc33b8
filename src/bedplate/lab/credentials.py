"""Certificates, service account keys and kubeconfig files of a cluster.

In: names, addresses, a folder. Out: PEM files in the folder, readable by the owner alone. Keys are P-256;
certificates live ten years, as no cluster of this package is meant to live longer than a test or a day of trying
things.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Authority", "KeyPair", "write_kubeconfig", "write_service_account_keys"]

_LIFE = datetime.timedelta(days=3650)
# Clocks of two machines, or of a suspended one, differ: a certificate is valid a little before it was made.
_SKEW = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Where a certificate and its private key lie."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority that writes what it issues into one folder."""

    def __init__(self, folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.folder = folder
        self.certificate_path = folder / f"{name}.crt"
        self._certificate = certificate
        self._key = key

    @classmethod
    def open(cls, folder: Path, name: str = "ca") -> Authority:
        """The authority of that name in the folder, made when there is none."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        certificate_path, key_path = folder / f"{name}.crt", folder / f"{name}.key"
        if certificate_path.exists() and key_path.exists():
            key = serialization.load_pem_private_key(key_path.read_bytes(), None)
            assert isinstance(key, ec.EllipticCurvePrivateKey)
            return cls(folder, name, x509.load_pem_x509_certificate(certificate_path.read_bytes()), key)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(f"bedplate lab {name}", ())
        builder = _builder(subject, subject, key.public_key()).add_extension(x509.BasicConstraints(True, None), True)
        usage = x509.KeyUsage(True, False, True, False, False, True, True, False, False)
        certificate = builder.add_extension(usage, True).sign(key, hashes.SHA256())
        _write(key_path, _key_pem(key))
        _write(certificate_path, certificate.public_bytes(serialization.Encoding.PEM))
        return cls(folder, name, certificate, key)

    def issue(
        self, file_name: str, common_name: str, *, groups: Sequence[str] = (), hosts: Iterable[str] = ()
    ) -> KeyPair:
        """A certificate for a client (name and groups are its Kubernetes identity) and, with `hosts`, for a server."""
        pair = KeyPair(self.folder / f"{file_name}.crt", self.folder / f"{file_name}.key")
        if pair.certificate.exists() and pair.key.exists():
            return pair
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_subject(common_name, groups), self._certificate.subject, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(False, None), True)
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        names = [_alternative_name(host) for host in hosts]
        if names:
            uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
            builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
        certificate = builder.add_extension(x509.ExtendedKeyUsage(uses), False).sign(self._key, hashes.SHA256())
        _write(pair.key, _key_pem(key))
        _write(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM))
        return pair


def write_service_account_keys(folder: Path) -> tuple[Path, Path]:
    """The private and the public key for service account tokens, made when there are none."""
    private, public = folder / "sa.key", folder / "sa.pub"
    if not (private.exists() and public.exists()):
        key = ec.generate_private_key(ec.SECP256R1())
        _write(private, _key_pem(key))
        encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        _write(public, key.public_key().public_bytes(encoding, form))
    return private, public


def write_kubeconfig(
    path: Path, server: str, authority: Path, pair: KeyPair, *, user: str, cluster: str = "lab"
) -> Path:
    """A kubeconfig with everything inside it, so that it may be copied alone."""

    def inline(source: Path) -> str:
        return base64.b64encode(source.read_bytes()).decode()

    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": cluster,
        "clusters": [{"name": cluster, "cluster": {"server": server, "certificate-authority-data": inline(authority)}}],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": inline(pair.certificate),
                    "client-key-data": inline(pair.key),
                },
            }
        ],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
    }
    _write(path, yaml.safe_dump(config, sort_keys=False).encode())
    return path


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _LIFE)
    )


def _subject(common_name: str, groups: Sequence[str]) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as handle:
        handle.write(content)
