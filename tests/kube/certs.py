"""Throw-away certificates for tests: a CA, servers, clients."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True)
class Pair:
    """A certificate with its key, as PEM."""

    cert: bytes
    key: bytes


class Authority:
    """A CA that signs what a test needs."""

    def __init__(self, name: str = "test CA") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._cert = self._sign(self._name, self._key, is_ca=True, hosts=())
        self.pem = self._cert.public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str, hosts: tuple[str, ...] = (), group: str = "") -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if group:
            attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        subject = x509.Name(attributes)
        cert = self._sign(subject, key, is_ca=False, hosts=hosts)
        return Pair(
            cert.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_ca: bool, hosts: tuple[str, ...]
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        )
        if not is_ca:
            uses = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
            builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), False)
        return builder.sign(self._key, hashes.SHA256())

    def server_context(self, folder: Path, *hosts: str, wants_client: bool = False) -> ssl.SSLContext:
        pair = self.issue("server", hosts)
        path = folder / f"server-{'-'.join(hosts)}.pem"
        path.write_bytes(pair.cert + pair.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        if wants_client:
            context.load_verify_locations(cadata=self.pem.decode())
            context.verify_mode = ssl.CERT_OPTIONAL
        return context


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def common_name(peer: dict[str, object] | None) -> str:
    """The common name in what `getpeercert()` returned."""
    subject = peer.get("subject", ()) if peer else ()
    return next((value for part in subject for key, value in part if key == "commonName"), "")  # type: ignore[attr-defined]
