"""Serving certificates: given files, watched for renewal, or a self-signed pair made on start.

In: paths, or a folder to keep a self-signed pair in. Out: an `ssl.SSLContext` that new connections use;
`Reloader.check` reads the files again after they changed (a certificate manager replaces them while the program runs).
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Collection
from datetime import datetime, timedelta
from pathlib import Path

from bedplate.core import errors, logging
from bedplate.core.clock import Clock

__all__ = ["Reloader", "self_signed"]

log = logging.get_logger("serving.certificates")
_LIFETIME = timedelta(days=365)
_RENEW_BEFORE = timedelta(days=7)
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


def self_signed(folder: Path, name: str, hosts: Collection[str], clock: Clock) -> tuple[Path, Path]:
    """A self-signed certificate and key in `folder`; made anew when missing, broken, nearly expired or for other hosts.

    The key is readable for its owner alone.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    cert_file, key_file = folder / f"{name}.crt", folder / f"{name}.key"
    now = clock.now()
    if _is_usable(cert_file, key_file, hosts, now + _RENEW_BEFORE):
        return cert_file, key_file
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name}@{int(now.timestamp())}")])
    names = [x509.IPAddress(ipaddress.ip_address(one)) if _is_address(one) else x509.DNSName(one) for one in hosts]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    _write(
        key_file,
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        0o600,
    )
    _write(cert_file, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    return cert_file, key_file


def _is_usable(cert_file: Path, key_file: Path, hosts: Collection[str], until: datetime) -> bool:
    """Whether the pair fits together, covers the hosts and lasts."""
    from cryptography import x509

    try:
        known = x509.load_pem_x509_certificate(cert_file.read_bytes())
        covered = known.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), cert_file, key_file)
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    names = {str(name.value) for name in covered}
    return known.not_valid_after_utc > until and names.issuperset(hosts)


def _load(context: ssl.SSLContext, cert_file: Path, key_file: Path) -> None:
    # An encrypted key is an error: without the password OpenSSL would ask for one on the terminal, and wait.
    context.load_cert_chain(cert_file, key_file, password="")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _write(path: Path, data: bytes, mode: int) -> None:
    part = path.with_suffix(path.suffix + ".part")
    part.touch(mode=mode)
    part.write_bytes(data)
    os.replace(part, path)


class Reloader:
    """A TLS context over a pair of files. `check()` loads them again when they changed; a broken pair is refused and
    the old one stays in use."""

    def __init__(self, cert_file: Path, key_file: Path, *, client_ca: Path | None = None) -> None:
        self._files = (cert_file, key_file)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_ciphers(_CIPHERS)
        if client_ca is not None:
            self.context.load_verify_locations(client_ca)
            self.context.verify_mode = ssl.CERT_OPTIONAL
        self._stamp = self._stamps()
        try:
            _load(self.context, cert_file, key_file)
        except (OSError, ssl.SSLError) as err:
            raise errors.Invalid(
                f"cannot serve TLS with {cert_file} and {key_file}: {err}",
                hint="give a matching certificate and key in PEM",
            ) from err

    def check(self) -> bool:
        """Load the files again if they changed; whether that was done."""
        stamp = self._stamps()
        if stamp == self._stamp:
            return False
        try:
            _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), *self._files)
            _load(self.context, *self._files)
        except (OSError, ssl.SSLError) as err:
            log.warning("certificates.not_reloaded", file=str(self._files[0]), error=str(err))
            return False
        self._stamp = stamp
        log.info("certificates.reloaded", file=str(self._files[0]))
        return True

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        found = []
        for path in self._files:
            try:
                state = path.stat()
            except OSError:
                return ()
            found.append((state.st_mtime_ns, state.st_ino))
        return tuple(found)
