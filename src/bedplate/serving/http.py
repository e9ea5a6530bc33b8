"""HTTP/1.1 on an asyncio transport: bytes of a connection in, `Request` values out, answers and streams back.

The parser is httptools; everything runs in `data_received`, without a task for answers that need no waiting. Requests
of one connection are answered in order, one at a time. Knows nothing of what it serves. Bodies and headers are limited;
what a reader does not take in time is bounded by whoever writes to a `Sink`. `Connections` closes those of peers that
keep nothing but a socket busy.
"""

from __future__ import annotations

import asyncio
import email.utils
import functools
import http
import time
import urllib.parse
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httptools

__all__ = ["Application", "Connection", "Connections", "Request", "Response", "Sink", "Stream", "chunk"]

MAX_BODY_BYTES = 3 * 1024 * 1024
MAX_DISCARDED_BYTES = 256 * 1024 * 1024
MAX_HEAD_BYTES = 1024 * 1024
MAX_PIPELINED = 64
MAX_PIPELINED_BYTES = 2 * MAX_BODY_BYTES
MAX_CONNECTIONS = 10_000
REQUEST_WITHIN_S = 60.0
IDLE_FOR_S = 180.0
LOOK_EVERY_S = 5.0
"""How long a request may take to arrive, and a connection may be open without one; clients give up idle ones sooner."""
WRITE_HIGH_WATER_BYTES = 512 * 1024
JSON = "application/json"

_LINES = {code.value: f"HTTP/1.1 {code.value} {code.phrase}\r\n".encode() for code in http.HTTPStatus}
_END = b"0\r\n\r\n"


@dataclass(slots=True, eq=False)
class Request:
    """One request with its whole body. Header names are lower-case; of a repeated header `headers` has the last."""

    connection: Connection
    method: str = ""
    path: str = ""
    raw_query: str = ""
    headers: dict[bytes, bytes] = field(default_factory=dict)
    repeated: list[tuple[bytes, bytes]] = field(default_factory=list)
    """All but the last of the headers that came more than once."""
    body: bytes = b""
    is_too_large: bool = False
    """Whether the body was longer than is allowed; it is then empty."""
    _query: dict[str, str] | None = None

    @property
    def query(self) -> dict[str, str]:
        """Parameters; the first of a name counts, as in Go's url.Values.Get."""
        if self._query is None:
            pairs = urllib.parse.parse_qsl(self.raw_query, keep_blank_values=True) if self.raw_query else []
            self._query = dict(reversed(pairs))
        return self._query

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1")

    def all_headers(self) -> list[tuple[str, str]]:
        pairs = [*self.repeated, *self.headers.items()]
        return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in pairs]


@dataclass(slots=True, eq=False)
class Response:
    """A complete answer."""

    code: int
    body: bytes
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True, eq=False)
class Sink:
    """Where a stream writes. Frames come ready with `chunk`."""

    _connection: Connection
    is_open: bool = True
    backlog_bytes: int = 0
    """Bytes written since the peer stopped reading; 0 while it keeps up."""
    on_close: Callable[[], None] | None = None

    def write(self, frames: bytes) -> None:
        if self.is_open:
            if self._connection.is_paused:
                self.backlog_bytes += len(frames)
            self._connection.transport.write(frames)

    def cut(self) -> None:
        """Drop the connection and what waits to be sent: the peer does not read."""
        self._connection.transport.abort()

    def finish(self) -> None:
        """End the body; the connection goes on to its next request."""
        if self.is_open:
            self.is_open = False
            self._connection.transport.write(_END)
            self._connection.stream_ended()

    def closed(self) -> None:
        """The peer is gone, or the stream ended."""
        self.is_open = False
        if self.on_close is not None:
            self.on_close()
            self.on_close = None


@dataclass(slots=True, eq=False)
class Stream:
    """An answer whose body comes bit by bit: `start` gets the sink once the head is written."""

    start: Callable[[Sink], None]
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


Answer = Response | Stream
Application = Callable[[Request], Answer | Awaitable[Answer]]


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class Connections:
    """The open connections of a server."""

    def __init__(self) -> None:
        self.open: set[Connection] = set()
        self._none = asyncio.Event()

    def remove(self, connection: Connection) -> None:
        self.open.discard(connection)
        if not self.open:
            self._none.set()

    async def run(self) -> None:
        """Look at each every few seconds until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            for connection in tuple(self.open):
                connection.look(asyncio.get_running_loop().time())

    async def close(self, grace_s: float) -> None:
        """End streams and idle connections, give answers in work some time, then cut what is left."""
        for connection in tuple(self.open):
            connection.shut()
        try:
            async with asyncio.timeout(grace_s):
                while self.open:
                    self._none.clear()
                    await self._none.wait()
        except TimeoutError:
            for connection in tuple(self.open):
                connection.transport.abort()


class Connection(asyncio.Protocol):
    """One client connection."""

    transport: asyncio.Transport

    def __init__(
        self,
        application: Application,
        connections: Connections,
        *,
        largest_body: int = MAX_BODY_BYTES,
        signature: Callable[[], bytes] = bytes,
    ) -> None:
        """`signature` makes headers of its own for every answer."""
        self._application = application
        self._connections = connections
        self._largest_body = largest_body
        self._signature = signature
        self._parser: Any = httptools.HttpRequestParser(self)
        self._waiting: deque[Request] = deque()
        self._task: asyncio.Task[None] | None = None
        self._sink: Sink | None = None
        self._is_busy = False
        self._keeps_alive = True
        self._is_closing = False
        self._waiting_bytes = 0
        self.is_paused = False
        self._is_reading = False
        """Whether a request has begun to arrive and is not complete."""
        self._messages = 0
        """Requests that have begun to arrive."""
        self._looked_at = (-1, 0.0)
        """How many they were when `look` first saw the peer idle since the last of them, and when that was."""
        self.identity: Any = None
        """What the application remembers of the peer."""

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        if len(self._connections.open) < MAX_CONNECTIONS:
            self._connections.open.add(self)
        else:
            self._is_closing = True
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self)
        self._is_closing = True
        self._waiting.clear()
        if self._sink is not None:
            self._sink.closed()
        # An answer in work is finished though nobody waits: a write may be half way into the store.

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # answered like any request; no protocol is switched
        except httptools.HttpParserError:
            self._refuse(400, b"400 Bad Request")

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False
        if self._sink is not None:
            self._sink.backlog_bytes = 0
        elif self._waiting and not self._is_busy:
            self._next()

    # httptools callbacks

    def on_message_begin(self) -> None:
        self._is_reading = True
        self._messages += 1
        self._request = Request(self)
        self._url = b""
        self._parts: list[bytes] = []
        self._head_bytes = self._body_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        headers = self._request.headers
        name = name.lower()
        if name in headers:
            self._request.repeated.append((name, headers[name]))
        headers[name] = value
        self._count_head(len(name) + len(value) + 4)

    def on_headers_complete(self) -> None:
        request = self._request
        request.method = self._parser.get_method().decode("latin-1")
        path, _, query = self._url.partition(b"?")
        text = "/" + path.decode("latin-1").removeprefix("/")
        request.path = urllib.parse.unquote(text) if "%" in text else text
        request.raw_query = query.decode("latin-1")
        if b"expect" in request.headers:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes <= self._largest_body:
            self._parts.append(body)
            return
        # Clients read the answer only after they have sent everything, so the rest is taken and thrown away.
        self._parts.clear()
        self._request.is_too_large = True
        if self._body_bytes > MAX_DISCARDED_BYTES:
            self._refuse(413, b"Request entity too large")

    def on_message_complete(self) -> None:
        self._is_reading = False
        parts = self._parts
        self._request.body = parts[0] if len(parts) == 1 else b"".join(parts)
        self._keeps_alive = self._parser.should_keep_alive()
        if self._is_busy or self._waiting:
            self._waiting.append(self._request)
            self._waiting_bytes += self._head_bytes + len(self._request.body)
            if len(self._waiting) > MAX_PIPELINED or self._waiting_bytes > MAX_PIPELINED_BYTES:
                self._refuse(400, b"too many pipelined requests")
        elif not self._is_closing:
            self._serve(self._request)

    # answering

    def _count_head(self, count: int) -> None:
        self._head_bytes += count
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(431, b"request head too large")

    def _serve(self, request: Request) -> None:
        self._is_busy = True
        answer = self._application(request)
        if isinstance(answer, Response | Stream):
            self._answer(request, answer)
        else:
            self._task = asyncio.ensure_future(self._finish_later(request, answer))

    async def _finish_later(self, request: Request, pending: Awaitable[Answer]) -> None:
        answer = await pending
        self._task = None
        if not self._is_closing:
            self._answer(request, answer)

    def _answer(self, request: Request, answer: Answer) -> None:
        if isinstance(answer, Response):
            self._respond(request, answer)
        else:
            self._stream(answer)

    def _respond(self, request: Request, answer: Response) -> None:
        body = answer.body
        head = self._head(answer.code, answer.content_type, answer.headers)
        end = b"Content-Length: %d\r\n\r\n" % len(body)
        self.transport.write(head + end if request.method == "HEAD" else head + end + body)
        if len(body) < WRITE_HIGH_WATER_BYTES:
            self._next()
        else:
            # Only when the loop has tried to send it is it known whether the peer reads.
            asyncio.get_running_loop().call_soon(self._next)

    def _stream(self, answer: Stream) -> None:
        head = self._head(200, answer.content_type, answer.headers)
        self.transport.write(head + b"Transfer-Encoding: chunked\r\n\r\n")
        self._sink = Sink(self)
        answer.start(self._sink)

    def stream_ended(self) -> None:
        if self._sink is not None:
            sink, self._sink = self._sink, None
            sink.closed()
            self._next()

    def _next(self) -> None:
        self._is_busy = False
        if self._is_closing or not self._keeps_alive:
            self.transport.close()
        elif self._waiting and not self.is_paused:
            request = self._waiting.popleft()
            if not self._waiting:
                self._waiting_bytes = 0
            self._serve(request)

    def _head(self, code: int, content_type: str, headers: tuple[tuple[str, str], ...]) -> bytes:
        line = _LINES.get(code) or b"HTTP/1.1 %d\r\n" % code
        more = self._signature()
        if not self._keeps_alive:
            more += b"Connection: close\r\n"
        if headers:
            more += "".join(f"{name}: {value}\r\n" for name, value in headers).encode("utf-8")
        return line + _common(content_type, int(time.time())) + more

    def _refuse(self, code: int, text: bytes) -> None:
        """Answer out of order and close: the peer broke a limit or the protocol."""
        if not self._is_closing:
            self._keeps_alive, self._is_closing = False, True
            end = b"Content-Length: %d\r\n\r\n" % len(text)
            self.transport.write(self._head(code, "text/plain; charset=utf-8", ()) + end + text)
            self.transport.close()

    def look(self, now: float) -> None:
        """Close if the peer takes too long to send a request it has begun, or to begin one."""
        if self._is_busy or self._waiting:
            self._looked_at = (-1, now)
        elif self._looked_at[0] != self._messages:
            self._looked_at = (self._messages, now)
        elif now - self._looked_at[1] > (REQUEST_WITHIN_S if self._is_reading else IDLE_FOR_S):
            self.transport.abort()

    def shut(self) -> None:
        """Close now if idle, else after the answer in work; streams end."""
        self._keeps_alive = False
        self._waiting.clear()
        if self._sink is not None:
            self._sink.finish()
        elif not self._is_busy:
            self._is_closing = True
            self.transport.close()


@functools.lru_cache(maxsize=16)
def _common(content_type: str, second: int) -> bytes:
    """Headers common to all answers; made once a second for each type."""
    date = email.utils.formatdate(second, usegmt=True)
    text = f"Cache-Control: no-cache, private\r\nContent-Type: {content_type}\r\nDate: {date}\r\n"
    return text.encode("latin-1")
