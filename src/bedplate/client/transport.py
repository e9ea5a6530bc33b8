"""Requests to one of several heads: which one, how often, with what credential.

In: a request as a value. Out: the answer, or an error of `bedplate.core.errors`. A head that is not the active one says
where that one is (`Bedplate-Active`), and the request goes there. What may be repeated is repeated after a failure,
with backoff, or after the time the head asked for; what may not is repeated only when it surely was not carried out.

A head's refusals are problems (RFC 9457). Only an answer that says so is absence (404) or refusal; anything that cannot
be understood is `Unavailable`.

    Conflict ── Stale          another user committed the object first: `author`, `revision`
    Denied ──┬─ Unauthorized   the credential was refused (401)
             └─ Forbidden      the caller may not do that (403)
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from bedplate.api.headapi import Problem
from bedplate.client.http import UNIX, Duplex, Headers, Http, Lost, Reply, Streamed, Unreached
from bedplate.core import errors
from bedplate.core.backoff import Backoff
from bedplate.core.clock import Clock, SystemClock
from bedplate.core.logging import get_logger

__all__ = [
    "ACTIVE",
    "ATTEMPTS",
    "Answer",
    "Credential",
    "Forbidden",
    "Request",
    "Stale",
    "Transport",
    "Unauthorized",
    "is_plain",
]

ACTIVE = "Bedplate-Active"
_LOG = get_logger("client")
_LONGEST_WAIT_S = 60.0
_LONGEST_RETRY_S = 600.0
_PROBLEM = msgspec.json.Decoder(Problem)
_STALE = "urn:bedplate:stale"
_INVALID = "urn:bedplate:invalid"
ATTEMPTS = 10
"""Some twenty seconds in all: another head takes over within five."""


@dataclass(frozen=True, slots=True)
class Credential:
    """How a caller proves who it is: a bearer token, or a client certificate; `ca_file` is whom it trusts."""

    token: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    def context(self) -> ssl.SSLContext:
        """TLS with the head's authority alone, or with the machine's when none is named. Raises `Denied`: nothing was
        asked yet, and the same request is good once the file is."""
        name = self.ca_file
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
            name = self.cert_file
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file or None)
        except OSError as err:
            raise errors.Denied(
                f"the credential {name} cannot be read: {err.strerror or err}",
                hint="put the file right, or get another one (of a node: bedplate agent enrol)",
            ) from err
        return context


def is_plain(url: str) -> bool:
    """Whether what is sent to a URL can be read on the way."""
    return urlsplit(url).scheme not in ("https", UNIX)


def _is_url(text: str) -> bool:
    """Whether a text can be the URL of a head at all; others are errors of Python's own, wherever they are used."""
    try:
        parts = urlsplit(text)
        return bool(parts.netloc) if parts.scheme == UNIX else bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _refuse_plain(url: str) -> None:
    """Raise `Denied` for a URL that a token must not be sent to: anybody on the way could take it."""
    host = urlsplit(url).hostname or ""
    try:
        is_here = host == "localhost" or ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        is_here = False
    if is_plain(url) and not is_here:
        raise errors.Denied(
            f"the token is not sent to {url}: the connection is not encrypted", hint="give a URL that begins with https"
        )


@dataclass(frozen=True, slots=True)
class Request:
    """One question. `is_repeatable`: asking twice does the same as asking once."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    is_repeatable: bool = True
    timeout_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Answer(NamedTuple):
    """A success, or 304."""

    status: int
    headers: Headers
    body: bytes

    @property
    def etag(self) -> str:
        return self.headers.get("ETag").removeprefix("W/").strip('"')


class Transport:
    """Open with `async with`. `url` is the head that answered last. `discover` is asked after every failure where heads
    are by now."""

    def __init__(
        self,
        urls: Sequence[str],
        credential: Credential,
        *,
        timeout_s: float = 30.0,
        attempts: int = ATTEMPTS,
        discover: Callable[[], Iterable[str]] = tuple,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._urls = [url.rstrip("/") for url in urls if url]
        if not self._urls:
            raise errors.Invalid("no head was given", hint="give the URL of a head")
        if wrong := next((url for url in self._urls if not _is_url(url)), ""):
            raise errors.Invalid(f"{wrong} is not the URL of a head", hint="write https://HOST:PORT")
        self._credential = credential
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._discover = discover
        self.clock = clock or SystemClock()
        self.rng = rng or random.Random()
        self._http: Http | None = None

    async def __aenter__(self) -> Transport:
        headers = {"Authorization": f"Bearer {self._credential.token}"} if self._credential.token else {}
        self._http = Http(self._credential.context, headers)
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    @property
    def url(self) -> str:
        return self._urls[0]

    async def ask(self, request: Request) -> Answer:
        """The answer to a request. Raises what the head says, or `Unavailable`."""
        backoff = Backoff(first_s=0.1, cap_s=5.0, rng=self.rng)
        last: errors.BedplateError = errors.Unavailable(f"{request} was not tried")
        for attempt in range(self._attempts):
            if attempt:
                wait_s = backoff.next() if not isinstance(last, _Elsewhere) else 0.0
                asked_s = last.retry_after_s if isinstance(last, errors.Retryable) else None
                await self.clock.sleep(min(max(wait_s, asked_s or 0.0), _LONGEST_WAIT_S))
            try:
                return await self._once(request)
            except _Again as again:
                last = again.error
                _LOG.v(2).info("client.repeated", request=str(request), reason=str(last), attempt=attempt + 1)
        raise _plain(last)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Streamed]:
        """One try at an answer that is read as it comes; no time limit but that of the connection."""
        try:
            async with self._opened(self.url).stream(
                request.method,
                self.url + request.path,
                query=request.query,
                headers=request.headers,
                timeout_s=self._timeout_s,
                idle_s=request.timeout_s,
            ) as answer:
                if answer.status != 200:
                    body = b"".join([chunk async for chunk in answer.chunks])
                    raise self._refusal(request, Reply(answer.status, answer.headers, body))
                yield answer
        except ssl.SSLCertVerificationError as err:
            raise _untrusted(self.url, err) from err
        except (Unreached, Lost, TimeoutError) as err:
            self._turn()
            raise errors.Unavailable(f"{request} of {self.url}: {_why(err)}") from err

    @asynccontextmanager
    async def duplex(self, request: Request, *, idle_s: float) -> AsyncIterator[Duplex]:
        """One try at a request whose body and answer go on at the same time; `timeout_s` is the longest wait for the
        answer to begin, `idle_s` that for each part of it. Raises what the head says, or `Unavailable`."""
        try:
            async with self._opened(self.url).duplex(
                self.url + request.path,
                headers=request.headers,
                timeout_s=self._timeout_s,
                answer_s=request.timeout_s or self._timeout_s,
                idle_s=idle_s,
            ) as answer:
                if answer.status != 200:
                    body = b"".join([chunk async for chunk in answer.chunks])
                    raise _plain(self._refusal(request, Reply(answer.status, answer.headers, body)))
                yield answer
        except ssl.SSLCertVerificationError as err:
            raise _untrusted(self.url, err) from err
        except (Unreached, Lost, TimeoutError) as err:
            self._turn()
            raise errors.Unavailable(f"{request} of {self.url}: {_why(err)}") from err

    async def _once(self, request: Request) -> Answer:
        url = self.url
        try:
            reply = await self._opened(url).request(
                request.method,
                url + request.path,
                query=request.query,
                headers=request.headers,
                body=request.body,
                timeout_s=request.timeout_s or self._timeout_s,
            )
        except ssl.SSLCertVerificationError as err:
            raise _untrusted(url, err) from err
        except Unreached as err:
            self._turn()
            raise _Again(errors.Unavailable(f"{url} cannot be reached: {err}", hint="is the head running?")) from err
        except (Lost, TimeoutError) as err:
            self._turn()
            lost = errors.Unavailable(f"{request} of {url}: {_why(err)}")
            if request.is_repeatable:
                raise _Again(lost) from err
            raise lost from err
        if reply.status in (200, 201, 202, 204, 304):
            return Answer(reply.status, reply.headers, reply.body)
        raise self._judged(request, reply)

    def _judged(self, request: Request, reply: Reply) -> Exception:
        """The error of an answer, wrapped in `_Again` where trying once more makes sense."""
        error = self._refusal(request, reply)
        if isinstance(error, _Elsewhere) or reply.status in (429, 503):
            return _Again(error)
        if reply.status in (500, 502, 504) and request.is_repeatable:
            self._turn()
            return _Again(error)
        return error

    def _refusal(self, request: Request, reply: Reply) -> errors.BedplateError:
        retry = reply.headers.get("Retry-After")
        # Whatever it says, a head is asked again before it is forgotten.
        retry_s = min(float(retry[:9]), _LONGEST_RETRY_S) if retry.isascii() and retry.isdecimal() else None
        error = _from_answer(reply.status, reply.body, str(request), retry_s)
        active = reply.headers.get(ACTIVE).rstrip("/")
        if reply.status == 503:
            is_weaker = self.url.startswith("https:") and not active.startswith("https:")
            if active != self.url and not is_weaker and _is_url(active):
                self._prefer(active)
                return _Elsewhere(str(error), hint=error.hint)
            self._turn()
        return error

    def _prefer(self, url: str) -> None:
        self._urls = [url, *(known for known in self._urls if known != url)]

    def _turn(self) -> None:
        """Ask another head next: one that was found since, or the next in the row."""
        urls = [url.rstrip("/") for url in self._discover() if url]
        new = [url for url in dict.fromkeys(urls) if url not in self._urls]
        self._urls = [*new, *self._urls[1:], self._urls[0]]

    def _opened(self, url: str) -> Http:
        """What asks a head at that URL."""
        if self._http is None:
            raise errors.Invalid("the client is not open", hint="use it with async with")
        if self._credential.token:
            _refuse_plain(url)
        return self._http


class _Elsewhere(errors.Unavailable):
    """Another head is active; the request is sent to it next."""


class _Again(Exception):
    """The request may be tried once more."""

    def __init__(self, error: errors.BedplateError) -> None:
        super().__init__(str(error))
        self.error = error


def _plain(error: errors.BedplateError) -> errors.BedplateError:
    if isinstance(error, _Elsewhere):
        return errors.Unavailable(str(error), hint=error.hint)
    return error


def _untrusted(url: str, err: ssl.SSLCertVerificationError) -> errors.Denied:
    return errors.Denied(
        f"{url} presents a certificate that is not trusted: {err.verify_message or err}",
        hint="give the authority of that head (its ca.crt)",
    )


def _why(err: BaseException) -> str:
    if isinstance(err, TimeoutError | asyncio.TimeoutError):
        return "no response in time"
    return str(err) or type(err).__name__


class Stale(errors.Conflict):
    """Another user committed the object first; `author` and `revision` identify that commit."""

    def __init__(self, message: str, *, hint: str = "", author: str = "", revision: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.author = author
        self.revision = revision


class Unauthorized(errors.Denied):
    """The credential is not valid."""


class Forbidden(errors.Denied):
    """The caller is authenticated but not authorized."""


def _from_answer(status: int, body: bytes, what: str, retry_after_s: float | None = None) -> errors.BedplateError:
    """The error in an answer; `what` says what was tried, for answers that do not speak for themselves."""
    try:
        problem = _PROBLEM.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return errors.Unavailable(
            f"{what} failed with status {status} and no reason was given",
            hint="does the address belong to a head?",
            retry_after_s=retry_after_s,
        )
    text, hint = problem.detail or problem.title, problem.hint
    if problem.type == _STALE:
        return Stale(text, hint=hint, author=problem.author, revision=problem.revision)
    if problem.type == _INVALID or status in (400, 413, 414, 415, 422):
        return errors.Invalid(text, hint=hint, problems=problem.problems)
    if status in (409, 412, 428):
        return errors.Conflict(text, hint=hint)
    if status == 404:
        return errors.NotFound(text, hint=hint)
    if status == 401:
        return Unauthorized(text, hint=hint)
    if status == 403:
        return Forbidden(text, hint=hint)
    return errors.Unavailable(text or f"{what} failed with status {status}", hint=hint, retry_after_s=retry_after_s)
