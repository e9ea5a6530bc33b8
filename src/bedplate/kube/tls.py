"""TLS contexts that follow their files: when a certificate or key changes, the next connection uses the new one.

In: a `TLSConfig` and, from an exec plugin, a certificate with its key. Out: `ssl.SSLContext`. A changed context means
new connections, since the connection pool keeps connections of different contexts apart.
"""

from __future__ import annotations

import os
import ssl

from bedplate.core import clock, errors
from bedplate.kube.config import TLSConfig

__all__ = ["TLSContexts"]

CHECK_EVERY_S = 1.0
_PARTIAL_CHAIN = 0x80000
_STRICT = 0x20


class TLSContexts:
    """The context in force for one `TLSConfig`."""

    def __init__(self, config: TLSConfig, time: clock.Clock) -> None:
        self._config = config
        self._time = time
        self._checked_at = float("-inf")
        self._state: object = None
        self._context: ssl.SSLContext | None = None

    def context(self, certificate: tuple[bytes, bytes] | None = None) -> ssl.SSLContext:
        """The context for a request. `certificate` (chain, key) overrides the configured client certificate."""
        now = self._time.monotonic()
        if self._context is not None and now - self._checked_at < CHECK_EVERY_S and self._state_of(certificate):
            return self._context
        self._checked_at = now
        state = (certificate, tuple(_stamp(path) for path in self._files()))
        if self._context is None or state != self._state:
            try:
                self._context = _build(self._config, certificate)
            except (OSError, ssl.SSLError, ValueError) as err:
                if self._context is None:
                    raise errors.Invalid(f"the TLS files cannot be used: {err}") from err
                # Files are being replaced right now (new certificate, old key): keep the last good pair.
                return self._context
            self._state = state
        return self._context

    def _state_of(self, certificate: tuple[bytes, bytes] | None) -> bool:
        return isinstance(self._state, tuple) and self._state[0] == certificate

    def _files(self) -> list[str]:
        return [path for path in (self._config.ca_file, self._config.cert_file, self._config.key_file) if path]


def _stamp(path: str) -> tuple[int, int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def _build(config: TLSConfig, certificate: tuple[bytes, bytes] | None) -> ssl.SSLContext:
    context = ssl.create_default_context(
        cafile=config.ca_file or None, cadata=config.ca_data.decode() if config.ca_data else None
    )
    # As Go verifies: any certificate in the CA file is an anchor, and RFC 5280 corner cases of old cluster CAs pass.
    context.verify_flags |= ssl.VerifyFlags(_PARTIAL_CHAIN)
    context.verify_flags &= ~ssl.VerifyFlags(_STRICT)
    if not config.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        _load_pair(context, *certificate)
    elif config.cert_data or config.cert_file:
        _load_pair(context, _content(config.cert_data, config.cert_file), _content(config.key_data, config.key_file))
    return context


def _content(data: bytes, path: str) -> bytes:
    if data:
        return data
    with open(path, "rb") as file:
        return file.read()


def _load_pair(context: ssl.SSLContext, chain: bytes, key: bytes) -> None:
    import tempfile

    # OpenSSL's interface takes paths only. The file is private to this user and gone after the call.
    with tempfile.NamedTemporaryFile(prefix="bedplate-identity-") as file:
        file.write(chain + b"\n" + key)
        file.flush()
        context.load_cert_chain(file.name, password=_no_password)


def _no_password() -> str:
    raise ValueError("the client key is encrypted; keys with a password are not supported")
