"""A site's certificates: its authority, its heads' serving ones, its users' and nodes' client ones.

In: the authority's files in a data folder, names, the time. Out: PEM. Who may do what with a certificate is decided by
`head/access`.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from bedplate.core import errors
from bedplate.serving import issuing
from bedplate.serving.issuing import Pair, Use

__all__ = [
    "NEXT",
    "Authority",
    "Pair",
    "Presented",
    "Trust",
    "begin",
    "ders",
    "fingerprint",
    "good_until",
    "host_names",
    "is_issued_by",
    "is_pair",
    "is_signed_by",
    "lacks",
    "life_of",
    "named",
    "outward_addresses",
    "presented",
    "requested_key",
]

NEXT = "ca-next"
"""The name of the files of an authority that is about to take the present one's place."""
AUTHORITY_LIFE = datetime.timedelta(days=3650)
LEAF_LIFE = datetime.timedelta(days=365)
RENEW_BEFORE = datetime.timedelta(days=30)
_LOOK_UP_S = 1.5
_MOST_KNOWN = 20_000


class Authority:
    """Signs for one site."""

    def __init__(self, authority: issuing.Authority) -> None:
        self._authority = authority

    @classmethod
    def make(cls, site: str, now: datetime.datetime) -> Authority:
        """A new one, named after the site's first head node."""
        with _refusing(site):
            return cls(issuing.Authority.create(f"bedplate head {site}", now, AUTHORITY_LIFE, path_length=0))

    @classmethod
    def load(cls, folder: Path) -> Authority:
        """That of a data folder: the certificate in `ca.crt` that `ca.key` belongs to. It is the first one, unless a
        rotation was cut off between the two files. Raises `Invalid`."""
        try:
            bundle, key = (folder / "ca.crt").read_bytes(), (folder / "ca.key").read_bytes()
            pems = [part.public_bytes(serialization.Encoding.PEM) for part in x509.load_pem_x509_certificates(bundle)]
            own = next((pem for pem in pems if issuing.belongs(key, pem)), pems[0])
            return cls(issuing.Authority.load(Pair(own, key)))
        except (OSError, ValueError) as err:
            hint = "restore ca.crt and ca.key from a backup or from another head node"
            raise errors.Invalid(f"cannot read the certificate authority in {folder}: {err}", hint=hint) from err

    @classmethod
    def for_clients(cls, folder: Path) -> Authority:
        """The one that signs client certificates: during a rotation the next one, so that they outlast it."""
        try:
            pair = Pair((folder / f"{NEXT}.crt").read_bytes(), (folder / f"{NEXT}.key").read_bytes())
            return cls(issuing.Authority.load(pair))
        except FileNotFoundError:
            return cls.load(folder)
        except (OSError, ValueError) as err:
            hint = "bedplate head rotate-authority --finish, or restore a backup"
            raise errors.Invalid(f"cannot read the next certificate authority in {folder}: {err}", hint=hint) from err

    @property
    def pair(self) -> Pair:
        return self._authority.pair

    def server(self, hosts: Iterable[str], name: str, now: datetime.datetime) -> Pair:
        """For a head that is reached at those names and addresses."""
        with _refusing(name):
            return self._authority.issue(name, now, LEAF_LIFE, uses=[Use.SERVER], hosts=hosts)

    def client(
        self,
        name: str,
        group: str,
        now: datetime.datetime,
        life: datetime.timedelta = LEAF_LIFE,
        *,
        generation: int = 0,
    ) -> Pair:
        """For a user or a node, as the group says; `generation` tells it from those that were revoked by name."""
        with _refusing(name):
            return self._authority.issue(name, now, life, uses=[Use.CLIENT], groups=[group], generation=generation)

    def certify(
        self,
        csr: bytes,
        name: str,
        group: str,
        now: datetime.datetime,
        life: datetime.timedelta = LEAF_LIFE,
        *,
        generation: int = 0,
    ) -> bytes:
        """The same for the key of a signing request, of which nothing else counts. Raises `Invalid`."""
        key = _key(csr)
        with _refusing(name):
            return self._authority.certify(
                key, name, now, life, uses=[Use.CLIENT], groups=[group], generation=generation
            )


def requested_key(csr: bytes) -> str:
    """The SHA-256 of the public key of a signing request that is in order. Raises `Invalid`."""
    return issuing.key_digest(_key(csr))


def _key(csr: bytes) -> issuing.PublicKey:
    try:
        return issuing.requested_key(csr)
    except ValueError as err:
        raise errors.Invalid(
            f"the signing request cannot be used: {err}", hint="send a PKCS #10 request for a P-256 key, as PEM"
        ) from None


@contextlib.contextmanager
def _refusing(name: str) -> Iterator[None]:
    try:
        yield
    except ValueError as err:
        raise errors.Invalid(f"cannot issue a certificate for {name!r}: {err}", hint="choose another name") from None


def host_names(*more: str) -> list[str]:
    """The names and addresses this machine is reached by, and those given; wildcard addresses are none."""
    name = socket.gethostname()
    hosts = ["localhost", "127.0.0.1", "::1", name, *_looked_up(name), *outward_addresses(), *more]
    return [host for host in dict.fromkeys(hosts) if host and host not in ("0.0.0.0", "::") and _is_usable(host)]


def _looked_up(name: str) -> list[str]:
    """What the resolver says about the machine's own name, if it says it soon: a silent one must not keep a head."""
    names: list[str] = []

    def look() -> None:
        with contextlib.suppress(OSError):
            names.append(socket.getfqdn(name))
            names.extend(str(info[4][0]) for info in socket.getaddrinfo(name, None))

    # A thread of the daemon kind: nobody waits for it when the program ends.
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(_LOOK_UP_S)
    return list(names)


def outward_addresses() -> list[str]:
    """The addresses this machine talks to others from. A datagram socket that is connected sends nothing."""
    addresses = []
    for family, somewhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((somewhere, 9))
            addresses.append(str(probe.getsockname()[0]))
    return addresses


def lacks(file: Path, hosts: Sequence[str], now: datetime.datetime) -> bool:
    """Whether a serving certificate must be renewed: missing, broken, close to its end, without those names, or not of
    the key beside it."""
    try:
        certificate = x509.load_pem_x509_certificate(file.read_bytes())
    except (OSError, ValueError):
        return True
    if not is_pair(file):
        return True
    is_old = certificate.not_valid_after_utc < now + RENEW_BEFORE
    return is_old or not issuing.hosts_of(certificate).issuperset(hosts)


def is_pair(file: Path) -> bool:
    """Whether the key beside a certificate is its own: a process that was killed may have written one of the two."""
    try:
        return issuing.belongs(file.with_suffix(".key").read_bytes(), file.read_bytes())
    except (OSError, ValueError):
        return False


def is_issued_by(file: Path, *authorities: Path) -> bool:
    """Whether the certificate in a file is one of the first of these authorities that is there."""
    try:
        certificate = x509.load_pem_x509_certificate(file.read_bytes())
    except (OSError, ValueError):
        return False
    return is_signed_by(certificate.public_bytes(serialization.Encoding.DER), *authorities)


def is_signed_by(der: bytes, *authorities: Path) -> bool:
    """The same for the bytes of a certificate."""
    authority = next((path for path in authorities if path.is_file()), authorities[-1])
    try:
        certificate = x509.load_der_x509_certificate(der)
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.read_bytes()))
    except (OSError, ValueError, TypeError, InvalidSignature):
        return False
    return True


def life_of(der: bytes) -> tuple[datetime.datetime, datetime.datetime]:
    """When a certificate of ours was issued, and when it ends."""
    return issuing.issued_at(der), x509.load_der_x509_certificate(der).not_valid_after_utc


class Trust:
    """Whether a client certificate is one of the authorities in a file: for connections that were made before the file
    changed. `forget` makes it look again; `changes` counts how often."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[bytes, bool] = {}
        self.changes = 0

    def forget(self) -> None:
        self._known.clear()
        self.changes += 1

    def __call__(self, der: bytes) -> bool:
        digest = hashlib.sha256(der).digest()
        if digest not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[digest] = self._look(der)
        return self._known[digest]

    def _look(self, der: bytes) -> bool:
        certificate = x509.load_der_x509_certificate(der)
        for authority in x509.load_pem_x509_certificates(self._file.read_bytes()):
            with contextlib.suppress(ValueError, TypeError, InvalidSignature):
                certificate.verify_directly_issued_by(authority)
                return True
        return False


def begin(bundle: bytes) -> tuple[datetime.datetime, datetime.datetime]:
    """When the newest of some authorities began, and the first of them, which is the present one: of two states of one
    site the greater is the later."""
    starts = [certificate.not_valid_before_utc for certificate in x509.load_pem_x509_certificates(bundle)]
    return max(starts), starts[0]


def good_until(file: Path) -> datetime.datetime | None:
    """The end of a certificate; None where it cannot be read."""
    try:
        return x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc
    except (OSError, ValueError):
        return None


def ders(file: Path) -> list[bytes]:
    """The certificates in a file; none where it cannot be read."""
    try:
        certificates = x509.load_pem_x509_certificates(file.read_bytes())
    except (OSError, ValueError):
        return []
    return [certificate.public_bytes(serialization.Encoding.DER) for certificate in certificates]


class Presented(NamedTuple):
    """A client certificate as a head sees it: its subject by the names of its parts, its bytes, its end."""

    subject: dict[str, list[str]]
    der: bytes
    ends: datetime.datetime


def presented(file: Path) -> Presented | None:
    """What a client with that certificate presents; None where it cannot be read."""
    try:
        certificate = x509.load_pem_x509_certificate(file.read_bytes())
    except (OSError, ValueError):
        return None
    subject: dict[str, list[str]] = {}
    for name, oid in (("commonName", NameOID.COMMON_NAME), ("organizationName", NameOID.ORGANIZATION_NAME)):
        subject[name] = [str(part.value) for part in certificate.subject.get_attributes_for_oid(oid)]
    return Presented(subject, certificate.public_bytes(serialization.Encoding.DER), certificate.not_valid_after_utc)


def fingerprint(pem: bytes) -> str:
    """The SHA-256 of a certificate, as a user's object names it."""
    return x509.load_pem_x509_certificate(pem).fingerprint(hashes.SHA256()).hex()


def named(bundle: bytes, digest: str) -> bytes | None:
    """The one certificate of a bundle that has a fingerprint; None where none has."""
    for certificate in x509.load_pem_x509_certificates(bundle):
        if certificate.fingerprint(hashes.SHA256()).hex() == digest:
            return certificate.public_bytes(serialization.Encoding.PEM)
    return None


def _is_usable(host: str) -> bool:
    try:
        issuing.alternative(host)
    except ValueError:
        return False
    return True
