"""The certificates of the HTTPS port: given files, a self-signed pair, others by server name; and whom to trust.

In: the secure serving flags; `trust` with the authorities of client certificates. Out: an `ssl.SSLContext` whose new
connections always use the newest of all that: each handshake is handed a context built from the present files. A broken
pair is refused and the last good one stays in use.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

from bedplate.cloud.manager import options_serving
from bedplate.cloud.manager.options_serving import SecureServing
from bedplate.core import clock, errors, logging
from bedplate.serving.certificates import self_signed

__all__ = ["NAME", "ServingCertificates"]

log = logging.get_logger("cloud.certificates")
NAME = "cloud-controller-manager"
_HOSTS = ("localhost", "127.0.0.1")
_RENEW_BEFORE = timedelta(days=7)
_MEMORY = "/dev/shm"


class ServingCertificates:
    """What the port presents and accepts."""

    def __init__(self, serving: SecureServing, time: clock.Clock) -> None:
        self._serving = serving
        self._time = time
        self._sni = [options_serving.parse_sni(text) for text in serving.tls_sni_cert_key]
        self._authorities = ""
        self._pair = b""
        self._ends: datetime | None = None
        """When a self-signed pair expires."""
        self._stamps: object = None
        self._default = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._named: dict[str, ssl.SSLContext] = {}
        try:
            self._build()
        except (OSError, ssl.SSLError, ValueError) as err:
            raise errors.Invalid(
                f"the certificates of the HTTPS port cannot be used: {err}",
                hint="--tls-cert-file, --tls-private-key-file and --tls-sni-cert-key take matching pairs in PEM",
            ) from err
        self.context = self._listening()

    def trust(self, authorities: str) -> None:
        """Accept client certificates of these authorities (PEM); none: ask for no certificate."""
        if authorities == self._authorities:
            return
        previous, self._authorities = self._authorities, authorities
        try:
            self._build()
        except (OSError, ssl.SSLError, ValueError) as err:
            self._authorities = previous
            log.warning("certificates.authorities_refused", error=str(err))
            return
        self.context.verify_mode = ssl.CERT_OPTIONAL if authorities else ssl.CERT_NONE

    def check(self) -> bool:
        """Read the files again if they changed, or make a new self-signed pair in time; whether that was done."""
        if self._stamps == self._present_stamps() and not self._is_old():
            return False
        try:
            self._build()
        except (OSError, ssl.SSLError, ValueError) as err:
            log.warning("certificates.not_reloaded", error=str(err))
            return False
        log.info("certificates.reloaded")
        return True

    def _is_old(self) -> bool:
        return self._ends is not None and self._time.now() >= self._ends - _RENEW_BEFORE

    def _listening(self) -> ssl.SSLContext:
        """The context that the socket keeps; each handshake leaves it for the one that fits."""
        context = self._context(self._pair)

        def choose(connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
            connection.context = self._for_name((name or "").lower())

        context.sni_callback = choose
        return context

    def _for_name(self, name: str) -> ssl.SSLContext:
        wildcard = "*." + name.partition(".")[2]
        return self._named.get(name) or self._named.get(wildcard) or self._default

    def _build(self) -> None:
        stamps = self._present_stamps()
        pair = self._own_pair()
        default = self._context(pair)
        named: dict[str, ssl.SSLContext] = {}
        for pair_files in self._sni:
            content = _read(pair_files.cert_file, pair_files.key_file)
            context = self._context(content)
            named |= dict.fromkeys(pair_files.names or _names_in(content), context)
        self._pair, self._default, self._named, self._stamps = pair, default, named, stamps
        self._ends = None if self._serving.tls_cert_file else _end_of(pair)

    def _own_pair(self) -> bytes:
        serving = self._serving
        if serving.tls_cert_file:
            return _read(serving.tls_cert_file, serving.tls_private_key_file)
        if serving.cert_dir:
            return _read(*map(str, self_signed(Path(serving.cert_dir), NAME, _HOSTS, self._time)))
        if self._pair and not self._is_old():
            return self._pair
        with tempfile.TemporaryDirectory(dir=_memory()) as folder:
            return _read(*map(str, self_signed(Path(folder), NAME, _HOSTS, self._time)))

    def _context(self, pair: bytes) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        options_serving.apply_tls(self._serving, context)
        if self._authorities:
            context.load_verify_locations(cadata=self._authorities)
            context.verify_mode = ssl.CERT_OPTIONAL
        # OpenSSL's interface takes paths only. The file is private to this user and gone after the call.
        with tempfile.NamedTemporaryFile(prefix="bedplate-serving-", dir=_memory()) as file:
            file.write(pair)
            file.flush()
            # An encrypted key is an error: without a password OpenSSL would ask for one on the terminal, and wait.
            context.load_cert_chain(file.name, password="")
        return context

    def _present_stamps(self) -> object:
        serving = self._serving
        paths = [serving.tls_cert_file, serving.tls_private_key_file]
        paths += [path for pair_files in self._sni for path in (pair_files.cert_file, pair_files.key_file)]
        return tuple(_stamp(path) for path in paths if path)


def _memory() -> str | None:
    """A folder in memory, where there is one: a container's root is read-only, and a key has no business on a disk."""
    return _MEMORY if os.access(_MEMORY, os.W_OK) else None


def _read(cert_file: str, key_file: str) -> bytes:
    return Path(cert_file).read_bytes() + b"\n" + Path(key_file).read_bytes()


def _stamp(path: str) -> tuple[int, int]:
    try:
        state = os.stat(path)
    except OSError:
        return (0, 0)
    return (state.st_mtime_ns, state.st_ino)


def _end_of(pair: bytes) -> datetime:
    from cryptography import x509

    return x509.load_pem_x509_certificate(pair).not_valid_after_utc


def _names_in(pair: bytes) -> list[str]:
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(pair)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [name.lower() for name in names.get_values_for_type(x509.DNSName)]
