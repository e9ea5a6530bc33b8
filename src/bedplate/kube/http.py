"""HTTP/1.1 on asyncio: kept connections, TLS, proxies, bodies whole or as they come. No retries, redirects or cookies.

In: where a server is and the way there (`Origin`), a TLS context, a method, a target, headers, a body, a time limit.
Out: an `Answer` as soon as its head is there, or a failure that says whether anything was sent. The parser is
httptools. A connection is used again only after a whole answer; one that is given up, late or wrong is closed. How much
of an answer is kept in memory is bounded: its head always, its body where a limit is given or somebody reads slowly.

    Failure
    ├── Unreached    there is no connection: nothing was sent
    └── Lost         the answer did not come, or not to its end: the request may have been carried out
"""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Iterable
from typing import Any
from urllib.parse import unquote, urlsplit

import httptools

__all__ = ["Answer", "Failure", "Lost", "Origin", "Pool", "Unreached", "encode"]

MAX_HEAD_BYTES = 256 << 10
"""Of a head, of trailers, of anything that is not a body."""
HIGH_WATER_BYTES = 1 << 20
"""So much of a body waits for a slow reader before the socket is read no further."""
HAPPY_EYEBALLS_S = 0.25
_GZIP = 16 + zlib.MAX_WBITS
_TLS_PORT, _PLAIN_PORT = 443, 80
_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
_Key = tuple["Origin", ssl.SSLContext | None]


class Failure(Exception):
    """No answer, or not a whole one."""


class Unreached(Failure):
    """No connection could be made."""


class Lost(Failure):
    """The connection ended, spoke no HTTP or was too slow, before the answer was whole."""


class Origin:
    """A server and the way there; connections of one `Origin` are shared, so keep it. `proxy` is a URL or empty.

    `server_name`: whose certificate is expected, where that is not `host`. Raises ValueError for what is not the URL of
    an HTTP server.
    """

    __slots__ = ("authority", "host", "is_tls", "needs_tls", "port", "proxy", "server_name", "shown")

    def __init__(self, url: str, proxy: str = "", server_name: str = "") -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{parts.scheme}://{parts.hostname or ''} is not an address of an HTTP server")
        self.host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
        self.is_tls = parts.scheme == "https"
        usual = _TLS_PORT if self.is_tls else _PLAIN_PORT
        self.port = parts.port or usual
        self.proxy = proxy
        self.server_name = server_name or self.host
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.shown = f"{host}:{self.port}"
        self.authority = host if self.port == usual else self.shown
        """As the Host header names it: without the port that everybody expects."""
        self.needs_tls = self.is_tls or proxy.startswith("https:")
        """Whether a context must be given: for the server, or for the proxy before it."""


def encode(headers: Iterable[tuple[str, str]]) -> bytes:
    """Headers as they are sent. Raises `Unreached` for one that would smuggle in another."""
    lines = [f"{name}: {value}\r\n" for name, value in headers]
    text = "".join(lines)
    if text.count("\n") != len(lines) or text.count("\r") != len(lines) or "\0" in text:
        raise Unreached("a header contains characters that must not be sent")
    return text.encode()


class Answer:
    """An answer whose head has arrived. `read` or go through `chunks`, then `release`."""

    __slots__ = (
        "_connection",
        "_failure",
        "_headers",
        "_inflater",
        "_is_collecting",
        "_is_inflating",
        "_is_paused",
        "_is_whole",
        "_limit",
        "_parts",
        "_size",
        "_timer",
        "_total",
        "_waiter",
        "fields",
        "has_body",
        "status",
    )

    def __init__(self, connection: _Connection, *, has_body: bool, limit: int) -> None:
        self.status = 0
        self.fields: list[tuple[bytes, bytes]] = []
        """Headers as they came."""
        self.has_body = has_body
        self._headers: dict[str, str] | None = None
        self._connection = connection
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = self._total = 0
        self._inflater: Any = None
        self._failure: Failure | None = None
        self._is_whole = self._is_collecting = self._is_paused = self._is_inflating = False
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def headers(self) -> dict[str, str]:
        """By their names in lower case; the last of a name counts."""
        if self._headers is None:
            self._headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.fields}
        return self._headers

    def all(self, name: bytes) -> list[str]:
        """Every header of a name, which is given in lower case."""
        return [
            value.decode("utf-8", "replace")
            for key, value in self.fields
            if len(key) == len(name) and key.lower() == name
        ]

    async def read(self) -> bytes:
        """The whole body. Raises `Lost`."""
        self._is_collecting = True
        self._resume()
        while not self._is_whole:
            await self._wait()
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises `Lost` after what arrived before the connection broke."""
        while True:
            if self._parts:
                parts, self._parts, self._size = self._parts, [], 0
                self._resume()
                yield parts[0] if len(parts) == 1 else b"".join(parts)
            elif self._is_whole:
                return
            else:
                await self._wait()

    def release(self) -> None:
        """Whoever asked is done with it; a connection whose body was not read to its end is closed."""
        self._connection.give_up(self)

    async def arrive(self) -> None:
        """Wait for the head."""
        while not self.status:
            await self._wait()

    async def _wait(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._waiter = self._connection.loop.create_future()
        try:
            await self._waiter
        except BaseException:
            self._connection.give_up(self)
            raise
        finally:
            self._waiter = None

    # What the connection tells

    def started(self, timer: asyncio.TimerHandle) -> None:
        self._timer = timer

    def begun(self, status: int, fields: list[tuple[bytes, bytes]]) -> str:
        """The head is there; why it cannot be used, if so."""
        for name, value in fields:
            if len(name) == 16 and name.lower() == b"content-encoding" and value.lower() not in (b"", b"identity"):
                if value.lower() not in (b"gzip", b"x-gzip"):
                    return f"the content encoding {value[:40].decode('latin-1')!r} was not asked for"
                self._inflater = zlib.decompressobj(_GZIP)
        self.status, self.fields = status, fields
        self._wake()
        return ""

    def feed(self, data: bytes) -> str:
        """More of the body; why it cannot be used, if so."""
        if self._inflater is not None:
            self._is_inflating = True
            room = self._limit - self._total + 1 if self._limit else 0
            try:
                data = self._inflater.decompress(data, room)
            except zlib.error:
                return "the body cannot be decompressed"
            if self._inflater.unused_data:
                return "there is more after the compressed body"
            if not data:
                return ""
        self._parts.append(data)
        self._size += len(data)
        self._total += len(data)
        if self._limit and self._total > self._limit:
            self._parts.clear()
            return f"the response is longer than {self._limit} bytes"
        if not self._is_collecting:
            if self._size > HIGH_WATER_BYTES and not self._is_paused and not self._connection.transport.is_closing():
                self._is_paused = True
                self._connection.transport.pause_reading()
            self._wake()
        return ""

    def ended(self) -> None:
        """The body is complete."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._resume()
        if self._is_inflating and not self._inflater.eof:
            self.failed("the compressed body was cut off")
            return
        self._is_whole = True
        self._wake()

    def failed(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._failure = Lost(reason)
        self._wake()

    def _resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            if not self._connection.transport.is_closing():
                self._connection.transport.resume_reading()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Connection(asyncio.Protocol):
    """One connection: at most one answer under way."""

    transport: asyncio.Transport

    def __init__(self, pool: Pool, key: _Key, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.key = key
        self.idle_since = 0.0
        self._pool = pool
        self._parser: Any = httptools.HttpResponseParser(self)
        self._answer: Answer | None = None
        self._fields: list[tuple[bytes, bytes]] = []
        self._bodiless = 0
        """Bytes that came since the request, or since the last bit of a body."""
        self._is_interim = False
        self._is_foul = False

    @property
    def is_usable(self) -> bool:
        return not self._is_foul and not self.transport.is_closing()

    def start(self, answer: Answer, message: bytes, within_s: float) -> None:
        """Send a request; `answer` is filled as its answer comes."""
        self._answer = answer
        self._bodiless = 0
        if within_s:
            answer.started(self.loop.call_later(within_s, self.fail, "no response in time"))
        self.transport.write(message)

    def fail(self, reason: str) -> None:
        """Close it; an answer under way is lost."""
        self._is_foul = True
        self.transport.abort()
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.failed(reason)

    def give_up(self, answer: Answer) -> None:
        """Nobody waits for this answer any more. A connection that is past it is not concerned."""
        if self._answer is answer:
            self.fail("given up")

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self._pool.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pool.gone(self)
        if exc is None:
            self.eof_received()
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.failed(_reason(exc) if exc is not None else "the server closed the connection")

    def eof_received(self) -> None:
        answer = self._answer
        if answer is not None and answer.status and _ends_with_connection(answer.fields):
            self._answer = None
            answer.ended()

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.fail("")
            return
        self._bodiless += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.fail("the server switched to another protocol")
        except httptools.HttpParserError as err:
            self.fail(f"the response is not HTTP: {err}")
        if self._is_foul:
            self.fail("the server sent more than a response")
        elif self._bodiless > MAX_HEAD_BYTES and self._answer is not None:
            self.fail(f"the head of the response is longer than {MAX_HEAD_BYTES} bytes")

    # httptools

    def on_message_begin(self) -> None:
        self._is_foul = self._is_foul or self._answer is None

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        answer, status, fields = self._answer, self._parser.get_status_code(), self._fields
        self._fields = []
        self._is_interim = status < 200
        if self._is_interim or answer is None:
            return
        if refusal := answer.begun(status, fields):
            self.fail(refusal)
        elif not answer.has_body:
            # The parser does not know what was asked, and expects the body that the head announces.
            self._answer = None
            answer.ended()
            self.transport.close()

    def on_body(self, body: bytes) -> None:
        self._bodiless = 0
        if self._answer is not None and (refusal := self._answer.feed(body)):
            self.fail(refusal)

    def on_message_complete(self) -> None:
        answer = self._answer
        if self._is_interim or answer is None:
            return
        self._fields = []  # trailers
        self._answer = None
        if self._parser.should_keep_alive():
            self._pool.keep(self)
        else:
            self.transport.close()
        answer.ended()


class _Tunnel(asyncio.Protocol):
    """What a proxy says to CONNECT."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._head = b""
        self.status: asyncio.Future[int] = loop.create_future()

    def data_received(self, data: bytes) -> None:
        self._head += data
        if not self.status.done() and (b"\r\n\r\n" in self._head or len(self._head) > MAX_HEAD_BYTES):
            version, _, rest = self._head.partition(b" ")
            code = rest[:3]
            is_http = version.startswith(b"HTTP/1.") and code.isdigit() and self._head.find(b"\r\n\r\n") >= 0
            self.status.set_result(int(code) if is_http else 0)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.status.done():
            self.status.set_result(0)


class Pool:
    """Connections to any number of servers. Belongs to one event loop; `close` it at the end."""

    def __init__(self, keep_s: float) -> None:
        """`keep_s`: how long an idle connection is kept."""
        self._keep_s = keep_s
        self._idle: dict[_Key, list[_Connection]] = {}
        self._open: set[_Connection] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def close(self) -> None:
        """Drop all connections, those under way too."""
        self._is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in tuple(self._open):
            connection.fail("the client was closed")
        await asyncio.sleep(0)  # sockets are closed by the loop's next round

    async def send(
        self,
        origin: Origin,
        context: ssl.SSLContext | None,
        method: str,
        target: str,
        headers: bytes,
        body: bytes | None,
        *,
        timeout_s: float,
        connect_s: float,
        limit: int = 0,
    ) -> Answer:
        """Send a request once; its answer when the head is there. `timeout_s` is for all of it, the body too; 0: any.

        `headers` come from `encode`; Host and Content-Length are added. `limit`: the longest body in bytes, 0: any.
        Raises `Unreached` or `Lost`.
        """
        if self._is_closed:
            raise Unreached("the client is closed")
        message = _message(origin, method, target, headers, body)
        loop = asyncio.get_running_loop()
        connection = self._kept((origin, context), loop)
        if connection is None:
            deadline = loop.time() + timeout_s if timeout_s else None
            connection = await self._connect(origin, context, loop, deadline, connect_s)
            if deadline is not None:
                timeout_s = max(0.001, deadline - loop.time())
        answer = Answer(connection, has_body=method != "HEAD", limit=limit)
        connection.start(answer, message, timeout_s)
        await answer.arrive()
        return answer

    # Connections

    def opened(self, connection: _Connection) -> None:
        self._open.add(connection)
        if self._is_closed:
            connection.fail("the client was closed")

    def gone(self, connection: _Connection) -> None:
        self._open.discard(connection)
        idle = self._idle.get(connection.key)
        if idle is not None and connection in idle:
            idle.remove(connection)

    def keep(self, connection: _Connection) -> None:
        """It may be used again."""
        connection.idle_since = connection.loop.time()
        self._idle.setdefault(connection.key, []).append(connection)
        if self._sweeper is None and not self._is_closed:
            self._sweeper = connection.loop.call_later(self._keep_s, self._sweep, connection.loop)

    def _kept(self, key: _Key, loop: asyncio.AbstractEventLoop) -> _Connection | None:
        idle = self._idle.get(key)
        while idle:
            connection = idle.pop()
            if connection.is_usable and loop.time() - connection.idle_since < self._keep_s:
                return connection
            connection.fail("")
        return None

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close what was idle for long."""
        self._sweeper = None
        before = loop.time() - self._keep_s
        for key, idle in list(self._idle.items()):
            for connection in [kept for kept in idle if kept.idle_since <= before]:
                idle.remove(connection)
                connection.fail("")
            if not idle:
                del self._idle[key]
        if self._idle:
            self._sweeper = loop.call_later(self._keep_s, self._sweep, loop)

    async def _connect(
        self,
        origin: Origin,
        context: ssl.SSLContext | None,
        loop: asyncio.AbstractEventLoop,
        deadline: float | None,
        connect_s: float,
    ) -> _Connection:
        connection = _Connection(self, (origin, context), loop)
        place = origin.shown
        try:
            async with asyncio.timeout_at(deadline):
                if origin.proxy:
                    place = f"the proxy of {place}"
                    await self._connect_by_proxy(origin, context, connection, connect_s)
                else:
                    tls = context if origin.is_tls else None
                    await _open(loop, connection, (origin.host, origin.port), tls, origin.server_name, connect_s)
        except TimeoutError:
            # The cause tells nothing more.
            raise Unreached(f"no connection to {place} in time") from None
        except (OSError, ValueError, RuntimeError) as err:
            raise Unreached(f"cannot connect to {place}: {_reason(err)}") from err
        return connection

    async def _connect_by_proxy(
        self, origin: Origin, context: ssl.SSLContext | None, connection: _Connection, connect_s: float
    ) -> None:
        loop, proxy = connection.loop, urlsplit(origin.proxy)
        is_tls, host = proxy.scheme == "https", proxy.hostname or ""
        address = (host, proxy.port or (_TLS_PORT if is_tls else _PLAIN_PORT))
        outer = context if is_tls else None
        if not origin.is_tls:
            await _open(loop, connection, address, outer, host, connect_s)
            return
        tunnel = _Tunnel(loop)
        transport = await _open(loop, tunnel, address, outer, host, connect_s)
        try:
            credentials = encode(_proxy_headers(origin.proxy))
            line = f"CONNECT {origin.shown} HTTP/1.1\r\nHost: {origin.shown}\r\n"
            transport.write(line.encode() + credentials + b"\r\n")
            status = await tunnel.status
            if not 200 <= status < 300:
                raise Unreached(f"the proxy responded with status {status}" if status else "the proxy did not respond")
            assert context is not None, "an origin with TLS needs a context"
            inner = await loop.start_tls(transport, connection, context, server_hostname=origin.server_name)
            if inner is None:
                raise OSError("the tunnel was closed")
        except BaseException:
            transport.abort()
            raise
        connection.connection_made(inner)


def _message(origin: Origin, method: str, target: str, headers: bytes, body: bytes | None) -> bytes:
    if not target.isascii() or not target.isprintable() or " " in target or not method.isalpha():
        raise Unreached("the target contains characters that must not be sent")
    if origin.proxy and not origin.is_tls:
        target = f"http://{origin.authority}{target}"
        headers += encode(_proxy_headers(origin.proxy))
    line = f"{method} {target} HTTP/1.1\r\nHost: {origin.authority}\r\n".encode()
    if body is None:
        # Some servers insist on a length where a body is usual.
        end = b"Content-Length: 0\r\n\r\n" if method in ("POST", "PUT", "PATCH") else b"\r\n"
        return b"".join((line, headers, end))
    return b"".join((line, headers, b"Content-Length: %d\r\n\r\n" % len(body), body))


def _proxy_headers(proxy: str) -> list[tuple[str, str]]:
    parts = urlsplit(proxy)
    if parts.username is None:
        return []
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return [("Proxy-Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")]


def _ends_with_connection(fields: list[tuple[bytes, bytes]]) -> bool:
    """Whether only the end of the connection ends the body."""
    return not any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in fields)


def _reason(err: Exception) -> str:
    if isinstance(err, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {err.verify_message or err.reason}"
    if isinstance(err, socket.gaierror):
        return str(err.strerror)
    return str(err) or type(err).__name__


async def _open(
    loop: asyncio.AbstractEventLoop,
    protocol: asyncio.Protocol,
    address: tuple[str, int],
    tls: ssl.SSLContext | None,
    server_name: str,
    connect_s: float,
) -> asyncio.Transport:
    """A connection for this protocol."""
    async with asyncio.timeout(connect_s):
        connected: socket.socket | None = await _dial(loop, *address)
    try:
        name = server_name if tls is not None else None
        transport, _ = await loop.create_connection(lambda: protocol, sock=connected, ssl=tls, server_hostname=name)
        connected = None
    finally:
        if connected is not None:
            connected.close()
    return transport


async def _dial(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """A connected socket; where a host has several addresses, the one that answers first, roughly."""
    addresses: Any = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    if len(addresses) > 1:
        import aiohappyeyeballs

        return await aiohappyeyeballs.start_connection(
            addresses, loop=loop, happy_eyeballs_delay=HAPPY_EYEBALLS_S, socket_factory=_socket
        )
    opened = _socket(addresses[0])
    try:
        await loop.sock_connect(opened, addresses[0][4])
    except BaseException:
        opened.close()
        raise
    return opened


def _socket(info: tuple[Any, ...]) -> socket.socket:
    """A socket that notices a dead peer within a minute, since a quiet watch would otherwise wait forever."""
    opened = socket.socket(family=info[0], type=info[1], proto=info[2])
    opened.setblocking(False)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        if hasattr(socket, option):
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return opened
