"""One HTTP exchange: a pool of connections, TLS, proxy, timeouts. No retries, limits or meaning.

In: method, URL, headers, bytes. Out: status, headers and the whole body, or `Broken` with the reason and whether the
request may have been sent. Causes are not chained: what a library raises may hold parts of the request, and with them
the token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from bedplate.core import clock, errors
from bedplate.kube import http, proxies, tls
from bedplate.kube.config import TLSConfig

__all__ = ["Broken", "Exchange", "Reach", "Transport"]

CONNECTIONS = 128
# Below the idle timeout of common load balancers, so that a call rarely meets a closing connection.
KEEPALIVE_S = 30.0
CONNECT_S = 10.0
LONGEST_BODY = 64 << 20
KEPT_HEADERS = 16


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
        self._pool = http.Pool(KEEPALIVE_S)
        self._places = asyncio.Semaphore(CONNECTIONS)
        self._origins: dict[str, http.Origin] = {}
        self._encoded: dict[tuple[tuple[str, str], ...], bytes] = {}

    async def close(self) -> None:
        """End all connections, for good: what is asked later is `Broken`."""
        await self._pool.close()

    async def exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, timeout_s: float
    ) -> Exchange:
        """Send once and read the answer to its end. `url` is percent-encoded already. Raises `Broken`."""
        try:
            async with self._places:
                return await self._exchange(method, url, headers, body, timeout_s)
        except http.Failure as err:
            broken = Broken(str(err), is_sent=isinstance(err, http.Lost))
        except (errors.Invalid, ValueError) as err:
            broken = Broken(str(err), is_sent=False)
        # Raised out here, so that the cause is not kept as its context either.
        raise broken

    async def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, timeout_s: float
    ) -> Exchange:
        start = url.find("/", url.find("://") + 3)
        place, target = (url[:start], url[start:]) if start > 0 else (url, "/")
        origin = self._origins.get(place)
        if origin is None:
            origin = self._origins[place] = http.Origin(place, proxies.choose(place, "", self._reach.environ))
        answer = await self._pool.send(
            origin,
            self._tls.context() if origin.needs_tls else None,
            method,
            target,
            self._headers(headers),
            body,
            timeout_s=timeout_s,
            connect_s=min(CONNECT_S, timeout_s / 3),
            limit=LONGEST_BODY,
        )
        try:
            return Exchange(answer.status, answer.headers, await answer.read())
        finally:
            answer.release()

    def _headers(self, headers: Mapping[str, str]) -> bytes:
        """As they are sent; the same ones go with nearly every call."""
        key = (*headers.items(), ("Accept-Encoding", "gzip"))
        encoded = self._encoded.get(key)
        if encoded is None:
            if len(self._encoded) >= KEPT_HEADERS:
                self._encoded.clear()
            encoded = self._encoded[key] = http.encode(key)
        return encoded
