"""A caller of a gRPC connection without a network: the `h2` library on one side, our `Connection` on the other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings

from bedplate.ipam.node import http2
from bedplate.ipam.node.grpcconnection import Budget, Call, Connection, Handler
from bedplate.ipam.node.http2 import Code

METHOD = b"/test.Service/Echo"
HEADERS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", METHOD.decode()),
    (":authority", "localhost"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]


def framed(message: bytes) -> bytes:
    return b"\x00" + len(message).to_bytes(4, "big") + message


class Wire(asyncio.Transport):
    """Where a connection writes."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.is_closed = False

    def write(self, data: Any) -> None:
        assert not self.is_closed
        self.sent += data

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def take(self) -> bytes:
        sent, self.sent = self.sent, b""
        return sent


class Served:
    """What the connection belongs to."""

    def __init__(self, handler: Handler) -> None:
        self.handlers: Mapping[bytes, Handler] = {METHOD: handler}
        self.ends: list[tuple[bytes, Code]] = []
        self.connections: set[Connection] = set()
        self.budget = Budget()

    def admits(self, transport: asyncio.BaseTransport) -> bool:
        return True

    def started(self, connection: Connection) -> None:
        self.connections.add(connection)

    def ended(self, connection: Connection) -> None:
        self.connections.discard(connection)

    def done(self, method: bytes, code: Code, message: str, seconds: float, notes: Mapping[str, object]) -> None:
        self.ends.append((method, code))


class Peer:
    """A caller: the `h2` library, which complains about every fault of the other side."""

    def __init__(self, handler: Handler) -> None:
        self.served = Served(handler)
        self.wire = Wire()
        self.connection = Connection(self.served, asyncio.get_running_loop())
        self.connection.connection_made(self.wire)
        self.client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.client.initiate_connection()
        self.events: list[Any] = []

    def push(self) -> None:
        """Send what the client has, and read what comes back, until nothing moves."""
        while True:
            data = self.client.data_to_send()
            if data:
                self.connection.data_received(data)
            answer = self.wire.take()
            if answer:
                self.events += self.client.receive_data(answer)
            if not data and not answer:
                return

    async def settle(self) -> None:
        for _ in range(20):
            self.push()
            await asyncio.sleep(0)

    def call(self, message: bytes, headers: list[tuple[str, str]] = HEADERS, *, is_end: bool = True) -> int:
        number = self.client.get_next_available_stream_id()
        self.client.send_headers(number, headers)
        self.client.send_data(number, framed(message), end_stream=is_end)
        return number

    def answer(self, number: int) -> tuple[bytes, dict[str, str]]:
        """Data and all headers of a stream."""
        data, headers = b"", {}
        for event in self.events:
            if getattr(event, "stream_id", None) != number:
                continue
            if isinstance(event, h2.events.DataReceived):
                data += event.data
            elif isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                headers.update(dict(event.headers))
        return data, headers

    def has(self, kind: type) -> Any:
        return next((event for event in self.events if isinstance(event, kind)), None)


async def echo(message: bytes, call: Call) -> bytes:
    return message


HELLO = http2.PREFACE + http2.settings({})
