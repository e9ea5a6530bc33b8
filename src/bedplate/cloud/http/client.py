"""The shared cloud HTTP client: one endpoint, one token source, one set of limits.

In: a `Call`. Out: an `Answer`, or an error of `http.errors`. Between the two: the limits of `limits`, the breaker, the
write guard before everything that changes something, retries where they are safe, one renewal of the token after a
401, metrics, and the removal of secrets from every text. It knows no operation of any cloud and judges no 404.

The timeout covers one operation with all its attempts; time spent waiting for our own limits is not counted, because a
thousand nodes at a slow rate wait for minutes and are not late for that.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from bedplate.cloud.http import errors, retries
from bedplate.cloud.http.limits import Limits
from bedplate.cloud.http.retries import Breaker
from bedplate.cloud.http.secrets import Scrubber, Secret
from bedplate.cloud.http.tokens import TokenSource, TokenUnavailable
from bedplate.cloud.http.transport import Broken, Exchange, Reach, Transport
from bedplate.cloud.metrics import CloudApiMetrics
from bedplate.core import clock
from bedplate.core.errors import Invalid
from bedplate.core.logging import get_logger

__all__ = ["Answer", "Call", "Client", "Expected", "Options", "endpoint_problem", "path_of"]

Expected = Literal["object", "array", "nothing"]
_READS = frozenset({"GET", "HEAD"})
log = get_logger("cloud.http")
LONGEST_MESSAGE = 300
# Read for a message and cleaned before it is cut: half a token at the cut would not be recognised.
LONGEST_TEXT = 1 << 16
_REQUEST_IDS = ("x-request-id", "x-correlation-id", "request-id")


@dataclass(frozen=True, slots=True)
class Call:
    """One operation. `operation` is its name in metrics and logs (the API document's operationId).

    `path` stands after the endpoint, begins with `/` and is percent-encoded already (`path_of` does it); `query` may
    name a key several times. `body` is sent as JSON. `expects`: an answer of another JSON type is a `Protocol` error.
    """

    method: str
    path: str
    operation: str
    query: tuple[tuple[str, str], ...] = ()
    body: Any = None
    expects: Expected = "object"

    @property
    def is_mutating(self) -> bool:
        """Whether it changes something in the cloud."""
        return self.method not in _READS


@dataclass(frozen=True, slots=True)
class Answer:
    """A success. `data` is the decoded body (None where nothing was expected); header names are in lower case.

    `is_dry_run`: nothing was sent, because this process only shows what it would do; `data` is None then.
    """

    status: int
    headers: Mapping[str, str]
    data: Any
    is_dry_run: bool = False


def path_of(*segments: str) -> str:
    """A path of these segments, each percent-encoded, so that no name can lead to another operation.

    Raises ValueError for an empty segment and for `.` and `..`, which servers resolve even when encoded.
    """
    for segment in segments:
        if not segment.strip("."):
            raise ValueError(f"{segment!r} must not be part of a path")
    return "".join("/" + quote(segment, safe="") for segment in segments)


@dataclass(frozen=True, slots=True)
class Options:
    """What does not change while a client lives. `endpoint` may have a path; `headers` go with every call."""

    provider: str
    endpoint: str
    reach: Reach = field(default_factory=Reach)
    version: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    qps: float = 0.0
    burst: int = 200
    timeout_s: float = 30.0
    is_dry_run: bool = False
    guard: Callable[[], None] = lambda: None

    @property
    def user_agent(self) -> str:
        return f"{self.provider}-cloud-controller-manager/{self.version or 'dev'}"


def endpoint_problem(endpoint: str) -> str:
    """Why this is not an endpoint; empty when it is one. The text does not repeat it, as it may hold a password."""
    try:
        parts = urlsplit(endpoint)
        has_host = bool(parts.hostname) and parts.port is not False
    except ValueError:
        return "must be a URL"
    if parts.scheme not in ("http", "https") or not has_host:
        return "must be a URL that begins with https:// (or http://) and names a host"
    if parts.username or parts.password:
        return "must not contain a user name or password"
    return "must not have a query or fragment" if parts.query or parts.fragment else ""


class Client:
    """Calls to one cloud. Made without I/O; connections open with the first call and end with `close`."""

    def __init__(
        self,
        options: Options,
        tokens: TokenSource,
        *,
        metrics: CloudApiMetrics,
        time: clock.Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if problem := endpoint_problem(options.endpoint):
            raise Invalid(f"the endpoint of {options.provider} {problem}")
        self.options = options
        self._endpoint = options.endpoint.rstrip("/")
        self._tokens = tokens
        self._metrics = metrics
        self._time = time if time is not None else clock.SystemClock()
        self._rng = rng if rng is not None else random.Random()
        self._transport = Transport(options.reach, self._time)
        self._limits = Limits(options.qps, options.burst, self._time)
        self._breaker = Breaker(self._time)
        self._scrubber = Scrubber()

    async def close(self) -> None:
        """End all connections."""
        await self._tokens.close()
        await self._transport.close()

    async def call(self, call: Call) -> Answer:
        """Do it. Raises errors of `http.errors`, and what the guard raises."""
        if call.is_mutating and self.options.is_dry_run:
            log.info(
                "cloud.dry_run",
                provider=self.options.provider,
                operation=call.operation,
                request=f"{call.method} {call.path}",
                query=list(call.query),
                body=call.body,
            )
            return Answer(0, {}, None, is_dry_run=True)
        body = msgspec.json.encode(call.body) if call.body is not None else None
        return await self._attempts(call, body)

    async def _attempts(self, call: Call, body: bytes | None) -> Answer:
        left_s, attempt, is_renewed = self.options.timeout_s, 1, False
        error: errors.ApiError
        while True:
            # Asked before waiting for the limits, so that calls fail fast, and again before sending.
            self._break(call, self._breaker.rests_for() or None)
            await self._admit(call, left_s)
            try:
                token = await self._token(call)
            except BaseException:
                self._limits.leave(is_mutating=call.is_mutating)
                raise
            started = self._time.monotonic()
            try:
                return await self._attempt(call, body, token, left_s)
            except errors.Unauthorized as err:
                if is_renewed or not await self._tokens.renew(token):
                    raise
                is_renewed, error, wait_s = True, err, 0.0
            except errors.ApiError as err:
                self._heed(call, err)
                if attempt >= retries.ATTEMPTS or not retries.is_repeatable(err):
                    raise
                error, wait_s, attempt = err, retries.delay_s(attempt, err, self._rng), attempt + 1
            left_s -= self._time.monotonic() - started + wait_s
            if left_s <= 0:
                raise error
            self._log_retry(call, error, wait_s)
            await self._time.sleep(wait_s)

    async def _admit(self, call: Call, patience_s: float) -> None:
        """Wait for the limits; refuse at once when the endpoint asked for a longer pause than this call can wait."""
        started = self._time.monotonic()
        try:
            await self._limits.admit(is_mutating=call.is_mutating, patience_s=patience_s)
            return
        except OverflowError:
            pause_s = self._limits.paused_s()
        finally:
            self._metrics.waited(self.options.provider, self._time.monotonic() - started)
        raise errors.RateLimited(self._subject(call), f"the cloud asked to wait {pause_s:.0f}s", retry_after_s=pause_s)

    async def _token(self, call: Call) -> Secret:
        try:
            token = await self._tokens.current()
        except TokenUnavailable as err:
            reason = self._scrubber.clean(str(err))
        else:
            self._scrubber.learn(token)
            return token
        raise errors.Unauthorized(self._subject(call), reason, hint="check where the token comes from")

    async def _attempt(self, call: Call, body: bytes | None, token: Secret, timeout_s: float) -> Answer:
        """Send once, and give back the place that `_admit` gave."""
        try:
            if call.is_mutating:
                self.options.guard()
            self._break(call, self._breaker.refuses_for())
            exchange = await self._exchange(call, body, token, timeout_s)
        finally:
            self._limits.leave(is_mutating=call.is_mutating)
        return self._judge(call, exchange)

    def _break(self, call: Call, refused_s: float | None) -> None:
        if refused_s is not None:
            raise errors.Transport(
                self._subject(call),
                "not sent, because the last attempts got no response",
                is_sent=False,
                is_fail_fast=True,
                retry_after_s=refused_s,
            )

    async def _exchange(self, call: Call, body: bytes | None, token: Secret, timeout_s: float) -> Exchange:
        options, url = self.options, self._endpoint + call.path
        if call.query:
            url += "?" + urlencode(call.query)
        headers = {**options.headers, "User-Agent": options.user_agent, "Accept": "application/json"}
        headers["Authorization"] = f"Bearer {token.reveal()}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        started, code, is_over = self._time.monotonic(), "<error>", False
        try:
            exchange = await self._transport.exchange(call.method, url, headers, body, timeout_s)
            code, is_over = str(exchange.status), True
            self._breaker.succeeded()
            if exchange.status >= 500:
                self._limits.strained()
            elif exchange.status != 429 and not call.is_mutating:
                self._limits.answered(call.operation, self._time.monotonic() - started)
            return exchange
        except Broken as err:
            is_over = True
            self._breaker.failed()
            self._limits.strained()
            reason, is_sent = self._scrubber.clean(err.reason), err.is_sent
        finally:
            if not is_over:
                self._breaker.abandoned()
            seconds = self._time.monotonic() - started
            self._metrics.observe(options.provider, call.operation, code, seconds)
            if log.shows(6):
                log.info(
                    "cloud.request",
                    provider=options.provider,
                    request=f"{call.method} {call.path}",
                    code=code,
                    milliseconds=round(seconds * 1000),
                )
        raise errors.Transport(self._subject(call), reason, is_sent=is_sent)

    def _judge(self, call: Call, exchange: Exchange) -> Answer:
        """An answer, or the error that it is."""
        # A read that is answered with another success (206: a part; 203: a proxy's words) is not answered.
        if not (200 <= exchange.status < 300 if call.is_mutating else exchange.status == 200):
            raise self._error(call, exchange)
        if call.expects == "nothing":
            data = None
        else:
            data, problem = _decode(exchange, call.expects)
            if problem:
                subject = self._subject(call, exchange)
                raise errors.Protocol(subject, f"status {exchange.status}, but {problem}", hint="check the endpoint")
        self._metrics.succeeded(self.options.provider, self._time.now().timestamp())
        return Answer(exchange.status, exchange.headers, data)

    def _error(self, call: Call, exchange: Exchange) -> errors.ApiError:
        data, problem = _decode(exchange, None)
        data = None if problem else self._scrubber.clean_data(data)
        text = _message(data) or (exchange.body[:LONGEST_TEXT].decode("utf-8", "replace") if problem else "")
        wait_s = retries.retry_after_s(exchange.headers.get("retry-after", ""), self._time.now())
        return errors.of_status(self._subject(call, exchange, text, data), wait_s)

    def _subject(
        self, call: Call, exchange: Exchange | None = None, text: str = "", data: Any = None
    ) -> errors.Subject:
        message = " ".join(self._scrubber.clean(text).split())[:LONGEST_MESSAGE]
        status = exchange.status if exchange is not None else 0
        request_id = self._scrubber.clean(_request_id(exchange, data)) if exchange is not None else ""
        return errors.Subject(self.options.provider, call.method, call.path, status, request_id, message, data)

    def _heed(self, call: Call, error: errors.ApiError) -> None:
        """Slow down and pause as the endpoint asks."""
        if error.status == 429:
            self._limits.refused(is_mutating=call.is_mutating)
        if (error.status in (408, 429) or error.status >= 500) and error.retry_after_s is not None:
            self._limits.pause(error.retry_after_s)

    def _log_retry(self, call: Call, error: errors.ApiError, wait_s: float) -> None:
        log.v(4).info(
            "cloud.retry",
            provider=self.options.provider,
            request=f"{call.method} {call.path}",
            reason=str(error),
            wait_s=round(wait_s, 3),
        )


def _request_id(exchange: Exchange, data: Any) -> str:
    in_header = next((exchange.headers[name] for name in _REQUEST_IDS if name in exchange.headers), "")
    in_body = data.get("request_id") if isinstance(data, dict) else None
    return in_header or (in_body if isinstance(in_body, str) else "")


def _decode(exchange: Exchange, expects: Expected | None) -> tuple[Any, str]:
    """The body as a JSON value, and what is wrong with it (empty when nothing is)."""
    kind = exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        return None, f"the content type is {kind[:80] or 'missing'!r} instead of JSON"
    try:
        data = msgspec.json.decode(exchange.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None, "the body is not JSON"
    expected = {"object": dict, "array": list}.get(expects or "")
    if expected is not None and not isinstance(data, expected):
        return None, f"the body is JSON but not of type {expects}"
    return data, ""


def _message(data: Any) -> str:
    """What the server says, in the fields that APIs commonly use."""
    if not isinstance(data, dict):
        return ""
    for key in ("message", "error_description", "error", "detail"):
        if isinstance(data.get(key), str):
            return str(data[key])
    return ""
