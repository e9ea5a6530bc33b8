"""The client's HTTP: what comes over a connection, byte by byte, and every way it can end."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.waiting import DEADLINE_S

from bedplate.client.http import Http, Lost, Reply, Unreached
from bedplate.core import errors

Answering = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Peer:
    """A server that says exactly these bytes, one text per request, and remembers what it was asked."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        self.asked: list[bytes] = []
        self.connections = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/x"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while self._answers:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next((line.split(b":")[1] for line in head.split(b"\r\n") if b"ength" in line), b"0")
                self.asked.append(head + await reader.readexactly(int(length)))
                writer.write(self._answers.pop(0))
                await writer.drain()
                if self._answers and self._answers[0] == b"":
                    self._answers.pop(0)
                    break
        writer.close()


@contextlib.asynccontextmanager
async def peer(*answers: bytes) -> AsyncIterator[Peer]:
    made = Peer(*answers)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    made = Http(ssl.create_default_context, {"Authorization": "Bearer t"})
    yield made
    await made.close()


async def ask(
    http: Http, url: str, method: str = "GET", body: bytes | None = None, timeout_s: float = DEADLINE_S
) -> Reply:
    return await http.request(method, url, query={"a": "b c"}, headers={}, body=body, timeout_s=timeout_s)


async def test_a_request_says_what_it_must(http: Http) -> None:
    async with peer(b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nETag: "7"\r\n\r\nok') as other:
        reply = await ask(http, other.url, "POST", b"{}")
    assert (reply.status, reply.body, reply.headers.get("etag")) == (200, b"ok", '"7"')
    (asked,) = other.asked
    assert asked.startswith(b"POST /x?a=b%20c HTTP/1.1\r\nHost: 127.0.0.1:")
    for part in (b"\r\nAuthorization: Bearer t\r\n", b"\r\nContent-Length: 2\r\n", b"\r\n\r\n{}"):
        assert part in asked


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 25\r\n\r\n" + gzip.compress(b"abcde", mtime=0),
    ],
)
async def test_a_body_is_read_whole_in_every_form_and_the_connection_kept(http: Http, answer: bytes) -> None:
    async with peer(answer, answer) as other:
        assert (await ask(http, other.url)).body == b"abcde"
        assert (await ask(http, other.url)).body == b"abcde"
    assert other.connections == 1


async def test_a_body_without_a_length_ends_with_the_connection(http: Http) -> None:
    async with peer(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc", b"") as other:
        assert (await ask(http, other.url)).body == b"abc"


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_without_a_body_is_not_waited_for(http: Http, status: int) -> None:
    answer = f"HTTP/1.1 {status} X\r\nContent-Length: 10\r\n\r\n".encode()
    async with peer(answer) as other:
        assert await ask(http, other.url) == Reply(status, {"content-length": "10"}, b"")


async def test_a_connection_that_was_closed_meanwhile_is_not_used_again(http: Http) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    async with peer(answer, b"", answer) as other:
        await ask(http, other.url)
        for _ in range(1000):  # until the end of the first connection has arrived here
            await asyncio.sleep(0)
            if all(not link.is_usable for links in http._idle.values() for link in links):
                break
            await asyncio.sleep(0.01)
        assert (await ask(http, other.url)).body == b"ok"
    assert other.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno number\r\n",
        b"HTTP/1.1 what\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000 + b"\r\n",
    ],
)
async def test_an_answer_that_is_not_whole_is_lost(http: Http, answer: bytes) -> None:
    async with peer(answer, b"") as other:
        with pytest.raises(Lost):
            await ask(http, other.url)
    assert not any(http._idle.values())


async def test_nobody_at_an_address_is_told_apart_from_a_lost_answer(http: Http) -> None:
    async with peer() as other:
        url = other.url
    with pytest.raises(Unreached):
        await ask(http, url)


async def test_silence_ends_after_the_time_that_was_given(http: Http) -> None:
    async with peer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", b"x") as other:
        with pytest.raises(TimeoutError):
            await ask(http, other.url, timeout_s=0.2)


async def test_plain_http_where_tls_was_wanted_is_no_connection(http: Http) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(Unreached):
        await ask(http, f"https://127.0.0.1:{port}/x")
    server.close()


@pytest.mark.parametrize("url", ["ftp://a/b", "nonsense", "https:///x", "https://a:b/", "https://a:99999/"])
async def test_what_is_no_url_is_refused(http: Http, url: str) -> None:
    with pytest.raises(errors.Invalid):
        await ask(http, url)


async def test_a_line_break_in_a_header_is_refused(http: Http) -> None:
    with pytest.raises(errors.Invalid):
        await http.request("GET", "http://h/", query={}, headers={"X": "a\r\nY: b"}, body=None, timeout_s=1.0)


async def test_a_stream_is_read_as_it_comes_and_ends_with_silence(http: Http) -> None:
    said = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
    async with (
        peer(said, b"x") as other,
        http.stream("GET", other.url, query={}, headers={}, timeout_s=DEADLINE_S, idle_s=0.2) as answer,
    ):
        assert answer.status == 200
        assert await anext(answer.chunks) == b"abc"
        with pytest.raises(TimeoutError):
            await anext(answer.chunks)


async def test_a_stream_that_is_cut_is_lost(http: Http) -> None:
    said = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
    async with (
        peer(said, b"") as other,
        http.stream("GET", other.url, query={}, headers={}, timeout_s=DEADLINE_S, idle_s=0.0) as answer,
    ):
        assert await anext(answer.chunks) == b"abc"
        with pytest.raises(Lost):
            await anext(answer.chunks)


async def test_a_request_that_goes_both_ways_takes_a_kept_connection_and_ends_it(http: Http) -> None:
    plain, chunked = (
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n",
    )
    async with peer(plain, chunked + b"\r\n2\r\nhi\r\n0\r\n\r\n", plain) as other:
        await ask(http, other.url)
        async with http.duplex(
            other.url, headers={}, timeout_s=DEADLINE_S, answer_s=DEADLINE_S, idle_s=DEADLINE_S
        ) as duplex:
            assert [chunk async for chunk in duplex.chunks] == [b"hi"]
        assert other.connections == 1
        await ask(http, other.url)
        assert other.connections == 2, "what a request that goes both ways leaves of a connection is not used again"


async def test_a_request_that_goes_both_ways_does_not_wait_for_a_peer_that_fell_silent(http: Http) -> None:
    """As after a loss of power, which closes no connection."""
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
        await over.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
    async with (
        server,
        http.duplex(url, headers={}, timeout_s=DEADLINE_S, answer_s=DEADLINE_S, idle_s=0.05) as duplex,
    ):
        assert await anext(duplex.chunks) == b"hi"
        with pytest.raises(Lost, match=r"said nothing for 0\.05 s"):
            await anext(duplex.chunks)
        with pytest.raises(Lost, match=r"took nothing for 0\.05 s"):
            await duplex.send(bytes(64 << 20))
        over.set()
