"""One caller's connection: HTTP/2 as far as unary gRPC needs it, on asyncio.

In: bytes of a caller, and the handlers by method. Out: bytes of answers; every call ends with a gRPC status, every
breach of the protocol with GOAWAY. Serves grpc-go, tonic and grpcio; a CNI plugin opens one connection for one call, so
what counts is the cost of a connection's beginning.

A handler is never cancelled because its caller went away: it may be half-way through writing. It can ask its `Call`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Protocol, cast
from urllib.parse import quote

from bedplate.core import logging
from bedplate.ipam.node import http2
from bedplate.ipam.node.hpack import HeaderDecoder, HeaderError, literal
from bedplate.ipam.node.http2 import Code, Failed, ProtocolError

__all__ = ["Budget", "Call", "Connection", "Handler", "Service", "shown"]

log = logging.get_logger("ipam.node.grpc")
MAX_MESSAGE = 4 << 20
# Requests have some hundred bytes, for which there is always room; four of the largest at a time are plenty.
SMALL = 64 << 10
MAX_HELD = 4 * MAX_MESSAGE + 64
MAX_HEADERS = 64 << 10
MAX_CALLS = 1024
_WINDOW = MAX_MESSAGE + 64
_MAX_TEXT = 1024
_TIMEOUT_UNITS = {0x48: 3600.0, 0x4D: 60.0, 0x53: 1.0, 0x6D: 1e-3, 0x75: 1e-6, 0x6E: 1e-9}  # H M S m u n
_HELLO = http2.settings(
    {http2.MAX_CONCURRENT_STREAMS: MAX_CALLS, http2.INITIAL_WINDOW_SIZE: _WINDOW}
) + http2.window_update(0, _WINDOW - http2.DEFAULT_WINDOW)
_SETTINGS_ACK = http2.frame(http2.SETTINGS, http2.ACK, 0)
_ANSWER = b"\x88" + literal(b"content-type", b"application/grpc")
_TRAILER_OK = literal(b"grpc-status", b"0")
_NOT_GRPC = literal(b":status", b"415") + literal(b"content-type", b"text/plain")


class Call:
    """What a handler is told: until when an answer is waited for (loop time), and whether anybody waits.

    `notes` is what the handler wants said in the line that the call leaves in the log.
    """

    __slots__ = ("deadline", "is_gone", "notes")

    def __init__(self, deadline: float | None = None) -> None:
        self.deadline = deadline
        self.is_gone = False
        self.notes: dict[str, object] = {}


Handler = Callable[[bytes, Call], Awaitable[bytes]]


class Service(Protocol):
    """What a connection serves."""

    handlers: Mapping[bytes, Handler]
    budget: Budget

    def admits(self, transport: asyncio.BaseTransport) -> bool: ...
    def started(self, connection: Connection) -> None: ...
    def ended(self, connection: Connection) -> None: ...
    def done(self, method: bytes, code: Code, message: str, seconds: float, notes: Mapping[str, object]) -> None: ...


class Budget:
    """How many bytes of requests are in memory, over all connections: read in part, or being answered."""

    __slots__ = ("used",)

    def __init__(self) -> None:
        self.used = 0

    def take(self, size: int, request_size: int) -> bool:
        """Whether there is room for so many bytes more of a request; they count from now on."""
        if request_size > SMALL and self.used + size > MAX_HELD:
            return False
        self.used += size
        return True


class _Stream:
    __slots__ = ("body", "call", "is_read", "method", "pending", "trailers", "window")

    def __init__(self, method: bytes, call: Call, window: int) -> None:
        self.method = method
        self.call = call
        self.window = window
        # One piece: a caller may send a byte at a time.
        self.body = bytearray()
        self.is_read = False
        self.pending = b""
        self.trailers = b""


class Connection(asyncio.Protocol):
    """The server's end of one connection."""

    def __init__(self, service: Service, loop: asyncio.AbstractEventLoop) -> None:
        self._service = service
        self._loop = loop
        self._transport: asyncio.WriteTransport | None = None
        self._buffer = b""
        self._has_preface = False
        self._headers = HeaderDecoder()
        self._block: list[bytes] = []
        self._block_of: tuple[int, int] | None = None
        self._streams: dict[int, _Stream] = {}
        self._last = 0
        self._window = http2.DEFAULT_WINDOW
        self._initial_window = http2.DEFAULT_WINDOW
        self._max_frame = http2.DEFAULT_FRAME
        self._consumed = 0
        self._is_leaving = False
        self._is_refused = False
        self.calls: set[asyncio.Task[None]] = set()

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.WriteTransport, transport)
        self._service.started(self)
        if not self._service.admits(transport):
            self._is_refused = True
            self._transport.abort()
            return
        self._transport.write(_HELLO)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        for stream in self._streams.values():
            stream.call.is_gone = True
            self._forget(stream)
        self._streams.clear()
        self._service.ended(self)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        try:
            self._read(self._buffer + data if self._buffer else data)
        except ProtocolError as err:
            self._close(err.code, str(err))
        except HeaderError as err:
            self._close(http2.COMPRESSION_ERROR, str(err))

    def leave(self) -> None:
        """Take no more calls; the connection ends with the last one in hand."""
        self._is_leaving = True
        self._write(http2.goaway(self._last, http2.NO_ERROR))
        self._end_if_idle()

    # Reading

    def _read(self, data: bytes) -> None:
        at, end = 0, len(data)
        if not self._has_preface:
            if end < len(http2.PREFACE):
                if not http2.PREFACE.startswith(data):
                    raise ProtocolError(http2.PROTOCOL_ERROR, "the connection does not begin with the HTTP/2 preface")
                self._buffer = data
                return
            if not data.startswith(http2.PREFACE):
                raise ProtocolError(http2.PROTOCOL_ERROR, "the connection does not begin with the HTTP/2 preface")
            self._has_preface = True
            at = len(http2.PREFACE)
        while end - at >= http2.HEADER_BYTES:
            length = int.from_bytes(data[at : at + 3], "big")
            if length > http2.DEFAULT_FRAME:
                raise ProtocolError(http2.FRAME_SIZE_ERROR, "a frame that is too large")
            body = at + http2.HEADER_BYTES
            if end - body < length:
                break
            stream = int.from_bytes(data[at + 5 : body], "big") & http2.MAX_WINDOW
            if self._block_of is not None and (data[at + 3] != http2.CONTINUATION or stream != self._block_of[0]):
                raise ProtocolError(http2.PROTOCOL_ERROR, "a header block is interrupted")
            take = _TAKE.get(data[at + 3])
            if take is not None:
                take(self, data[at + 4], stream, data[body : body + length])
            at = body + length
        self._buffer = data[at:]

    def _take_headers(self, flags: int, stream: int, payload: bytes) -> None:
        if not stream & 1:
            raise ProtocolError(http2.PROTOCOL_ERROR, "HEADERS on a stream that is not the caller's")
        self._block_of, self._block = (stream, flags), []
        self._add_to_block(flags, http2.unpadded(http2.HEADERS, flags, payload))

    def _take_continuation(self, flags: int, stream: int, payload: bytes) -> None:
        if self._block_of is None:
            raise ProtocolError(http2.PROTOCOL_ERROR, "CONTINUATION of nothing")
        self._add_to_block(flags, payload)

    def _add_to_block(self, flags: int, piece: bytes) -> None:
        self._block.append(piece)
        # The number of pieces counts too: empty ones add no bytes and never end.
        if sum(map(len, self._block)) > MAX_HEADERS or len(self._block) > 64:
            raise ProtocolError(http2.ENHANCE_YOUR_CALM, "headers without end")
        if flags & http2.END_HEADERS and self._block_of is not None:
            (stream, first_flags), block = self._block_of, b"".join(self._block)
            self._block_of, self._block = None, []
            self._open(stream, dict(self._headers.decode(block)), bool(first_flags & http2.END_STREAM))

    def _open(self, number: int, headers: dict[bytes, bytes], is_end: bool) -> None:
        known = self._streams.get(number)
        if known is not None:
            if not is_end or known.is_read:
                raise ProtocolError(http2.PROTOCOL_ERROR, "headers twice on one stream")
            self._run(number, known)
            return
        if number <= self._last:
            raise ProtocolError(http2.STREAM_CLOSED, "HEADERS on a stream that has ended")
        self._last = number
        if self._is_leaving or len(self.calls) + len(self._streams) >= MAX_CALLS:
            self._write(http2.reset(number, http2.REFUSED_STREAM))
            return
        if headers.get(b":method") != b"POST" or not headers.get(b"content-type", b"").startswith(b"application/grpc"):
            ends = http2.END_HEADERS | http2.END_STREAM
            self._write(http2.frame(http2.HEADERS, ends, number, _NOT_GRPC))
            return
        call = Call(self._deadline(headers.get(b"grpc-timeout")))
        stream = self._streams[number] = _Stream(headers.get(b":path", b""), call, self._initial_window)
        if is_end:
            self._run(number, stream)

    def _deadline(self, written: bytes | None) -> float | None:
        if not written or not written[:-1].isdigit() or len(written) > 9 or written[-1] not in _TIMEOUT_UNITS:
            return None
        return self._loop.time() + int(written[:-1]) * _TIMEOUT_UNITS[written[-1]]

    def _take_data(self, flags: int, number: int, payload: bytes) -> None:
        self._consumed += len(payload)
        if self._consumed > _WINDOW >> 1:
            self._write(http2.window_update(0, self._consumed))
            self._consumed = 0
        stream = self._streams.get(number)
        if stream is None or stream.is_read:
            if number > self._last or not number & 1:
                raise ProtocolError(http2.PROTOCOL_ERROR, "DATA on a stream that was not opened")
            return
        body = http2.unpadded(http2.DATA, flags, payload) if flags & http2.PADDED else payload
        if len(stream.body) + len(body) > MAX_MESSAGE + 5:
            stream.is_read = True
            self._fail(number, stream, Code.RESOURCE_EXHAUSTED, "the request is larger than 4 MiB")
        elif not self._service.budget.take(len(body), len(stream.body) + len(body)):
            stream.is_read = True
            self._fail(number, stream, Code.RESOURCE_EXHAUSTED, "too many large requests at the same time")
        else:
            stream.body += body
            if flags & http2.END_STREAM:
                self._run(number, stream)

    def _forget(self, stream: _Stream) -> None:
        """The request that was read so far is not needed any more."""
        self._service.budget.used -= len(stream.body)
        stream.body = bytearray()

    def _take_reset(self, flags: int, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ProtocolError(http2.FRAME_SIZE_ERROR, "RST_STREAM of a wrong size")
        if number > self._last or number == 0:
            raise ProtocolError(http2.PROTOCOL_ERROR, "RST_STREAM on a stream that was not opened")
        stream = self._streams.pop(number, None)
        if stream is not None:
            stream.call.is_gone = True
            self._forget(stream)

    def _take_settings(self, flags: int, stream: int, payload: bytes) -> None:
        if stream:
            raise ProtocolError(http2.PROTOCOL_ERROR, "SETTINGS on a stream")
        if flags & http2.ACK:
            return
        for key, value in http2.read_settings(payload):
            if key == http2.INITIAL_WINDOW_SIZE:
                for open_stream in self._streams.values():
                    open_stream.window += value - self._initial_window
                self._initial_window = value
            elif key == http2.MAX_FRAME_SIZE:
                self._max_frame = value
        self._write(_SETTINGS_ACK)
        if self._streams:
            self._flush()

    def _take_ping(self, flags: int, stream: int, payload: bytes) -> None:
        if len(payload) != 8 or stream:
            raise ProtocolError(http2.FRAME_SIZE_ERROR, "PING of a wrong size")
        if not flags & http2.ACK:
            self._write(http2.frame(http2.PING, http2.ACK, 0, payload))

    def _take_goaway(self, flags: int, stream: int, payload: bytes) -> None:
        self._is_leaving = True
        self._end_if_idle()

    def _take_window_update(self, flags: int, number: int, payload: bytes) -> None:
        more = int.from_bytes(payload, "big") & http2.MAX_WINDOW
        if len(payload) != 4 or not more:
            raise ProtocolError(http2.PROTOCOL_ERROR, "WINDOW_UPDATE of nothing, or of a wrong size")
        stream = self._streams.get(number)
        if number == 0:
            self._window += more
        elif stream is not None:
            stream.window += more
        if self._window > http2.MAX_WINDOW or (stream is not None and stream.window > http2.MAX_WINDOW):
            raise ProtocolError(http2.FLOW_CONTROL_ERROR, "a window that is too large")
        self._flush()

    def _take_push(self, flags: int, stream: int, payload: bytes) -> None:
        raise ProtocolError(http2.PROTOCOL_ERROR, "PUSH_PROMISE from a caller")

    # Serving

    def _run(self, number: int, stream: _Stream) -> None:
        stream.is_read = True
        handler = self._service.handlers.get(stream.method)
        if handler is None:
            self._fail(number, stream, Code.UNIMPLEMENTED, f"unknown method {shown(stream.method)}")
            return
        body = bytes(stream.body)
        if len(body) < 5 or len(body) - 5 != int.from_bytes(body[1:5], "big"):
            self._fail(number, stream, Code.INTERNAL, "the request is not exactly one message")
        elif body[0]:
            self._fail(number, stream, Code.UNIMPLEMENTED, "compressed requests are not supported")
        else:
            task = self._loop.create_task(self._serve(number, stream, handler, body[5:]))
            # It counts until it is answered, whatever becomes of the stream.
            size, stream.body = len(stream.body), bytearray()
            self.calls.add(task)
            task.add_done_callback(partial(self._finished, size))

    async def _serve(self, number: int, stream: _Stream, handler: Handler, message: bytes) -> None:
        began = perf_counter()
        try:
            answer = await handler(message, stream.call)
        except Failed as err:
            self._fail(number, stream, err.code, err.message, began)
            return
        except Exception:
            log.exception("grpc.bug", method=shown(stream.method))
            self._fail(number, stream, Code.INTERNAL, "internal error, see the daemon's log", began)
            return
        self._service.done(stream.method, Code.OK, "", perf_counter() - began, stream.call.notes)
        data = b"\x00" + len(answer).to_bytes(4, "big") + answer
        self._answer(number, stream, data)

    def _finished(self, size: int, task: asyncio.Task[None]) -> None:
        self._service.budget.used -= size
        self.calls.discard(task)
        self._end_if_idle()

    def _answer(self, number: int, stream: _Stream, data: bytes) -> None:
        if number not in self._streams:
            return
        head = http2.frame(http2.HEADERS, http2.END_HEADERS, number, _ANSWER)
        tail = http2.frame(http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, number, _TRAILER_OK)
        size = len(data)
        if size <= stream.window and size <= self._window and size <= self._max_frame:
            self._window -= size
            del self._streams[number]
            self._write(head + http2.frame(http2.DATA, 0, number, data) + tail)
            return
        self._write(head)
        stream.pending, stream.trailers = data, tail
        self._flush()

    def _flush(self) -> None:
        """Send what waits for the caller's permission."""
        for number, stream in list(self._streams.items()):
            while stream.pending:
                size = min(len(stream.pending), stream.window, self._window, self._max_frame)
                if size <= 0:
                    break
                piece, stream.pending = stream.pending[:size], stream.pending[size:]
                stream.window -= size
                self._window -= size
                self._write(http2.frame(http2.DATA, 0, number, piece))
            if stream.trailers and not stream.pending:
                del self._streams[number]
                self._write(stream.trailers)
        self._end_if_idle()

    def _fail(self, number: int, stream: _Stream, code: Code, message: str, began: float | None = None) -> None:
        seconds = perf_counter() - began if began is not None else 0.0
        self._service.done(stream.method, code, message, seconds, stream.call.notes)
        self._forget(stream)
        if self._streams.pop(number, None) is None:
            return
        block = _ANSWER + literal(b"grpc-status", str(int(code)).encode())
        block += literal(
            b"grpc-message", quote(message[:_MAX_TEXT], safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~").encode()
        )
        self._write(http2.frame(http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, number, block))

    # Writing

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _close(self, code: int, message: str) -> None:
        log.v(2).info("grpc.protocol_error", error=message)
        self._write(http2.goaway(self._last, code, message))
        if self._transport is not None:
            self._transport.close()

    def _end_if_idle(self) -> None:
        if self._is_leaving and not self.calls and not self._streams and self._transport is not None:
            self._transport.close()


def shown(method: bytes) -> str:
    """A method's name, which may be anything, as people read it."""
    return method.decode("utf-8", "replace")[:200]


_TAKE: Mapping[int, Callable[[Connection, int, int, bytes], None]] = {
    http2.DATA: Connection._take_data,
    http2.HEADERS: Connection._take_headers,
    http2.CONTINUATION: Connection._take_continuation,
    http2.RST_STREAM: Connection._take_reset,
    http2.SETTINGS: Connection._take_settings,
    http2.PUSH_PROMISE: Connection._take_push,
    http2.PING: Connection._take_ping,
    http2.GOAWAY: Connection._take_goaway,
    http2.WINDOW_UPDATE: Connection._take_window_update,
}
