"""A certificate for the ingress of a cluster: a self-signed authority with a server pair, or a pair that a site has.

In: names, the time, PEM. Out: five files in one folder, or a pair that was checked. Keys and certificates are for the
owner alone (0600). Pure, but for `generate_authority` and `generate_pair`, which read and write these files; both may
be repeated: an authority that is there and still good stays, so that who trusts it goes on trusting it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bedplate.core import errors
from bedplate.serving import issuing
from bedplate.serving.files import write_private
from bedplate.serving.issuing import Authority, Pair, Use

__all__ = ["FILES", "checked", "generate_authority", "generate_pair"]

CA, SERVER = "ingress-ca", "ingress-server"
FILES = (f"{CA}.crt", f"{CA}.key", f"{SERVER}.crt", f"{SERVER}.csr", f"{SERVER}.key")
AUTHORITY_LIFE, SERVER_LIFE = timedelta(days=3650), timedelta(days=825)
_RENEW_BEFORE = timedelta(days=90)
_LONGEST_NAME = 64


def generate_authority(folder: Path, cluster: str, now: datetime) -> Pair:
    """The authority of the folder: the one that is there, unless it ends soon. Raises `Invalid` for a damaged one."""
    certificate, key = folder / f"{CA}.crt", folder / f"{CA}.key"
    if certificate.exists() or key.exists():
        try:
            present = Authority.load(Pair(certificate.read_bytes(), key.read_bytes())).pair
        except (OSError, ValueError) as err:
            raise errors.Invalid(
                f"cannot read the ingress authority in {folder}: {err}",
                hint=f"restore {CA}.crt and {CA}.key, or remove both: users must then trust the new {CA}.crt",
            ) from None
        if x509.load_pem_x509_certificate(present.certificate).not_valid_after_utc - now > _RENEW_BEFORE:
            return present
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    pair = Authority.create(f"{cluster} ingress"[:_LONGEST_NAME], now, AUTHORITY_LIFE, path_length=0).pair
    pair.write(folder, CA, certificate_mode=0o600)
    return pair


def generate_pair(folder: Path, domains: Sequence[str], now: datetime) -> Pair:
    """A server pair for all these names, by the authority of the folder. Raises `Invalid` for a name that no
    certificate can have, and without an authority."""
    if not domains:
        raise errors.Invalid("the certificate needs a name", hint="set the trusted domains of the cluster")
    try:
        authority = Authority.load(Pair((folder / f"{CA}.crt").read_bytes(), (folder / f"{CA}.key").read_bytes()))
        name = domains[0] if len(domains[0]) <= _LONGEST_NAME else "ingress"
        names = list(dict.fromkeys(domains))
        pair = authority.issue(name, now, SERVER_LIFE, uses=[Use.SERVER], hosts=names)
        request = _request(pair.key, name, names)
    except (OSError, ValueError) as err:
        raise errors.Invalid(
            f"cannot issue a certificate for {', '.join(domains)}: {err}", hint="correct the trusted domains"
        ) from None
    write_private(folder / f"{SERVER}.csr", request)
    pair.write(folder, SERVER, certificate_mode=0o600)
    return pair


def _request(key_pem: bytes, name: str, hosts: Iterable[str]) -> bytes:
    """The signing request, for a site that has another authority sign the same key."""
    key = serialization.load_pem_private_key(key_pem, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names = x509.SubjectAlternativeName([issuing.alternative(host) for host in hosts])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject).add_extension(names, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def checked(pair: Pair, domains: Iterable[str], now: datetime) -> list[str]:
    """What an administrator should know of a pair that a site has. Raises `Invalid` for one that no ingress can use:
    another key, not valid now, no certificate at all."""
    try:
        chain = x509.load_pem_x509_certificates(pair.certificate)
    except ValueError as err:
        raise errors.Invalid(f"the certificate is not PEM: {err}", hint="give the path of server.crt") from None
    certificate = chain[0]
    if not _is_of(pair.key, certificate):
        raise errors.Invalid(
            "the key does not belong to the certificate", hint="give the server.key that server.crt was issued for"
        )
    if certificate.not_valid_after_utc <= now:
        raise errors.Invalid(
            f"the certificate expired on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC", hint="have it renewed"
        )
    if certificate.not_valid_before_utc > now:
        raise errors.Invalid(
            f"the certificate is not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC",
            hint="look at the clock of this machine, or wait",
        )
    warnings = []
    if certificate.not_valid_after_utc - now < _RENEW_BEFORE:
        warnings.append(f"the certificate expires on {certificate.not_valid_after_utc:%Y-%m-%d}")
    covered = issuing.hosts_of(certificate)
    missing = [domain for domain in domains if not _is_covered(domain, covered)]
    if missing:
        warnings.append(f"the certificate has no name for {', '.join(missing)}: browsers will refuse it there")
    return warnings


def _is_of(key: bytes, certificate: x509.Certificate) -> bool:
    """Whether a private key is that of a certificate. Raises `Invalid`."""
    try:
        own = serialization.load_pem_private_key(key, None)
    except TypeError:
        raise errors.Invalid(
            "the key is encrypted", hint="openssl pkey -in server.key removes its pass phrase"
        ) from None
    except (ValueError, UnsupportedAlgorithm) as err:
        raise errors.Invalid(f"the key is not PEM: {err}", hint="give the path of server.key") from None
    return own.public_key() == certificate.public_key()


def _is_covered(domain: str, covered: Iterable[str]) -> bool:
    """Whether a certificate for these names is good for a domain; a star stands for one label."""
    parent = f"*.{domain.partition('.')[2]}".lower()
    names = {name.lower() for name in covered}
    return domain.lower() in names or parent in names
