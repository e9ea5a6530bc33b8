"""One HTTP exchange: a pool of connections, TLS, proxy, timeouts. No retries, limits or meaning.

In: method, URL, headers, bytes. Out: status, headers and the whole body, or `Broken` with the reason and whether the
request may have been sent. Causes are not chained: aiohttp's exceptions may hold the headers of the request, and with
them the token.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import aiohttp
from yarl import URL

from bedplate.core import clock, errors
from bedplate.kube import proxies, tls
from bedplate.kube.config import TLSConfig

__all__ = ["Broken", "Exchange", "Reach", "Transport"]

CONNECTIONS = 128
# Below the idle timeout of common load balancers, so that a call rarely meets a closing connection.
KEEPALIVE_S = 30.0
CONNECT_S = 10.0
LONGEST_BODY = 64 << 20


@dataclass(frozen=True, slots=True)
class Reach:
    """How an endpoint is reached: what to trust, and the environment's proxy settings."""

    ca_file: str = ""
    is_insecure: bool = False
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Exchange:
    """What came back, whatever its status; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


class Broken(Exception):
    """No whole answer. `is_sent`: the request may have reached the other side."""

    def __init__(self, reason: str, *, is_sent: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_sent = is_sent


class Transport:
    """Connections to the hosts of one provider; opened with the first exchange, ended by `close`."""

    def __init__(self, reach: Reach, time: clock.Clock) -> None:
        self._reach = reach
        self._tls = tls.TLSContexts(TLSConfig(ca_file=reach.ca_file, verify=not reach.is_insecure), time)
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS, keepalive_timeout=KEEPALIVE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
            # aiohttp would by itself send a GET or DELETE twice when the connection breaks; that is decided above.
            self._session._retry_connection = False
        return self._session

    async def close(self) -> None:
        """End all connections, for good: what is asked later is `Broken`."""
        self._is_closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def exchange(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None, timeout_s: float
    ) -> Exchange:
        """Send once and read the answer to its end. Raises `Broken`."""
        if self._is_closed:
            raise Broken("the client is closed", is_sent=False)
        try:
            return await self._exchange(method, url, headers, body, timeout_s)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, errors.Invalid) as err:
            broken = Broken(_reason(err), is_sent=not _is_before_sending(err))
        # Raised out here, so that the cause is not kept as its context either.
        raise broken

    async def _exchange(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None, timeout_s: float
    ) -> Exchange:
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(CONNECT_S, timeout_s / 3))
        async with self._open().request(
            method,
            url,
            data=body,
            headers=headers,
            ssl=self._tls.context() if url.scheme == "https" else False,
            proxy=proxies.choose(str(url.origin()), "", self._reach.environ) or None,
            timeout=timeout,
            allow_redirects=False,
        ) as answer:
            content = await _read(answer)
            return Exchange(answer.status, {key.lower(): value for key, value in answer.headers.items()}, content)


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    parts, size = [], 0
    async for part in answer.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > LONGEST_BODY:
            raise ValueError(f"the response is longer than {LONGEST_BODY} bytes")
    return b"".join(parts)


def _is_before_sending(err: Exception) -> bool:
    """Whether the connection was never made."""
    never = aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.ClientHttpProxyError
    return isinstance(err, never | errors.Invalid)


def _reason(err: Exception) -> str:
    if isinstance(err, TimeoutError):
        return str(err) or "no response in time"
    if isinstance(err, aiohttp.ClientHttpProxyError):
        return f"the proxy responded with status {err.status}"
    # aiohttp names the object that holds the certificates, which helps no reader.
    return re.sub(r" ssl:<[^>]*>", "", str(err)) or type(err).__name__
