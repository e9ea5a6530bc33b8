"""Who a request comes from: header credentials that renew themselves.

In: an `AuthConfig`. Out: an `Identity` per request (authorization header, perhaps a client certificate). Token files
are read again after a minute and on refusal; exec plugins run again before their credential expires and on refusal.
"""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bedplate.core import clock
from bedplate.kube import errors
from bedplate.kube.config import AuthConfig, ClientConfig, Impersonation, TokenSource

__all__ = [
    "Credentials",
    "Identity",
    "StaticCredentials",
    "SuppliedTokens",
    "TokenFile",
    "impersonation_headers",
    "make",
]

TOKEN_FILE_PERIOD_S = 60.0


@dataclass(frozen=True, slots=True)
class Identity:
    """What one request presents."""

    authorization: str = field(default="", repr=False)
    certificate: tuple[bytes, bytes] | None = field(default=None, repr=False)


class Credentials(Protocol):
    """A source of identities."""

    async def current(self) -> Identity:
        """The identity to use now, renewed if it is about to expire."""
        ...

    async def renew(self, refused: Identity) -> bool:
        """The server answered 401 to `refused`: get another. False when there is no other."""
        ...


class StaticCredentials:
    """A token or password that never changes, or nothing."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    async def current(self) -> Identity:
        return self._identity

    async def renew(self, refused: Identity) -> bool:
        return refused != self._identity


class TokenFile:
    """A bearer token in a file that the kubelet rotates (projected service account tokens)."""

    def __init__(self, path: str, fallback: str, time: clock.Clock) -> None:
        self._path = Path(path)
        self._time = time
        self._identity = Identity(f"Bearer {fallback}") if fallback else None
        self._read_at = float("-inf")

    async def current(self) -> Identity:
        if self._identity is None or self._time.monotonic() - self._read_at >= TOKEN_FILE_PERIOD_S:
            await self._read()
        assert self._identity is not None
        return self._identity

    async def renew(self, refused: Identity) -> bool:
        if self._identity == refused:
            await self._read()
        return self._identity != refused

    async def _read(self) -> None:
        try:
            token = (await asyncio.to_thread(self._path.read_text)).strip()
            if not token:
                raise ValueError("it is empty")
        except (OSError, ValueError) as err:
            if self._identity is None:
                raise errors.CredentialsFailed(f"token file {self._path} cannot be used: {err}") from err
            # The last token may still be good; the server will say when it is not.
            return
        self._identity = Identity(f"Bearer {token}")
        self._read_at = self._time.monotonic()


class SuppliedTokens:
    """Bearer tokens from code that knows when they expire (a service account's, by TokenRequest)."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source

    async def current(self) -> Identity:
        return Identity(f"Bearer {await self._source('')}")

    async def renew(self, refused: Identity) -> bool:
        old = refused.authorization.removeprefix("Bearer ")
        return await self._source(old) != old


def make(config: ClientConfig, time: clock.Clock) -> Credentials:
    """The credentials that a configuration asks for."""
    from bedplate.kube import execplugin

    auth: AuthConfig = config.auth
    if auth.token_source is not None:
        return SuppliedTokens(auth.token_source)
    if auth.token_file:
        return TokenFile(auth.token_file, auth.token, time)
    if auth.token:
        return StaticCredentials(Identity(f"Bearer {auth.token}"))
    if auth.username or auth.password:
        pair = base64.b64encode(f"{auth.username}:{auth.password}".encode()).decode()
        return StaticCredentials(Identity(f"Basic {pair}"))
    if auth.exec is not None:
        return execplugin.ExecCredentials(config, auth.exec, time)
    return StaticCredentials(Identity())


def impersonation_headers(impersonate: Impersonation) -> list[tuple[str, str]]:
    """The headers of impersonation."""
    if not impersonate.user:
        return []
    headers = [("Impersonate-User", impersonate.user)]
    if impersonate.uid:
        headers.append(("Impersonate-Uid", impersonate.uid))
    headers += [("Impersonate-Group", group) for group in impersonate.groups]
    for key, values in impersonate.extra.items():
        headers += [(f"Impersonate-Extra-{_header_key(key)}", value) for value in values]
    return headers


def _header_key(key: str) -> str:
    """A key as a header name: everything that a header name cannot hold, and `%`, is percent-encoded."""
    allowed = "!#$&'*+-.^_`|~"
    return "".join(
        char
        if char.isascii() and (char.isalnum() or char in allowed)
        else "".join(f"%{byte:02X}" for byte in char.encode())
        for char in key
    )
