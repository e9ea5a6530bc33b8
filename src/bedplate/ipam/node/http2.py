"""What gRPC says on the wire: HTTP/2 frames (RFC 9113), their numbers and writing them; and how a call can end.

In: the parts of a frame. Out: its bytes. Shared by the server and by the client of the container runtime; neither
state nor sockets are here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum

__all__ = [
    "ACK",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONTINUATION",
    "DATA",
    "DEFAULT_FRAME",
    "DEFAULT_WINDOW",
    "END_HEADERS",
    "END_STREAM",
    "ENHANCE_YOUR_CALM",
    "FLOW_CONTROL_ERROR",
    "FRAME_SIZE_ERROR",
    "GOAWAY",
    "HEADERS",
    "HEADER_BYTES",
    "INITIAL_WINDOW_SIZE",
    "MAX_CONCURRENT_STREAMS",
    "MAX_FRAME_SIZE",
    "MAX_WINDOW",
    "NO_ERROR",
    "PADDED",
    "PING",
    "PREFACE",
    "PRIORITY",
    "PRIORITY_FLAG",
    "PROTOCOL_ERROR",
    "PUSH_PROMISE",
    "REFUSED_STREAM",
    "RST_STREAM",
    "SETTINGS",
    "STREAM_CLOSED",
    "WINDOW_UPDATE",
    "Code",
    "Failed",
    "ProtocolError",
    "frame",
    "goaway",
    "read_settings",
    "reset",
    "settings",
    "unpadded",
    "window_update",
]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES = 9
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 0x1
END_HEADERS, PADDED, PRIORITY_FLAG = 0x4, 0x8, 0x20
# Settings
MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 0x3, 0x4, 0x5
DEFAULT_WINDOW, DEFAULT_FRAME, MAX_WINDOW = 65_535, 16_384, 0x7FFF_FFFF
# Error codes
NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR = 0x0, 0x1, 0x3, 0x6
STREAM_CLOSED, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 0x5, 0x7, 0x8, 0x9, 0xB

_HEAD = struct.Struct(">BHBBL")
_SETTING = struct.Struct(">HL")


class ProtocolError(Exception):
    """The peer broke the protocol; the connection ends with this error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Code(IntEnum):
    """gRPC's numbers."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Failed(Exception):
    """A call that ends with this code; the message is for people."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    length = len(payload)
    return _HEAD.pack(length >> 16, length & 0xFFFF, kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(key, value) for key, value in values.items()))


def read_settings(payload: bytes) -> Iterator[tuple[int, int]]:
    """What a SETTINGS frame says."""
    if len(payload) % _SETTING.size:
        raise ProtocolError(FRAME_SIZE_ERROR, "SETTINGS of a wrong size")
    for key, value in _SETTING.iter_unpack(payload):
        if key == INITIAL_WINDOW_SIZE and value > MAX_WINDOW:
            raise ProtocolError(FLOW_CONTROL_ERROR, "a window that is too large")
        if key == MAX_FRAME_SIZE and not DEFAULT_FRAME <= value <= 0xFF_FFFF:
            raise ProtocolError(PROTOCOL_ERROR, "a frame size that is out of range")
        yield key, value


def window_update(stream: int, more: int) -> bytes:
    """Allow the peer to send that much more."""
    return frame(WINDOW_UPDATE, 0, stream, more.to_bytes(4, "big"))


def reset(stream: int, code: int) -> bytes:
    """End a stream at once."""
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def goaway(last: int, code: int, message: str = "") -> bytes:
    """Say that no stream after `last` will be served."""
    return frame(GOAWAY, 0, 0, last.to_bytes(4, "big") + code.to_bytes(4, "big") + message.encode()[:200])


def unpadded(kind: int, flags: int, payload: bytes) -> bytes:
    """The payload of a DATA or HEADERS frame without padding and priority."""
    if flags & PADDED:
        if not payload or payload[0] >= len(payload):
            raise ProtocolError(PROTOCOL_ERROR, "more padding than payload")
        payload = payload[1 : len(payload) - payload[0]]
    if flags & PRIORITY_FLAG and kind == HEADERS:
        if len(payload) < 5:
            raise ProtocolError(FRAME_SIZE_ERROR, "HEADERS too short for their priority")
        payload = payload[5:]
    return payload
