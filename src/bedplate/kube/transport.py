"""HTTP to one API server: credentials, TLS, proxy, rate limit, retries, metrics, request log.

In: a `Request` (method, path, query, body). Out: a `Response` with the whole body, or a `Stream` of chunks; errors of
`kube.errors`. It knows nothing of objects. Sent again are: reads whose connection broke, anything that a 429 or 503
with Retry-After postponed, and once after a 401 when the credentials could be renewed. HTTP/1.1: a watch holds a
connection of its own.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

from bedplate.core import clock
from bedplate.core.backoff import Backoff, TokenBucket
from bedplate.core.errors import Invalid
from bedplate.core.logging import get_logger
from bedplate.kube import credentials, errors, http, proxies, tls
from bedplate.kube.config import ClientConfig
from bedplate.kube.metrics import RequestMetrics

__all__ = ["Request", "Response", "Stream", "Transport"]

log = get_logger("kube")

MAX_RETRIES = 10
MAX_READ_RETRIES = 3
LONGEST_WAIT_S = 30.0
MAX_CONCURRENT = 100
# Below the idle timeout of API servers and of common load balancers, so that a write rarely meets a closing connection.
KEEPALIVE_S = 30.0
KEPT_HEADERS = 64
LOGGED_BODY_BYTES = 1024
_CONFIDENTIAL = frozenset({"secrets", "tokenreviews"})


@dataclass(slots=True)
class Request:
    """One request. `target` words its errors.

    `is_limited`: it counts against the rate limit. Watches and the later pages of a list do not, see `_throttle`.
    `guard` is called before each time it is sent, after all waiting, and may raise to prevent that.
    """

    target: errors.Target
    query: list[tuple[str, str]] = field(default_factory=list)
    body: bytes | None = None
    content_type: str = "application/json"
    accept: str = "application/json"
    timeout_s: float | None = None
    is_watch: bool = False
    is_limited: bool = True
    guard: Callable[[], None] | None = None

    @property
    def is_secret(self) -> bool:
        """Whether its bodies carry secrets or tokens, which never reach a log."""
        parts = self.target.path.split("/")
        return parts[-1] == "token" or not _CONFIDENTIAL.isdisjoint(parts)


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer."""

    code: int
    body: bytes


@dataclass(slots=True)
class Stream:
    """An answer under way: `chunks` yields what arrives until the server ends it."""

    code: int
    _answer: http.Answer
    _target: errors.Target

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._answer.chunks():
                yield chunk
        except http.Failure as err:
            raise errors.Interrupted(f"{self._target}: the stream was cut off: {err}") from err


class Transport:
    """A pool of connections to one server. Open with `async with`."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        time: clock.Clock,
        rng: random.Random,
        metrics: RequestMetrics | None = None,
    ) -> None:
        self.config = config
        self.host = urlsplit(config.server).netloc
        self._time = time
        self._rng = rng
        self._metrics = metrics
        self._credentials = credentials.make(config, time)
        proxy = proxies.choose(config.server, config.proxy_url, config.environ)
        self._origin = _origin(config, proxy)
        self._prefix = urlsplit(config.server).path.rstrip("/")
        self._tls = tls.TLSContexts(config.tls, time) if self._origin.needs_tls else None
        self._limiter = TokenBucket(config.qps, config.burst, time)
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)
        self._headers = [
            *credentials.impersonation_headers(config.impersonate),
            ("User-Agent", config.user_agent),
        ]
        self._login = _login(config.server)
        self._encoded: dict[tuple[str, str, str], bytes] = {}
        self._compress = config.compress if config.compress is not None else not _is_near(config.server)
        self._pool: http.Pool | None = None
        self._warned: set[str] = set()

    async def __aenter__(self) -> Transport:
        self._pool = http.Pool(KEEPALIVE_S)
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()

    async def request(self, request: Request) -> Response:
        """Send, retry where that is safe, and return an answer below 400. Raises errors of `kube.errors`."""
        answer = await self._attempts(request)
        try:
            return Response(answer.status, await self._read(request, answer))
        finally:
            self._dismiss(request, answer)

    @contextlib.asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """As `request`, but hand out the body while it arrives."""
        answer = await self._attempts(request)
        try:
            yield Stream(answer.status, answer, request.target)
        finally:
            self._dismiss(request, answer)

    async def _attempts(self, request: Request) -> http.Answer:
        """An answer below 300, however many tries it takes; the caller must dismiss it."""
        target, renewed, retries = request.target, False, 0
        backoff: Backoff | None = None
        while True:
            await self._throttle(request)
            identity = await self._credentials.current()
            try:
                answer = await self._send(request, identity)
            except errors.ConnectionFailed:
                if target.method != "GET" or request.is_watch or retries >= MAX_READ_RETRIES:
                    raise
                backoff = backoff or self._backoff()
                wait_s, code = backoff.next(), "<error>"
            else:
                if answer.status < 300:
                    return answer
                error = await self._error(request, answer)
                if error.code == 401 and not renewed and await self._credentials.renew(identity):
                    renewed = True
                    continue
                backoff = backoff or self._backoff()
                postponed_s = _postponement(target.method, error, backoff)
                allowed = MAX_RETRIES if error.retry_after_s is not None else MAX_READ_RETRIES
                if postponed_s is None or retries >= allowed:
                    raise error
                wait_s, code = postponed_s, str(error.code)
            retries += 1
            log.v(4).info("kube.retry", request=str(target), code=code, wait_s=round(wait_s, 3), retry=retries)
            if self._metrics is not None:
                self._metrics.retried(code, target.method, self.host)
            await self._time.sleep(wait_s)

    def _backoff(self) -> Backoff:
        return Backoff(first_s=0.2, cap_s=5.0, jitter=1.0, rng=self._rng)

    async def _throttle(self, request: Request) -> None:
        # As in client-go, opening a watch is not limited: it must not queue behind the writes that wait for its events.
        # And a list counts once, however many pages it has: a large cluster would else wait for its own paging.
        if request.is_watch or not request.is_limited:
            return
        waited_s = await self._limiter.wait()
        if self._metrics is not None:
            self._metrics.waited(request.target.method, self.host, waited_s)
        if waited_s > 1.0:
            log.v(2).info("kube.throttled", request=str(request.target), waited_s=round(waited_s, 2))

    async def _send(self, request: Request, identity: credentials.Identity) -> http.Answer:
        """Send once. A slot is held from here until `_dismiss`, not while a retry waits: others may go on meanwhile."""
        if request.is_watch:
            return await self._send_now(request, identity)
        await self._slots.acquire()
        try:
            return await self._send_now(request, identity)
        except BaseException:
            self._slots.release()
            raise

    def _dismiss(self, request: Request, answer: http.Answer) -> None:
        # A connection whose body was not read to its end is closed by this, and not used again.
        answer.release()
        if not request.is_watch:
            self._slots.release()

    async def _send_now(self, request: Request, identity: credentials.Identity) -> http.Answer:
        if self._pool is None:
            raise RuntimeError("the client is not open: use it with `async with`")
        target = request.target
        # The path is quoted already.
        path = self._prefix + target.path
        if request.query:
            path += _query(tuple(request.query))
        total_s = request.timeout_s if request.timeout_s is not None else self.config.timeout_s
        context = self._tls.context(identity.certificate) if self._tls is not None else None
        if request.guard is not None:
            request.guard()
        started, code = self._time.monotonic(), "<error>"
        try:
            answer = await self._pool.send(
                self._origin,
                context,
                target.method,
                path,
                self._request_headers(request, identity),
                request.body,
                timeout_s=total_s,
                connect_s=self.config.connect_timeout_s,
            )
            code = str(answer.status)
        except http.Failure as err:
            raise errors.ConnectionFailed(
                f"{target}: no response from {self.config.server}: {err}", hint="check the address and the network"
            ) from err
        finally:
            seconds = self._time.monotonic() - started
            if self._metrics is not None:
                self._metrics.observe(code, target.method, self.host, seconds)
            if log.shows(6):
                self._log_request(request, path, code, seconds)
        self._warn(answer)
        return answer

    def _request_headers(self, request: Request, identity: credentials.Identity) -> bytes:
        encoding = "gzip" if self._compress and not request.is_watch else "identity"
        content_type = request.content_type if request.body is not None else ""
        key = (identity.authorization, f"{request.accept} {encoding}", content_type)
        encoded = self._encoded.get(key)
        if encoded is None:
            headers = [*self._headers, ("Accept", request.accept), ("Accept-Encoding", encoding)]
            if authorization := identity.authorization or self._login:
                headers.append(("Authorization", authorization))
            if content_type:
                headers.append(("Content-Type", content_type))
            if len(self._encoded) >= KEPT_HEADERS:
                self._encoded.clear()
            encoded = self._encoded[key] = http.encode(headers)
        return encoded

    async def _read(self, request: Request, answer: http.Answer) -> bytes:
        try:
            body = await answer.read()
        except http.Failure as err:
            raise errors.Interrupted(f"{request.target}: the response was cut off: {err}") from err
        if log.shows(8):
            log.info("kube.response", code=answer.status, body=_excerpt(body, request.is_secret))
        return body

    async def _error(self, request: Request, answer: http.Answer) -> errors.ApiError:
        try:
            body = await self._read(request, answer)
        except errors.Interrupted:
            body = b""
        finally:
            self._dismiss(request, answer)
        return errors.from_response(
            request.target, answer.status, body, _retry_after(answer.headers.get("retry-after", ""))
        )

    def _log_request(self, request: Request, path: str, code: str, seconds: float) -> None:
        url = f"{'https' if self._origin.is_tls else 'http'}://{self._origin.authority}{path}"
        values: dict[str, Any] = {"method": request.target.method, "url": url, "code": code}
        if log.shows(8) and request.body is not None:
            values["body"] = _excerpt(request.body, request.is_secret)
        log.info("kube.request", milliseconds=round(seconds * 1000), **values)

    def _warn(self, answer: http.Answer) -> None:
        for text in answer.all(b"warning"):
            # A server repeats its deprecation warnings with every request; people need each once.
            if text not in self._warned and len(self._warned) < 1000:
                self._warned.add(text)
                log.warning("kube.server_warning", text=text.partition('"')[2].rstrip('"') or text)


@lru_cache(maxsize=64)
def _query(pairs: tuple[tuple[str, str], ...]) -> str:
    """As it stands behind the path. Writes have few different ones."""
    return "?" + urlencode(pairs)


def _postponement(method: str, error: errors.ApiError, backoff: Backoff) -> float | None:
    """How long to wait before sending again; None when that is not safe or not worth it."""
    if error.retry_after_s is not None and error.code in (429, 503):
        return error.retry_after_s if error.retry_after_s <= LONGEST_WAIT_S else None
    if method == "GET" and error.code in (502, 503, 504):
        return backoff.next()
    return None


def _retry_after(text: str) -> float | None:
    """Seconds; API servers send whole seconds, never a date."""
    return float(text) if text.isdigit() else None


def _excerpt(body: bytes, is_secret: bool) -> str:
    return f"<{len(body)} bytes>" if is_secret else body[:LOGGED_BODY_BYTES].decode("utf-8", "replace")


def _is_near(server: str) -> bool:
    host = urlsplit(server).hostname or ""
    return host == "localhost" or proxies.is_bypassed(host, 0, "")


def _origin(config: ClientConfig, proxy: str) -> http.Origin:
    try:
        return http.Origin(config.server, proxy, config.tls.server_name)
    except ValueError as err:
        raise Invalid(f"the address of the API server cannot be used: {err}") from err


def _login(server: str) -> str:
    """The header that a name and password in the address stand for."""
    parts = urlsplit(server)
    if parts.username is None:
        return ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"
