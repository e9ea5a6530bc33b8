"""The HTTP layer, over plain sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bedplate.serving import http


class Server:
    """An application that says what it was asked, and streams on request."""

    def __init__(self) -> None:
        self.connections = http.Connections()
        self.sinks: list[http.Sink] = []
        self.release = asyncio.Event()

    def application(self, request: http.Request) -> Any:
        if request.path == "/stream":
            return http.Stream(self.sinks.append)
        if request.path == "/slow":
            return self.slow()
        said = (request.method, request.path, sorted(request.query.items()), len(request.body), request.is_too_large)
        text = " ".join(map(str, said))
        return http.Response(200, text.encode(), "text/plain")

    async def slow(self) -> http.Response:
        await self.release.wait()
        return http.Response(200, b"slow", "text/plain")


@pytest.fixture
async def served() -> AsyncIterator[tuple[Server, asyncio.StreamReader, asyncio.StreamWriter]]:
    server = Server()
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: http.Connection(server.application, server.connections), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
    yield server, reader, writer
    writer.close()
    listener.close()
    await server.connections.close(5)


async def answer(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    async with asyncio.timeout(30):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:] if line)
        return head[0], headers, await reader.readexactly(int(headers.get("Content-Length", 0)))


async def test_one_connection_serves_many_requests(served: Any) -> None:
    _, reader, writer = served
    for number in range(3):
        writer.write(f"GET /a%20b?x={number} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        line, headers, body = await answer(reader)
        assert line == "HTTP/1.1 200 OK"
        assert body.decode() == f"GET /a b [('x', '{number}')] 0 False"
        assert headers["Cache-Control"] == "no-cache, private"


async def test_pipelined_requests_are_answered_in_order(served: Any) -> None:
    server, reader, writer = served
    writer.write(b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\nGET /next HTTP/1.1\r\nHost: h\r\n\r\n")
    await asyncio.sleep(0.05)
    server.release.set()
    assert (await answer(reader))[2] == b"slow"
    assert (await answer(reader))[2].startswith(b"GET /next")


async def test_bodies_may_come_in_chunks_and_pieces(served: Any) -> None:
    _, reader, writer = served
    writer.write(b"POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    await asyncio.sleep(0.02)
    writer.write(b"2\r\nde\r\n0\r\n\r\n")
    assert b"POST /p [] 5 False" in (await answer(reader))[2]


async def test_too_large_a_body_is_taken_and_thrown_away(served: Any) -> None:
    _, reader, writer = served
    size = http.MAX_BODY_BYTES + 1
    writer.write(f"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n".encode())
    writer.write(b"x" * size)
    assert (await answer(reader))[2] == b"POST /p [] 0 True"
    writer.write(b"GET /again HTTP/1.1\r\nHost: h\r\n\r\n")
    assert b"/again" in (await answer(reader))[2]


async def test_head_has_no_body(served: Any) -> None:
    _, reader, writer = served
    writer.write(b"HEAD /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n")
    line = await reader.readuntil(b"\r\n\r\n")
    assert b"Content-Length" in line
    assert b"/b" in (await answer(reader))[2]


async def test_close_is_honoured(served: Any) -> None:
    _, reader, writer = served
    writer.write(b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    _, headers, _ = await answer(reader)
    assert headers["Connection"] == "close"
    assert await reader.read() == b""


async def test_expect_continue(served: Any) -> None:
    _, reader, writer = served
    writer.write(b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"ok")
    assert b"POST /p [] 2" in (await answer(reader))[2]


async def test_garbage_is_refused_and_the_connection_closed(served: Any) -> None:
    _, reader, writer = served
    writer.write(b"this is not HTTP\r\n\r\n")
    assert (await answer(reader))[0] == "HTTP/1.1 400 Bad Request"
    assert await reader.read() == b""


async def test_a_stream_ends_and_the_connection_goes_on(served: Any) -> None:
    server, reader, writer = served
    writer.write(b"GET /stream HTTP/1.1\r\nHost: h\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in head
    (sink,) = server.sinks
    closed: list[bool] = []
    sink.on_close = lambda: closed.append(True)
    sink.write(http.chunk(b"one\n"))
    assert await reader.readexactly(9) == b"4\r\none\n\r\n"
    sink.finish()
    assert await reader.readexactly(5) == b"0\r\n\r\n"
    assert closed == [True]
    writer.write(b"GET /after HTTP/1.1\r\nHost: h\r\n\r\n")
    assert b"/after" in (await answer(reader))[2]


async def test_a_stream_learns_that_its_reader_is_gone(served: Any) -> None:
    server, reader, writer = served
    writer.write(b"GET /stream HTTP/1.1\r\nHost: h\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    gone = asyncio.Event()
    server.sinks[0].on_close = gone.set
    writer.close()
    async with asyncio.timeout(30):
        await gone.wait()
    assert not server.sinks[0].is_open
    server.sinks[0].write(b"nobody reads this")


async def test_a_reader_that_stops_shows_as_backlog(served: Any) -> None:
    server, reader, writer = served
    writer.write(b"GET /stream HTTP/1.1\r\nHost: h\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    (sink,) = server.sinks
    frame = http.chunk(b"x" * 65536)
    for _ in range(500):
        sink.write(frame)
        await asyncio.sleep(0)
    assert sink.backlog_bytes > 0


async def test_repeated_headers_are_all_kept() -> None:
    seen: list[list[tuple[str, str]]] = []

    def application(request: http.Request) -> http.Response:
        seen.append(request.all_headers())
        return http.Response(200, b"")

    connections = http.Connections()
    listener = await asyncio.get_running_loop().create_server(
        lambda: http.Connection(application, connections), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
    writer.write(b"GET / HTTP/1.1\r\nHost: h\r\nImpersonate-Group: a\r\nimpersonate-group: b\r\n\r\n")
    await answer(reader)
    assert [value for name, value in seen[0] if name == "impersonate-group"] == ["a", "b"]
    writer.close()
    listener.close()
    await connections.close(5)
