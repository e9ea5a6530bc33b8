"""HTTP/1.1 over asyncio's streams: as much of it as a head's API needs, and no more.

In: a URL, of a host or of a socket on this machine (`http+unix://`, then its quoted path), a method, headers, a body.
Out: status, headers and body, whole or as it comes. Connections are kept and used again. There are no redirects,
cookies, proxies or uploads by parts. The larger HTTP library that the daemon serves with would cost every short command
of a shell 150 ms of CPU, which is more than all the rest of it.

    Unreached    there is no connection: the request was surely not carried out
    Lost         the connection ended before the answer was whole: nobody knows
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit

from bedplate.core import errors

__all__ = ["UNIX", "Duplex", "Headers", "Http", "Lost", "Reply", "Streamed", "Unreached"]

_LARGEST_HEAD = 1 << 17
_LARGEST_BODY = 512 << 20
_CHUNK = 1 << 16
_KEPT = 64
_GZIP = 16 + zlib.MAX_WBITS
_BODILESS = (204, 304)
UNIX = "http+unix"
_LONGEST_PATH = 100


class Unreached(Exception):
    """No connection could be made."""


class Lost(Exception):
    """The connection ended, or spoke no HTTP, before the answer was whole."""


class Headers(dict[str, str]):
    """Names are looked up in any case."""

    def get(self, name: str, default: str = "") -> str:  # type: ignore[override]
        return super().get(name.lower(), default)


class Reply(NamedTuple):
    """A whole answer."""

    status: int
    headers: Headers
    body: bytes


@dataclass(slots=True)
class Streamed:
    """An answer whose body is read as it comes."""

    status: int
    headers: Headers
    chunks: AsyncIterator[bytes]


@dataclass(slots=True)
class Duplex:
    """A request and its answer that go on at the same time. `send` and `end` are the request's body. Whichever way it
    goes, `_idle_s` without a byte is `Lost`: a peer whose machine went down does not say so."""

    status: int
    headers: Headers
    chunks: AsyncIterator[bytes]
    _writer: asyncio.StreamWriter
    _idle_s: float

    async def send(self, data: bytes) -> None:
        """Send a part of the body. Raises `Lost`."""
        await self._write(b"%x\r\n" % len(data), data, b"\r\n")

    async def end(self) -> None:
        """Say that nothing follows. Raises `Lost`."""
        await self._write(b"0\r\n\r\n")

    async def _write(self, *parts: bytes) -> None:
        try:
            with _told():
                self._writer.writelines(parts)
                async with asyncio.timeout(self._idle_s):
                    await self._writer.drain()
        except TimeoutError:
            raise Lost(f"it took nothing for {self._idle_s:g} s") from None


class _Link(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def close(self) -> None:
        self.writer.transport.abort()

    @property
    def is_usable(self) -> bool:
        return not self.writer.is_closing() and not self.reader.at_eof()


class Http:
    """`tls` makes the context when the first connection needs it; `headers` go with every request."""

    def __init__(self, tls: Callable[[], ssl.SSLContext], headers: Mapping[str, str]) -> None:
        self._tls = tls
        self._context: ssl.SSLContext | None = None
        self._headers = dict(headers)
        self._idle: dict[str, list[_Link]] = {}

    async def close(self) -> None:
        """Drop all idle connections."""
        for links in self._idle.values():
            for link in links:
                link.close()
        self._idle.clear()
        await asyncio.sleep(0)  # sockets are closed by the loop's next round

    async def request(
        self,
        method: str,
        url: str,
        *,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes | None,
        timeout_s: float,
    ) -> Reply:
        """The answer, whole, to a request that is sent once.

        Raises `Unreached`, `Lost`, TimeoutError, and what TLS says of a certificate.
        """
        target = urlsplit(url)
        message = _request(method, target, query, {**self._headers, "Accept-Encoding": "gzip", **headers}, body)
        async with asyncio.timeout(timeout_s):
            link = self._kept(target) or await self._connect(target)
            return await self._ask(target, link, message, method)

    @contextlib.asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        timeout_s: float,
        idle_s: float,
    ) -> AsyncIterator[Streamed]:
        """An answer that is read as it comes; `idle_s` without a byte is a TimeoutError (0: wait forever)."""
        target = urlsplit(url)
        async with asyncio.timeout(timeout_s):
            link = await self._connect(target)
        try:
            async with asyncio.timeout(timeout_s):
                with _told():
                    link.writer.write(_request(method, target, query, {**self._headers, **headers}, None))
                    await link.writer.drain()
                    status, fields = await _head(link.reader)
            yield Streamed(status, fields, _patiently(_body(link.reader, status, fields), idle_s))
        finally:
            link.close()

    @contextlib.asynccontextmanager
    async def duplex(
        self, url: str, *, headers: Mapping[str, str], timeout_s: float, answer_s: float, idle_s: float
    ) -> AsyncIterator[Duplex]:
        """A POST whose body is sent while the answer is read; the answer's head is waited for `answer_s`, each part of
        it for `idle_s`. It ends the connection, which may be one that was kept."""
        target = urlsplit(url)
        async with asyncio.timeout(timeout_s):
            link = self._kept(target) or await self._connect(target)
        try:
            sent = {**self._headers, **headers, "Transfer-Encoding": "chunked"}
            async with asyncio.timeout(answer_s):
                with _told():
                    link.writer.write(_request("POST", target, {}, sent, None))
                    await link.writer.drain()
                    status, fields = await _head(link.reader)
            yield Duplex(status, fields, _heard(_body(link.reader, status, fields), idle_s), link.writer, idle_s)
        finally:
            link.close()

    async def _ask(self, target: SplitResult, link: _Link, message: bytes, method: str) -> Reply:
        is_whole = False
        try:
            with _told():
                link.writer.write(message)
                await link.writer.drain()
                status, headers = await _head(link.reader)
                parts, size = [], 0
                async for chunk in _body(link.reader, status, headers, has_none=method == "HEAD"):
                    parts.append(chunk)
                    size += len(chunk)
                    if size > _LARGEST_BODY:
                        raise Lost("the response is too large for a head")
                reply = Reply(status, headers, _unzipped(b"".join(parts), headers))
                is_whole = True
                return reply
        finally:
            idle = self._idle.setdefault(target.netloc, [])
            if is_whole and headers.get("Connection").lower() != "close" and len(idle) < _KEPT:
                idle.append(link)
            else:
                link.close()

    def _kept(self, target: SplitResult) -> _Link | None:
        idle = self._idle.get(target.netloc, [])
        while idle:
            link = idle.pop()
            if link.is_usable:
                return link
            link.close()
        return None

    async def _connect(self, target: SplitResult) -> _Link:
        is_tls = target.scheme == "https"
        port = 0 if target.scheme == UNIX else _port(target)
        if is_tls and self._context is None:
            self._context = self._tls()
        try:
            if target.scheme == UNIX:
                with _reachable(unquote(target.netloc)) as path:
                    return _Link(*await asyncio.open_unix_connection(path, limit=_LARGEST_HEAD))
            return _Link(
                *await asyncio.open_connection(
                    target.hostname,
                    port,
                    ssl=self._context if is_tls else None,
                    limit=_LARGEST_HEAD,
                )
            )
        except ssl.SSLCertVerificationError:
            raise
        except OSError as err:
            # asyncio puts words of its own into an error of the system; the system's are what people know.
            known = os.strerror(err.errno).lower() if err.errno and err.errno > 0 and not err.filename else ""
            raise Unreached(known or err.strerror or str(err) or type(err).__name__) from err


@contextlib.contextmanager
def _reachable(path: str) -> Iterator[str]:
    """A path of a socket that the kernel takes: one that is too long is named by its folder's descriptor."""
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield path
        return
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """What can go wrong between the first byte and the last is one thing: the connection is lost."""
    try:
        yield
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, zlib.error) as err:
        if isinstance(err, TimeoutError):
            raise
        why = "it was closed" if isinstance(err, asyncio.IncompleteReadError) else str(err) or type(err).__name__
        raise Lost(why) from err


def _port(target: SplitResult) -> int:
    """The port a URL means. Raises `Invalid` for anything but a URL."""
    try:
        port = target.port or {"https": 443, "http": 80}[target.scheme]
        if not target.hostname:
            raise ValueError
    except (KeyError, ValueError):
        raise errors.Invalid(f"{target.geturl()} is not the URL of a head", hint="write https://HOST:PORT") from None
    return port


def _request(
    method: str, target: SplitResult, query: Mapping[str, str], headers: Mapping[str, str], body: bytes | None
) -> bytes:
    where = (target.path or "/") + (f"?{urlencode(query, quote_via=quote)}" if query else "")
    host = "localhost" if target.scheme == UNIX else target.netloc.rpartition("@")[2]
    sent = {"Host": host, **headers}
    if "Transfer-Encoding" not in sent and (body is not None or method in ("POST", "PUT", "PATCH")):
        sent["Content-Length"] = str(len(body or b""))
    lines = [f"{method} {where} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", ""]
    if any("\r" in line or "\n" in line for line in lines):
        raise errors.Invalid("a header or an address of a request has a line break in it")
    return "\r\n".join(lines).encode() + (body or b"")


async def _head(reader: asyncio.StreamReader) -> tuple[int, Headers]:
    while True:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1."):
            raise Lost("the server does not speak HTTP/1.1")
        status = int(rest[:3])
        if status >= 200:
            pairs = (line.partition(":") for line in lines if line)
            return status, Headers((name.strip().lower(), value.strip()) for name, _, value in pairs)


async def _body(
    reader: asyncio.StreamReader, status: int, headers: Headers, *, has_none: bool = False
) -> AsyncIterator[bytes]:
    with _told():
        if has_none or status in _BODILESS:
            return
        if headers.get("Transfer-Encoding").lower() == "chunked":
            while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
                yield (await reader.readexactly(size + 2))[:-2]
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass
        elif headers.get("Content-Length"):
            left = int(headers.get("Content-Length"))
            while left:
                chunk = await reader.read(min(left, _CHUNK))
                if not chunk:
                    raise Lost("it was closed")
                left -= len(chunk)
                yield chunk
        else:
            while chunk := await reader.read(_CHUNK):
                yield chunk


async def _patiently(chunks: AsyncIterator[bytes], idle_s: float) -> AsyncIterator[bytes]:
    while True:
        try:
            async with asyncio.timeout(idle_s or None):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        yield chunk


async def _heard(chunks: AsyncIterator[bytes], idle_s: float) -> AsyncIterator[bytes]:
    try:
        async for chunk in _patiently(chunks, idle_s):
            yield chunk
    except TimeoutError:
        raise Lost(f"it said nothing for {idle_s:g} s") from None


def _unzipped(body: bytes, headers: Headers) -> bytes:
    encoding = headers.get("Content-Encoding").lower()
    if encoding in ("", "identity") or not body:
        return body
    if encoding != "gzip":
        raise Lost(f"the answer is encoded as {encoding}, which was not requested")
    return zlib.decompress(body, _GZIP)
