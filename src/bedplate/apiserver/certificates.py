"""The server's certificates: an authority of its own, a serving certificate, the administrator's client certificate.

In: a folder, the names and addresses people reach the server by, the time. Out: PEM files in that folder and a
kubeconfig. Made once, renewed when close to their end or when the names change. What is there is read without the
cryptography library, whose import would cost a tenth of a second at every start.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import ipaddress
import os
import pathlib
import socket
from typing import TYPE_CHECKING, Any

import msgspec

from bedplate.core import clock as clocks
from bedplate.core import errors

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["Pki", "ensure", "kubeconfig", "serving_names", "write_private"]

AUTHORITY_LIFE = datetime.timedelta(days=3650)
LEAF_LIFE = datetime.timedelta(days=365)
RENEW_BEFORE = datetime.timedelta(days=30)
_SERVICE_NAMES = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
_FIRST_SERVICE_ADDRESS = "10.96.0.1"


class Pki(msgspec.Struct):
    """Where the files are, and until when they are good."""

    folder: str
    names: list[str]
    renew_at: str

    def path(self, name: str) -> pathlib.Path:
        return pathlib.Path(self.folder) / name

    def text(self, name: str) -> str:
        return self.path(name).read_text()


def serving_names(bind_address: str) -> list[str]:
    """All names and addresses the serving certificate is for."""
    found = ["localhost", "127.0.0.1", "::1", socket.gethostname(), *_SERVICE_NAMES, _FIRST_SERVICE_ADDRESS]
    if bind_address not in ("", "0.0.0.0", "::"):
        found.append(bind_address)
    return list(dict.fromkeys(found))


def ensure(folder: pathlib.Path, names: list[str], clock: clocks.Clock) -> Pki:
    """The certificates in a folder, made or renewed where needed."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = _read(folder)
    now = clock.now()
    if found is not None and set(names) <= set(found.names) and now < clocks.parse_rfc3339(found.renew_at):
        return found
    return _make(folder, names, now)


def _read(folder: pathlib.Path) -> Pki | None:
    path = folder / "state.json"
    if not path.exists():
        return None
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Pki)
    except msgspec.DecodeError as err:
        raise errors.Invalid(f"{path} is damaged: {err}", hint="remove it to have certificates made anew") from err
    found.folder = str(folder)
    return found


def _make(folder: pathlib.Path, names: list[str], now: datetime.datetime) -> Pki:
    authority = _Authority.load(folder) if (folder / "ca.key").exists() else _Authority.make(folder, now)
    authority.issue(folder, "server", "kube-apiserver", [], names, now)
    authority.issue(folder, "admin", "kubernetes-admin", ["system:masters"], [], now)
    made = Pki(str(folder), names, clocks.rfc3339(now + LEAF_LIFE - RENEW_BEFORE))
    write_private(folder / "state.json", msgspec.json.encode(made))
    return made


def write_private(path: pathlib.Path, content: bytes) -> None:
    """Write a file that only its owner reads, all of it or nothing."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
        temporary.replace(path)
    except OSError as err:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise errors.Invalid(f"cannot write {path}: {err.strerror}", hint="choose a path this user can write") from err


class _Authority:
    """The certificate authority in a folder."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def load(cls, folder: pathlib.Path) -> _Authority:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization

        key: Any = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        return cls(key, x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes()))

    @classmethod
    def make(cls, folder: pathlib.Path, now: datetime.datetime) -> _Authority:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        name = _subject("bedplate-ca", [])
        builder = _builder(name, name, key, now, AUTHORITY_LIFE)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(_usage(is_authority=True), critical=True)
        certificate = _sign(builder, key)
        _write_pair(folder, "ca", key, certificate)
        return cls(key, certificate)

    def issue(
        self, folder: pathlib.Path, file: str, name: str, groups: list[str], hosts: list[str], now: datetime.datetime
    ) -> None:
        """A certificate for a server (with `hosts`) or a client (with `groups`), with a new key."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        purpose = x509.oid.ExtendedKeyUsageOID.SERVER_AUTH if hosts else x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH
        builder = _builder(_subject(name, groups), self._certificate.subject, key, now, LEAF_LIFE)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(is_authority=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_alternative(h) for h in hosts]), critical=False
            )
        _write_pair(folder, file, key, _sign(builder, self._key))


def _subject(name: str, groups: list[str]) -> x509.Name:
    from cryptography import x509

    parts = [x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*parts, x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _alternative(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
    life: datetime.timedelta,
) -> x509.CertificateBuilder:
    from cryptography import x509

    # An hour of leeway, for clients whose clock is behind.
    begin = now - datetime.timedelta(hours=1)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    return builder.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(now + life)


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not is_authority,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _sign(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())


def _write_pair(
    folder: pathlib.Path, file: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
) -> None:
    from cryptography.hazmat.primitives import serialization

    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    write_private(folder / f"{file}.key", pem)
    write_private(folder / f"{file}.crt", certificate.public_bytes(serialization.Encoding.PEM))


def kubeconfig(pki: Pki, url: str, name: str = "bedplate") -> bytes:
    """The administrator's kubeconfig, with everything inside."""

    def inline(file: str) -> str:
        return base64.b64encode(pki.path(file).read_bytes()).decode()

    cluster = {"server": url, "certificate-authority-data": inline("ca.crt")}
    user = {"client-certificate-data": inline("admin.crt"), "client-key-data": inline("admin.key")}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": f"{name}-admin", "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": f"{name}-admin"}}],
        "current-context": name,
    }
    # JSON is YAML, and writing it needs no YAML library at start.
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
