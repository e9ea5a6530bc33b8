"""One unary gRPC call over a unix socket: what asking the container runtime needs.

In: a socket's path, a method, a message. Out: the answer's message, or `CallFailed`. One connection for one call.
"""

from __future__ import annotations

import asyncio
from urllib.parse import unquote

from bedplate.core import errors
from bedplate.ipam.node import http2
from bedplate.ipam.node.hpack import HeaderDecoder, HeaderError, literal
from bedplate.ipam.node.http2 import Code

__all__ = ["CallFailed", "call"]

MAX_ANSWER = 16 << 20
_MAX_HEADERS = 64 << 10


class CallFailed(errors.Unavailable):
    """No response, or the call failed; `code` is None if there was no status."""

    def __init__(self, message: str, *, code: Code | None = None) -> None:
        super().__init__(message)
        self.code = code


async def call(path: str, method: str, message: bytes, *, timeout_s: float) -> bytes:
    """Make the call."""
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                writer.write(_request(method, message))
                return await _Answer(reader, writer).read()
            finally:
                writer.close()
    except TimeoutError as err:
        raise CallFailed(f"{path}: no answer to {method} within {timeout_s:g} s") from err
    except (OSError, EOFError) as err:
        raise CallFailed(f"{path}: {str(err) or 'the connection was closed'}") from err
    except (http2.ProtocolError, HeaderError) as err:
        raise CallFailed(f"{path}: it does not speak gRPC: {err}") from err


def _request(method: str, message: bytes) -> bytes:
    headers = (
        b"\x83\x86"  # POST, http
        + literal(b":path", method.encode())
        + literal(b":authority", b"localhost")
        + literal(b"te", b"trailers")
        + literal(b"content-type", b"application/grpc")
        + literal(b"user-agent", b"bedplate-ipam-node")
    )
    return (
        http2.PREFACE
        + http2.settings({http2.INITIAL_WINDOW_SIZE: MAX_ANSWER})
        + http2.window_update(0, MAX_ANSWER)
        + http2.frame(http2.HEADERS, http2.END_HEADERS, 1, headers)
        + http2.frame(http2.DATA, http2.END_STREAM, 1, b"\x00" + len(message).to_bytes(4, "big") + message)
    )


class _Answer:
    """Reads frames until the call has ended."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = HeaderDecoder()
        self._headers: dict[bytes, bytes] = {}
        self._block = b""
        self._body: list[bytes] = []
        self._size = 0
        self._is_end = False

    async def read(self) -> bytes:
        while not await self._step():
            pass
        return self._message()

    async def _step(self) -> bool:
        """Take one frame; whether it was the last."""
        head = await self._reader.readexactly(http2.HEADER_BYTES)
        length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        if length > http2.DEFAULT_FRAME:
            raise http2.ProtocolError(http2.FRAME_SIZE_ERROR, "a frame that is too large")
        payload = await self._reader.readexactly(length)
        match kind:
            case http2.SETTINGS if not flags & http2.ACK:
                self._writer.write(http2.frame(http2.SETTINGS, http2.ACK, 0))
            case http2.PING if not flags & http2.ACK:
                self._writer.write(http2.frame(http2.PING, http2.ACK, 0, payload))
            case http2.DATA:
                self._take_data(http2.unpadded(http2.DATA, flags, payload))
                self._is_end = bool(flags & http2.END_STREAM)
            case http2.HEADERS | http2.CONTINUATION:
                self._take_block(kind, flags, payload)
                self._is_end |= kind == http2.HEADERS and bool(flags & http2.END_STREAM)
            case http2.RST_STREAM | http2.GOAWAY:
                raise CallFailed("the other side ended the call")
        return self._is_end and not self._block

    def _take_data(self, piece: bytes) -> None:
        self._body.append(piece)
        self._size += len(piece)
        if self._size > MAX_ANSWER:
            raise CallFailed(f"the response is larger than {MAX_ANSWER >> 20} MiB")

    def _take_block(self, kind: int, flags: int, payload: bytes) -> None:
        self._block += http2.unpadded(kind, flags, payload) if kind == http2.HEADERS else payload
        if len(self._block) > _MAX_HEADERS:
            raise http2.ProtocolError(http2.ENHANCE_YOUR_CALM, "headers without end")
        if flags & http2.END_HEADERS:
            self._headers.update(self._decoder.decode(self._block))
            self._block = b""

    def _message(self) -> bytes:
        status = self._headers.get(b"grpc-status", b"")
        if self._headers.get(b":status") != b"200" or not status.isdigit():
            raise CallFailed(f"the response is not gRPC (HTTP status {self._headers.get(b':status', b'?').decode()})")
        if status != b"0":
            text = unquote(self._headers.get(b"grpc-message", b"").decode("utf-8", "replace"))
            number = int(status)
            code = Code(number) if number in Code._value2member_map_ else Code.UNKNOWN
            raise CallFailed(f"{code.name}: {text}", code=code)
        body = b"".join(self._body)
        if len(body) < 5 or body[0] or int.from_bytes(body[1:5], "big") != len(body) - 5:
            raise CallFailed("the response is not exactly one message")
        return body[5:]
