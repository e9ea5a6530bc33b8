"""Serving certificates: given files, watched for renewal, or a self-signed pair made on start.

In: paths, or a folder to keep a self-signed pair in. Out: an `ssl.SSLContext` that new connections use;
`Reloader.check` reads the files again after they changed (a certificate manager replaces them while the program runs).
"""

from __future__ import annotations

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
    """A self-signed certificate and key in `folder`; issued again when missing, broken, nearly expired, or
    for other hosts.

    The key is readable for its owner alone.
    """
    from bedplate.serving import issuing

    cert_file, key_file = folder / f"{name}.crt", folder / f"{name}.key"
    now = clock.now()
    if not _is_usable(cert_file, key_file, hosts, now + _RENEW_BEFORE):
        folder.mkdir(parents=True, exist_ok=True)
        issuing.self_signed(f"{name}@{int(now.timestamp())}", hosts, now, _LIFETIME).write(folder, name)
    return cert_file, key_file


def _is_usable(cert_file: Path, key_file: Path, hosts: Collection[str], until: datetime) -> bool:
    """Whether the pair fits together, covers the hosts and lasts."""
    from cryptography import x509

    from bedplate.serving import issuing

    try:
        certificate = x509.load_pem_x509_certificate(cert_file.read_bytes())
        _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), cert_file, key_file)
    except (OSError, ValueError):
        return False
    return certificate.not_valid_after_utc > until and issuing.hosts_of(certificate).issuperset(hosts)


def _load(context: ssl.SSLContext, cert_file: Path, key_file: Path) -> None:
    # An encrypted key is an error: without the password OpenSSL would ask for one on the terminal, and wait.
    context.load_cert_chain(cert_file, key_file, password="")


class Reloader:
    """A TLS context over a pair of files. `check()` loads them again when they changed; a broken pair is refused and
    the old one stays in use."""

    def __init__(self, cert_file: Path, key_file: Path, *, client_ca: Path | None = None) -> None:
        self._files = (cert_file, key_file)
        self._client_ca = client_ca
        self._stamp = self._stamps()
        try:
            self.context = self._current = self._made()
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
            current = self._made()
            _load(self.context, *self._files)
            self._current = current
        except (OSError, ssl.SSLError) as err:
            log.warning("certificates.not_reloaded", file=str(self._files[0]), error=str(err))
            return False
        self._stamp = stamp
        log.info("certificates.reloaded", file=str(self._files[0]))
        return True

    def _made(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(_CIPHERS)
        if self._client_ca is not None:
            context.load_verify_locations(self._client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL
            # A context cannot forget an authority: each connection is moved to the newest one as it begins. A session
            # that is resumed would not be verified again.
            context.sni_callback = self._move
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
        _load(context, *self._files)
        return context

    def _move(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        if context is not self._current:
            connection.context = self._current

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        stamps = []
        for path in (*self._files, *([self._client_ca] if self._client_ca is not None else [])):
            try:
                state = path.stat()
            except OSError:
                return ()
            stamps.append((state.st_mtime_ns, state.st_ino))
        return tuple(stamps)
