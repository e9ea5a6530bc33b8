"""The HTTP client against servers that write what they like: kept connections, cut answers, floods, late ones."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import itertools
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.waiting import until

from bedplate.kube import http

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Talk = Callable[["Peer", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Peer:
    """A server on a socket. `talk` says what happens on one connection."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self.url = ""
        self.connections = self.requests = self.closed = 0

    async def take(self, reader: asyncio.StreamReader) -> bytes:
        """One request without a body; nothing when the client has left."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
        self.requests += 1
        return head

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._talk(self, reader, writer)
        except ConnectionError:
            pass
        finally:
            self.closed += 1
            writer.transport.abort()


@contextlib.asynccontextmanager
async def serving(talk: Talk | bytes, host: str = "127.0.0.1") -> AsyncIterator[tuple[Peer, http.Pool, http.Origin]]:
    """A peer that answers every request with these bytes, or does as told; a pool, and where the peer is."""
    peer = Peer(answering(talk) if isinstance(talk, bytes) else talk)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(peer.serve(reader, writer)))

    server = await asyncio.start_server(accept, host, 0)
    shown = f"[{host}]" if ":" in host else host
    peer.url = f"http://{shown}:{server.sockets[0].getsockname()[1]}"
    pool = http.Pool(30.0)
    try:
        yield peer, pool, http.Origin(peer.url)
    finally:
        await pool.close()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answering(answer: bytes, *, then_close: bool = False) -> Talk:
    async def talk(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await peer.take(reader):
            writer.write(answer)
            if then_close:
                await writer.drain()
                writer.close()
                return

    return talk


async def ask(pool: http.Pool, origin: http.Origin, method: str = "GET", **more: Any) -> tuple[int, bytes]:
    answer = await pool.send(
        origin, None, method, "/x", b"", more.pop("body", None), **{"timeout_s": 60.0, "connect_s": 60.0, **more}
    )
    try:
        return answer.status, await answer.read()
    finally:
        answer.release()


def chunked(*parts: bytes, end: bytes = b"0\r\n\r\n", headers: bytes = b"") -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + headers + b"\r\n" + body + end


def sized(body: bytes, headers: bytes = b"", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n" % size + headers + b"\r\n" + body


# Whole answers


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (OK, (200, b"ok")),
        (chunked(b"o", b"k"), (200, b"ok")),
        (chunked(b"ok", end=b"0\r\nX-Trailer: 1\r\n\r\n"), (200, b"ok")),
        (b"HTTP/1.1 204 No Content\r\n\r\n", (204, b"")),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", (304, b"")),
        (b"HTTP/1.1 404\r\nContent-Length: 0\r\n\r\n", (404, b"")),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, (200, b"ok")),
    ],
)
async def test_an_answer_is_read_to_its_end_and_its_connection_kept(answer: bytes, expected: tuple[int, bytes]) -> None:
    async with serving(answer) as (peer, pool, origin):
        for _ in range(3):
            assert await ask(pool, origin) == expected
        assert (peer.requests, peer.connections) == (3, 1)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\n\r\nok", b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"])
async def test_a_body_may_end_with_the_connection(answer: bytes) -> None:
    async with serving(answering(answer, then_close=True)) as (peer, pool, origin):
        assert await ask(pool, origin) == (200, b"ok")
        assert await ask(pool, origin) == (200, b"ok")
        assert peer.connections == 2


async def test_a_connection_that_the_server_wants_closed_is_not_used_again() -> None:
    async with serving(sized(b"ok", b"Connection: close\r\n")) as (peer, pool, origin):
        assert await ask(pool, origin) == (200, b"ok")
        await until(lambda: peer.closed == 1)
        assert await ask(pool, origin) == (200, b"ok")
        assert peer.connections == 2


async def test_the_answer_to_head_has_no_body_whatever_it_announces() -> None:
    async with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n") as (_, pool, origin):
        assert await ask(pool, origin, "HEAD") == (200, b"")
        assert await ask(pool, origin, "HEAD") == (200, b"")


async def test_what_is_sent_is_what_was_given() -> None:
    seen: list[bytes] = []

    async def talk(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await peer.take(reader):
            seen.append(head + (await reader.readexactly(3) if b"Content-Length: 3" in head else b""))
            writer.write(OK)

    async with serving(talk) as (peer, pool, origin):
        await ask(pool, origin, "POST", body=b"{=}")
        await ask(pool, origin, "PUT")
        await ask(pool, origin, "DELETE")
    host = peer.url.removeprefix("http://").encode()
    assert seen == [
        b"POST /x HTTP/1.1\r\nHost: " + host + b"\r\nContent-Length: 3\r\n\r\n{=}",
        b"PUT /x HTTP/1.1\r\nHost: " + host + b"\r\nContent-Length: 0\r\n\r\n",
        b"DELETE /x HTTP/1.1\r\nHost: " + host + b"\r\n\r\n",
    ]


async def test_headers_are_found_by_their_names_in_lower_case() -> None:
    async with serving(sized(b"", b"Warning: one\r\nwarning: tw\xc3\xb6\r\nX-Y: z\r\n")) as (_, pool, origin):
        answer = await pool.send(origin, None, "GET", "/", b"", None, timeout_s=60.0, connect_s=60.0)
        assert answer.headers["x-y"] == "z" and answer.all(b"warning") == ["one", "twö"]


# Connections


async def test_a_connection_that_the_server_closed_while_idle_is_replaced() -> None:
    async with serving(answering(OK, then_close=True)) as (peer, pool, origin):
        for _ in range(3):
            assert await ask(pool, origin) == (200, b"ok")
            await until(lambda: not pool._open)
        assert peer.connections == 3


async def test_a_kept_connection_that_breaks_under_a_request_is_lost_and_nothing_is_sent_twice() -> None:
    async def talk(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await peer.take(reader)
        writer.write(OK)
        await peer.take(reader)

    async with serving(talk) as (peer, pool, origin):
        assert await ask(pool, origin) == (200, b"ok")
        with pytest.raises(http.Lost):
            await ask(pool, origin)
        assert (peer.requests, peer.connections) == (2, 1)


@pytest.mark.parametrize("more", [b"HTTP/1.1 200 OK\r\n\r\n", b"x", OK])
async def test_a_connection_on_which_more_came_than_was_asked_is_not_used_again(more: bytes) -> None:
    async with serving(OK + more) as (peer, pool, origin):
        assert await ask(pool, origin) == (200, b"ok")
        assert await ask(pool, origin) == (200, b"ok")
        assert peer.connections == 2


async def test_what_comes_while_nothing_was_asked_closes_the_connection() -> None:
    late = asyncio.Event()

    async def talk(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await peer.take(reader)
        writer.write(OK)
        await late.wait()
        writer.write(OK)
        await reader.read()

    async with serving(talk) as (peer, pool, origin):
        assert await ask(pool, origin) == (200, b"ok")
        late.set()
        await until(lambda: not pool._open)
        assert await ask(pool, origin) == (200, b"ok")
        assert peer.connections == 2


async def test_idle_connections_end_after_their_time() -> None:
    async with serving(OK) as (peer, _, origin):
        pool = http.Pool(0.05)
        await ask(pool, origin)
        await until(lambda: peer.closed == 1)
        assert not pool._open and not pool._idle
        await ask(pool, origin)
        await pool.close()
        assert peer.connections == 2


async def test_closing_ends_what_is_under_way() -> None:
    async with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n") as (peer, pool, origin):
        asking = asyncio.ensure_future(ask(pool, origin))
        await until(lambda: peer.requests == 1)
        await pool.close()
        with pytest.raises(http.Lost, match="closed"):
            await asking
        with pytest.raises(http.Unreached, match="closed"):
            await ask(pool, origin)
        await until(lambda: peer.closed == 1)


async def test_nobody_there_means_that_nothing_was_sent() -> None:
    pool = http.Pool(30.0)
    with pytest.raises(http.Unreached, match=r"127\.0\.0\.1:1"):
        await ask(pool, http.Origin("http://127.0.0.1:1"))
    with pytest.raises(http.Unreached, match=r"cloud\.invalid"):
        await ask(pool, http.Origin("http://cloud.invalid"))
    await pool.close()


async def test_of_several_addresses_the_one_that_answers_is_used() -> None:
    async with serving(OK) as (_, _, origin):

        class Loop:
            def __getattr__(self, name: str) -> Any:
                return getattr(asyncio.get_running_loop(), name)

            async def getaddrinfo(self, host: str, port: int, **more: Any) -> list[Any]:
                rest = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
                return [(*rest, ("127.0.0.1", 1)), (*rest, ("127.0.0.1", port))]

        found: Any = Loop()
        connected = await http._dial(found, "name", origin.port)
        assert connected.getpeername() == ("127.0.0.1", origin.port)
        connected.close()


async def test_a_time_limit_covers_the_connection_too() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=1)
    try:
        pool = http.Pool(30.0)
        context = ssl.create_default_context()
        origin = http.Origin(f"https://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(http.Unreached, match="in time"):
            await pool.send(origin, context, "GET", "/", b"", None, timeout_s=0.05, connect_s=60.0)
        await pool.close()
    finally:
        listener.close()


# Answers that are none


CUT = {
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "head alone": sized(b"", length=2),
    "half a body": sized(b"o", length=2),
    "chunk too few": chunked(b"ok", end=b""),
    "half a chunk": chunked(end=b"5\r\nok"),
    "no end of trailers": chunked(b"ok", end=b"0\r\nX: y\r\n"),
    "interim alone": b"HTTP/1.1 100 Continue\r\n\r\n",
}


@pytest.mark.parametrize("answer", CUT.values(), ids=CUT)
@pytest.mark.parametrize("half", [False, True])
async def test_a_cut_answer_is_lost(answer: bytes, half: bool) -> None:
    async def talk(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await peer.take(reader)
        writer.write(answer)
        if half:
            # The server ends its side alone, and waits.
            writer.write_eof()
            await reader.read()

    async with serving(talk) as (peer, pool, origin):
        with pytest.raises(http.Lost):
            await ask(pool, origin)
        await until(lambda: not pool._open and peer.closed == 1)
        assert peer.requests == 1


GARBAGE = {
    "another protocol": b"SSH-2.0-OpenSSH_9.0\r\n",
    "another version": b"HTTP/9.9 200 OK\r\n\r\n",
    "no status": b"HTTP/1.1 OK\r\n\r\n",
    "bad header": b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
    "bad length": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nokk",
    "length and chunks": chunked(b"ok", headers=b"Content-Length: 2\r\n"),
    "bad chunk": chunked(end=b"zz\r\nok\r\n"),
    "switched": b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nhello",
    "unknown encoding": sized(b"ok", b"Content-Encoding: br\r\n"),
    "not gzip": sized(b"ok", b"Content-Encoding: gzip\r\n"),
    "half a gzip": sized(gzip.compress(b"ok")[:-6], b"Content-Encoding: gzip\r\n"),
    "empty gzip cut": sized(gzip.compress(b"")[:5], b"Content-Encoding: gzip\r\n"),
    "more after gzip": sized(gzip.compress(b"ok") + b"more", b"Content-Encoding: gzip\r\n"),
}


@pytest.mark.parametrize("answer", GARBAGE.values(), ids=GARBAGE)
async def test_what_is_not_an_answer_is_lost(answer: bytes) -> None:
    async with serving(answer) as (peer, pool, origin):
        with pytest.raises(http.Lost):
            await ask(pool, origin)
        assert peer.requests == 1


FLOODS = {
    "a line": (b"HTTP/1.1 200 OK\r\nX: ", b"x" * 1000),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X: " + b"x" * 1000 + b"\r\n"),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 50),
    "a trailer": (chunked(b"ok", end=b"0\r\nX: "), b"x" * 1000),
    "trailers": (chunked(b"ok", end=b"0\r\n"), b"X: " + b"x" * 1000 + b"\r\n"),
    "chunk extensions": (chunked(b"ok", end=b"5;"), b"x" * 1000),
    "reason": (b"HTTP/1.1 200 ", b"x" * 1000),
}


@pytest.mark.parametrize(("start", "flood"), FLOODS.values(), ids=FLOODS)
async def test_an_endless_head_is_given_up(start: bytes, flood: bytes) -> None:
    async def talk(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await peer.take(reader)
        writer.write(start)
        while True:
            writer.write(flood)
            await writer.drain()

    async with serving(talk) as (peer, pool, origin):
        with pytest.raises(http.Lost, match="longer than"):
            await ask(pool, origin)
        await until(lambda: peer.closed == 1)


@pytest.mark.parametrize(
    "answer",
    [
        sized(b"x" * 101),
        chunked(b"x" * 60, b"x" * 60),
        sized(gzip.compress(b"x" * 1_000_000), b"Content-Encoding: gzip\r\n"),
    ],
    ids=["sized", "chunked", "gzip"],
)
async def test_a_body_over_the_limit_is_lost(answer: bytes) -> None:
    async with serving(answer) as (_, pool, origin):
        with pytest.raises(http.Lost, match="longer than 100 bytes"):
            await ask(pool, origin, limit=100)


async def test_a_body_at_the_limit_is_read() -> None:
    body = b"x" * 100
    for answer in (sized(body), sized(gzip.compress(body), b"Content-Encoding: gzip\r\n")):
        async with serving(answer) as (_, pool, origin):
            assert await ask(pool, origin, limit=100) == (200, body)


@pytest.mark.parametrize(
    "part", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\no"], ids=["no head", "half a body"]
)
async def test_a_late_answer_is_lost_and_its_connection_closed(part: bytes) -> None:
    async with serving(part) as (peer, pool, origin):
        with pytest.raises(http.Lost, match="in time"):
            await ask(pool, origin, timeout_s=0.05)
        await until(lambda: peer.closed == 1)


async def test_a_body_that_drips_meets_the_limit_too() -> None:
    async def talk(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await peer.take(reader)
        writer.write(sized(b"", length=1_000_000))
        while not writer.is_closing():
            writer.write(b"x")
            await asyncio.sleep(0.005)

    async with serving(talk) as (_, pool, origin):
        with pytest.raises(http.Lost, match="in time"):
            await ask(pool, origin, timeout_s=0.1)


@pytest.mark.parametrize("part", [b"", b"HTTP/1.1 200 OK\r\n", sized(b"o", length=5)], ids=["none", "head", "body"])
async def test_giving_up_closes_the_connection(part: bytes) -> None:
    async with serving(part) as (peer, pool, origin):
        asking = asyncio.ensure_future(ask(pool, origin))
        await until(lambda: peer.requests == 1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await until(lambda: peer.closed == 1 and not pool._open)


async def test_giving_up_an_answer_that_has_come_leaves_its_connection_alone() -> None:
    async with serving(OK) as (peer, pool, origin):
        asking = asyncio.ensure_future(pool.send(origin, None, "GET", "/", b"", None, timeout_s=60.0, connect_s=60.0))
        while not pool._idle.get((origin, None)):
            await asyncio.sleep(0)
        # The answer is there and the connection idle, but whoever asked has not run since.
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
        assert await ask(pool, origin) == (200, b"ok")
        assert peer.connections == 1


async def test_an_answer_that_is_released_unread_costs_its_connection() -> None:
    async with serving(sized(b"o", length=5)) as (peer, pool, origin):
        answer = await pool.send(origin, None, "GET", "/", b"", None, timeout_s=60.0, connect_s=60.0)
        answer.release()
        await until(lambda: peer.closed == 1 and not pool._open)


# Streams


async def test_a_stream_hands_out_what_has_come_and_says_when_it_is_cut() -> None:
    go_on = asyncio.Event()

    async def talk(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await peer.take(reader)
        writer.write(chunked(b"one", end=b""))
        await go_on.wait()
        writer.write(b"3\r\ntwo\r\n")
        await writer.drain()

    async with serving(talk) as (_, pool, origin):
        answer = await pool.send(origin, None, "GET", "/", b"", None, timeout_s=60.0, connect_s=60.0)
        came = []
        with pytest.raises(http.Lost):
            async for chunk in answer.chunks():
                came.append(chunk)
                go_on.set()
        assert came == [b"one", b"two"]


async def test_a_compressed_stream_is_handed_out_plain() -> None:
    packed = gzip.compress(b"one two three")
    answer = chunked(packed[:9], packed[9:], headers=b"Content-Encoding: gzip\r\n")
    async with serving(answer) as (_, pool, origin):
        got = await pool.send(origin, None, "GET", "/", b"", None, timeout_s=60.0, connect_s=60.0)
        assert b"".join([chunk async for chunk in got.chunks()]) == b"one two three"


async def test_a_slow_reader_holds_the_server_up_instead_of_filling_memory() -> None:
    piece, sent = b"x" * 65536, 0

    async def talk(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await peer.take(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(400):
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            sent += len(piece)
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        # The connection is aborted after this: not before the client has read everything.
        await peer.take(reader)

    async with serving(talk) as (peer, pool, origin):
        answer = await pool.send(origin, None, "GET", "/", b"", None, timeout_s=60.0, connect_s=60.0)
        await until(lambda: answer._is_paused)
        for _ in range(50):
            await asyncio.sleep(0)
        assert answer._size <= http.HIGH_WATER_BYTES + (1 << 20)
        size = 0
        async for chunk in answer.chunks():
            size += len(chunk)
        assert size == 400 * len(piece)
        await until(lambda: bool(pool._idle.get((origin, None))))
        assert peer.connections == 1


async def test_a_body_that_is_read_whole_late_arrives_all_the_same() -> None:
    body = b"x" * (3 << 20)
    async with serving(sized(body)) as (_, pool, origin):
        answer = await pool.send(origin, None, "GET", "/", b"", None, timeout_s=60.0, connect_s=60.0)
        await until(lambda: answer._is_paused)
        assert await answer.read() == body


# What must not be sent


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\0b"])
def test_a_header_cannot_smuggle_in_another(value: str) -> None:
    with pytest.raises(http.Unreached):
        http.encode([("X-Name", value)])
    with pytest.raises(http.Unreached):
        http.encode([(f"X-{value}", "v")])


@pytest.mark.parametrize("target", ["/a b", "/a\r\nX: y", "/ä", "/a\tb"])
async def test_a_target_cannot_smuggle_in_a_header(target: str) -> None:
    async with serving(OK) as (peer, pool, origin):
        with pytest.raises(http.Unreached):
            await pool.send(origin, None, "GET", target, b"", None, timeout_s=60.0, connect_s=60.0)
        assert peer.connections == 0


@pytest.mark.parametrize(
    ("url", "authority", "shown"),
    [
        ("https://a.example", "a.example", "a.example:443"),
        ("https://a.example:443/x", "a.example", "a.example:443"),
        ("http://a.example:443", "a.example:443", "a.example:443"),
        ("http://[::1]:80", "[::1]", "[::1]:80"),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", "[fd00::1]:6443"),
        ("https://bücher.example", "xn--bcher-kva.example", "xn--bcher-kva.example:443"),
    ],
)
def test_an_origin_is_named_as_servers_expect_it(url: str, authority: str, shown: str) -> None:
    origin = http.Origin(url)
    assert (origin.authority, origin.shown) == (authority, shown)


@pytest.mark.parametrize("url", ["", "a.example", "ftp://a", "https://", "https://a:x"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        http.Origin(url)


# Any bytes at all


class _Wire(asyncio.Transport):
    """A transport that leads nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.is_shut = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def is_closing(self) -> bool:
        return self.is_shut

    def close(self) -> None:
        self.is_shut = True

    abort = close


def received(pieces: list[bytes], *, is_ended: bool) -> bytes | None:
    """The body that comes of these bytes; None when it did not come whole."""
    loop = asyncio.new_event_loop()
    try:
        pool = http.Pool(30.0)
        wire = _Wire()
        connection = http._Connection(pool, (http.Origin("http://x"), None), loop)
        connection.connection_made(wire)
        answer = http.Answer(connection, has_body=True, limit=0)
        connection.start(answer, b"", 0.0)
        for piece in pieces:
            if not wire.is_shut:
                connection.data_received(piece)
        if is_ended:
            connection.connection_lost(None)
        if pool._sweeper is not None:
            pool._sweeper.cancel()
        return b"".join(answer._parts) if answer._is_whole else None
    finally:
        loop.close()


def cut_up(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


@given(
    st.binary(max_size=200), st.lists(st.integers(0, 10_000), max_size=8), st.sampled_from(["sized", "chunked", "gzip"])
)
def test_an_answer_is_the_same_however_it_is_cut_into_pieces(body: bytes, cuts: list[int], form: str) -> None:
    parts = [body[:7], body[7:]] if len(body) > 7 else [body] if body else []
    packed = sized(gzip.compress(body), b"Content-Encoding: gzip\r\n")
    answer = {"sized": sized(body), "chunked": chunked(*parts), "gzip": packed}[form]
    assert received(cut_up(answer, cuts), is_ended=False) == body
    for end in {cut % len(answer) for cut in cuts}:
        assert received(cut_up(answer[:end], cuts), is_ended=True) is None, "a part of it is not an answer"


@given(
    st.lists(st.one_of(st.binary(max_size=40), st.sampled_from([OK, chunked(b"x"), *CUT.values(), *GARBAGE.values()])))
)
def test_no_bytes_at_all_raise_or_are_taken_for_more_than_they_are(pieces: list[bytes]) -> None:
    body = received(pieces, is_ended=True)
    assert body is None or body in b"".join(pieces) or body == b"ok"
