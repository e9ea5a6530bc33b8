"""A site's certificates: its authority, its heads' serving ones, its users' and nodes' client ones.

In: the authority's files in a data folder, names, the time. Out: PEM. Who may do what with a certificate is decided by
`head/access`. Keys are P-256.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import socket
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bedplate.core import errors
from bedplate.head.folder.datafolder import write_private
from bedplate.serving import issuing

__all__ = ["Authority", "Pair", "fingerprint", "good_until", "host_names", "lacks", "outward_addresses"]

AUTHORITY_LIFE = datetime.timedelta(days=3650)
LEAF_LIFE = datetime.timedelta(days=365)
RENEW_BEFORE = datetime.timedelta(days=30)
# Clocks of two machines differ: a certificate is good a little before it was made.
_LOOK_UP_S = 1.5


class Pair(NamedTuple):
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> None:
        """As `name.crt` and `name.key`, the key for its owner's eyes."""
        write_private(folder / f"{name}.key", self.key)
        write_private(folder / f"{name}.crt", self.certificate, mode=0o644)


class Authority:
    """Signs for one site."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def make(cls, site: str, now: datetime.datetime) -> Authority:
        """A new one, named after the site's first head node."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(f"bedplate head {site}", ())
        builder = issuing.builder(subject, subject, key, now, AUTHORITY_LIFE)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(issuing.usage(is_authority=True), critical=True)
        known = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        return cls(builder.add_extension(known, critical=False).sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, folder: Path) -> Authority:
        """That of a data folder. Raises `Invalid`."""
        try:
            certificate = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
            key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        except (OSError, ValueError, TypeError) as err:
            hint = "put ca.crt and ca.key back from a backup or from another head node"
            raise errors.Invalid(f"the authority in {folder} cannot be read: {err}", hint=hint) from err
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise errors.Invalid(f"ca.key in {folder} does not belong to its ca.crt", hint="put the right pair back")
        return cls(certificate, key)

    @property
    def pair(self) -> Pair:
        return Pair(self._certificate.public_bytes(serialization.Encoding.PEM), issuing.key_pem(self._key))

    def server(self, hosts: Iterable[str], name: str, now: datetime.datetime) -> Pair:
        """For a head that people reach by those names and addresses."""
        alternatives = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
        return self._issue(_subject(name, ()), ExtendedKeyUsageOID.SERVER_AUTH, now, LEAF_LIFE, alternatives)

    def client(self, name: str, group: str, now: datetime.datetime, life: datetime.timedelta = LEAF_LIFE) -> Pair:
        """For a user or a node, as the group says."""
        return self._issue(_subject(name, (group,)), ExtendedKeyUsageOID.CLIENT_AUTH, now, life, None)

    def _issue(
        self,
        subject: x509.Name,
        purpose: x509.ObjectIdentifier,
        now: datetime.datetime,
        life: datetime.timedelta,
        alternatives: x509.SubjectAlternativeName | None,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = issuing.builder(subject, self._certificate.subject, key, now, life)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(issuing.usage(is_authority=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        return Pair(signed.public_bytes(serialization.Encoding.PEM), issuing.key_pem(key))


def host_names(*more: str) -> list[str]:
    """The names and addresses this machine is reached by, and those given; wildcard addresses are none."""
    name = socket.gethostname()
    found = ["localhost", "127.0.0.1", "::1", name, *_looked_up(name), *outward_addresses(), *more]
    return [one for one in dict.fromkeys(found) if one and one not in ("0.0.0.0", "::") and _is_usable(one)]


def _looked_up(name: str) -> list[str]:
    """What the resolver says about the machine's own name, if it says it soon: a silent one must not keep a head."""
    found: list[str] = []

    def look() -> None:
        with contextlib.suppress(OSError):
            found.append(socket.getfqdn(name))
            found.extend(str(info[4][0]) for info in socket.getaddrinfo(name, None))

    # A thread of the daemon kind: nobody waits for it when the program ends.
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(_LOOK_UP_S)
    return list(found)


def outward_addresses() -> list[str]:
    """The addresses this machine talks to others from. A datagram socket that is connected sends nothing."""
    found = []
    for family, somewhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((somewhere, 9))
            found.append(str(probe.getsockname()[0]))
    return found


def lacks(file: Path, hosts: Sequence[str], now: datetime.datetime) -> bool:
    """Whether a serving certificate must be made anew: missing, broken, close to its end, or without those names."""
    try:
        certificate = x509.load_pem_x509_certificate(file.read_bytes())
        held = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return True
    names = {str(one.value) for one in held}
    return certificate.not_valid_after_utc < now + RENEW_BEFORE or not names.issuperset(hosts)


def good_until(file: Path) -> datetime.datetime | None:
    """The end of a certificate; None where it cannot be read."""
    try:
        return x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc
    except (OSError, ValueError):
        return None


def fingerprint(pem: bytes) -> str:
    """The SHA-256 of a certificate, as a user's object names it."""
    return x509.load_pem_x509_certificate(pem).fingerprint(hashes.SHA256()).hex()


def _is_usable(host: str) -> bool:
    try:
        _alternative(host)
    except ValueError:
        return False
    return True


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _subject(name: str, groups: Sequence[str]) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    try:
        return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])
    except ValueError as err:
        raise errors.Invalid(f"a certificate cannot be made for {name!r}: {err}", hint="choose another name") from None
