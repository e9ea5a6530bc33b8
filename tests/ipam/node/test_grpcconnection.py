"""One caller's connection: HTTP/2 as callers of any make speak it, and as nobody should."""

from __future__ import annotations

import asyncio

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings
import pytest
from tests.ipam.node.http2peer import HEADERS, HELLO, METHOD, Peer, echo, framed

from bedplate.ipam.node import http2
from bedplate.ipam.node.grpcconnection import Call
from bedplate.ipam.node.http2 import Code, Failed


async def test_a_call_is_answered() -> None:
    peer = Peer(echo)
    number = peer.call(b"hello")
    await peer.settle()
    data, headers = peer.answer(number)
    assert data == framed(b"hello")
    assert headers == {":status": "200", "content-type": "application/grpc", "grpc-status": "0"}
    assert peer.served.ends == [(METHOD, Code.OK)]


async def test_calls_of_one_connection_do_not_wait_for_each_other() -> None:
    gate = asyncio.Event()

    async def handler(message: bytes, call: Call) -> bytes:
        if message == b"slow":
            await gate.wait()
        return message

    peer = Peer(handler)
    slow, fast = peer.call(b"slow"), peer.call(b"fast")
    await peer.settle()
    assert peer.answer(fast)[0] == framed(b"fast")
    assert peer.answer(slow)[0] == b""
    gate.set()
    await peer.settle()
    assert peer.answer(slow)[0] == framed(b"slow")


async def test_a_failure_is_told_in_trailers_alone() -> None:
    async def handler(message: bytes, call: Call) -> bytes:
        raise Failed(Code.NOT_FOUND, "no pool “ä” 100%\n")

    peer = Peer(handler)
    number = peer.call(b"")
    await peer.settle()
    data, headers = peer.answer(number)
    assert data == b""
    assert headers["grpc-status"] == "5"
    assert headers["grpc-message"] == "no pool %E2%80%9C%C3%A4%E2%80%9D 100%25%0A"


async def test_a_bug_is_an_internal_error() -> None:
    async def handler(message: bytes, call: Call) -> bytes:
        raise RuntimeError("secret")

    peer = Peer(handler)
    number = peer.call(b"")
    await peer.settle()
    headers = peer.answer(number)[1]
    assert headers["grpc-status"] == "13"
    assert "secret" not in headers["grpc-message"]


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ([*HEADERS[:2], (":path", "/test.Service/Other"), *HEADERS[3:]], framed(b""), "12"),
        (HEADERS, b"", "13"),
        (HEADERS, b"\x00\x00", "13"),
        (HEADERS, framed(b"a") + framed(b"b"), "13"),
        (HEADERS, b"\x00\x00\x00\x00\x09abc", "13"),
        (HEADERS, b"\x01\x00\x00\x00\x01a", "12"),
    ],
)
async def test_what_is_no_single_plain_message_of_a_known_method_fails(
    headers: list[tuple[str, str]], body: bytes, status: str
) -> None:
    peer = Peer(echo)
    number = peer.client.get_next_available_stream_id()
    peer.client.send_headers(number, headers, end_stream=not body)
    if body:
        peer.client.send_data(number, body, end_stream=True)
    await peer.settle()
    assert peer.answer(number)[1]["grpc-status"] == status


async def test_what_is_no_grpc_is_refused_as_http() -> None:
    peer = Peer(echo)
    number = peer.call(b"", [*HEADERS[:4], ("content-type", "application/json")])
    await peer.settle()
    assert peer.answer(number)[1][":status"] == "415"


async def test_a_request_may_come_in_any_pieces() -> None:
    peer = Peer(echo)
    number = peer.call(b"in pieces" * 50)
    data = peer.client.data_to_send()
    for position in range(len(data)):
        peer.connection.data_received(data[position : position + 1])
    await peer.settle()
    assert peer.answer(number)[0] == framed(b"in pieces" * 50)


async def test_padding_priority_and_continued_headers_are_understood() -> None:
    peer = Peer(echo)
    block = peer.client.encoder.encode([*HEADERS, ("x-long", "v" * 300)])
    head = bytes([3]) + b"\0\0\0\0\x10" + block[:20] + b"\0\0\0"
    flags = http2.PADDED | http2.PRIORITY_FLAG
    frames = peer.client.data_to_send()
    frames += http2.frame(http2.HEADERS, flags, 1, head)
    frames += http2.frame(http2.CONTINUATION, 0, 1, block[20:40])
    frames += http2.frame(http2.CONTINUATION, http2.END_HEADERS, 1, block[40:])
    frames += http2.frame(http2.PRIORITY, 0, 1, b"\0\0\0\0\x10") + http2.frame(0xEE, 0, 1, b"unknown")
    frames += http2.frame(http2.DATA, http2.PADDED | http2.END_STREAM, 1, b"\x04" + framed(b"x") + b"\0" * 4)
    peer.connection.data_received(frames)
    await asyncio.sleep(0.01)
    assert framed(b"x") in peer.wire.sent


async def test_a_large_answer_waits_for_the_callers_window() -> None:
    async def handler(message: bytes, call: Call) -> bytes:
        return b"x" * 100_000

    peer = Peer(handler)
    peer.client.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1000})
    number = peer.call(b"")
    await peer.settle()
    assert len(peer.answer(number)[0]) == 1000
    while peer.has(h2.events.StreamEnded) is None:
        before = len(peer.answer(number)[0])
        peer.client.increment_flow_control_window(30_000, number)
        peer.client.increment_flow_control_window(30_000)
        await peer.settle()
        assert len(peer.answer(number)[0]) > before
    data, headers = peer.answer(number)
    assert data == framed(b"x" * 100_000)
    assert headers["grpc-status"] == "0"


async def test_a_window_may_grow_and_shrink_while_a_call_is_served() -> None:
    gate = asyncio.Event()

    async def handler(message: bytes, call: Call) -> bytes:
        await gate.wait()
        return b"x" * 50_000

    peer = Peer(handler)
    number = peer.call(b"")
    await peer.settle()
    peer.client.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 10})
    await peer.settle()
    gate.set()
    await peer.settle()
    assert len(peer.answer(number)[0]) == 10
    peer.client.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 60_000})
    await peer.settle()
    assert peer.answer(number)[0] == framed(b"x" * 50_000)


async def test_a_request_of_megabytes_is_taken_and_a_larger_one_refused() -> None:
    async def handler(message: bytes, call: Call) -> bytes:
        return str(len(message)).encode()

    peer = Peer(handler)
    await peer.settle()
    for size, status in ((3 << 20, "0"), (5 << 20, "8"), (4 << 20, "0")):
        number = peer.client.get_next_available_stream_id()
        peer.client.send_headers(number, HEADERS)
        rest = framed(b"x" * size)
        while rest and peer.answer(number)[1].get("grpc-status") is None:
            piece = rest[: min(16_384, peer.client.local_flow_control_window(number))]
            assert piece, "the server gives no window"
            rest = rest[len(piece) :]
            peer.client.send_data(number, piece, end_stream=not rest)
            peer.push()
        await peer.settle()
        data, headers = peer.answer(number)
        assert headers["grpc-status"] == status
        assert data == (framed(str(size).encode()) if status == "0" else b"")


async def test_pings_are_answered() -> None:
    peer = Peer(echo)
    peer.client.ping(b"12345678")
    peer.push()
    assert peer.has(h2.events.PingAckReceived).ping_data == b"12345678"


async def test_a_handler_learns_that_its_caller_has_gone_and_is_not_cut_off() -> None:
    gate, seen = asyncio.Event(), []

    async def handler(message: bytes, call: Call) -> bytes:
        await gate.wait()
        seen.append((message, call.is_gone))
        return b""

    peer = Peer(handler)
    reset, stays = peer.call(b"reset"), peer.call(b"stays")
    await peer.settle()
    peer.client.reset_stream(reset, h2.errors.ErrorCodes.CANCEL)
    await peer.settle()
    gate.set()
    await peer.settle()
    assert seen == [(b"reset", True), (b"stays", False)]
    assert peer.answer(stays)[1]["grpc-status"] == "0"


async def test_a_lost_connection_is_forgotten() -> None:
    gate, seen = asyncio.Event(), []

    async def handler(message: bytes, call: Call) -> bytes:
        await gate.wait()
        seen.append(call.is_gone)
        return b""

    peer = Peer(handler)
    peer.call(b"")
    await peer.settle()
    peer.connection.connection_lost(None)
    gate.set()
    await asyncio.sleep(0.01)
    assert seen == [True]
    assert not peer.served.connections


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("5S", 5), ("4999900u", 4.9999), ("1M", 60), ("2H", 7200), ("250m", 0.25), ("1000000n", 0.001)],
)
async def test_the_callers_deadline_is_known(written: str, seconds: float) -> None:
    seen = []

    async def handler(message: bytes, call: Call) -> bytes:
        seen.append(call.deadline)
        return b""

    peer = Peer(handler)
    began = asyncio.get_running_loop().time()
    peer.call(b"", [*HEADERS, ("grpc-timeout", written)])
    await peer.settle()
    assert seen[0] is not None
    assert seen[0] - began == pytest.approx(seconds, abs=1)


@pytest.mark.parametrize("written", ["", "S", "5", "xS", "123456789S", "5s", "-1S"])
async def test_a_deadline_that_means_nothing_is_none(written: str) -> None:
    seen = []

    async def handler(message: bytes, call: Call) -> bytes:
        seen.append(call.deadline)
        return b""

    peer = Peer(handler)
    peer.call(b"", [*HEADERS, ("grpc-timeout", written)])
    await peer.settle()
    assert seen == [None]


async def test_leaving_answers_what_is_in_hand_and_takes_nothing_more() -> None:
    gate = asyncio.Event()

    async def handler(message: bytes, call: Call) -> bytes:
        await gate.wait()
        return message

    peer = Peer(handler)
    peer.call(b"last")
    await peer.settle()
    peer.connection.leave()
    peer.push()
    assert peer.has(h2.events.ConnectionTerminated).error_code == h2.errors.ErrorCodes.NO_ERROR
    assert not peer.wire.is_closed
    gate.set()
    for _ in range(20):
        await asyncio.sleep(0)
    # The library takes GOAWAY for the end of everything, so the bytes are looked at.
    assert framed(b"last") in peer.wire.sent
    assert peer.wire.is_closed


OPEN = http2.frame(http2.HEADERS, http2.END_HEADERS, 1, b"\x83\x86")


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", http2.PROTOCOL_ERROR),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 30, http2.PROTOCOL_ERROR),
        (HELLO + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01", http2.FRAME_SIZE_ERROR),
        (HELLO + http2.frame(http2.HEADERS, http2.END_HEADERS, 2, b""), http2.PROTOCOL_ERROR),
        (HELLO + http2.frame(http2.HEADERS, http2.END_HEADERS, 0, b""), http2.PROTOCOL_ERROR),
        (HELLO + http2.frame(http2.HEADERS, http2.END_HEADERS, 1, b"\x80"), http2.COMPRESSION_ERROR),
        (
            HELLO + http2.frame(http2.HEADERS, 0, 1, b"") + http2.frame(http2.PING, 0, 0, b"\0" * 8),
            http2.PROTOCOL_ERROR,
        ),
        (HELLO + http2.frame(http2.HEADERS, 0, 1, b"") + http2.frame(http2.CONTINUATION, 0, 1) * 80, 0xB),
        (HELLO + http2.frame(http2.CONTINUATION, 0, 1, b""), http2.PROTOCOL_ERROR),
        (HELLO + http2.frame(http2.DATA, 0, 1, b"x"), http2.PROTOCOL_ERROR),
        (HELLO + http2.frame(http2.RST_STREAM, 0, 1, b"\0\0\0\0"), http2.PROTOCOL_ERROR),
        (HELLO + OPEN + http2.frame(http2.RST_STREAM, 0, 1, b"\0"), http2.FRAME_SIZE_ERROR),
        (HELLO + http2.frame(http2.SETTINGS, 0, 0, b"12345"), http2.FRAME_SIZE_ERROR),
        (HELLO + http2.frame(http2.SETTINGS, 0, 1, b""), http2.PROTOCOL_ERROR),
        (HELLO + http2.settings({http2.INITIAL_WINDOW_SIZE: 1 << 31}), http2.FLOW_CONTROL_ERROR),
        (HELLO + http2.settings({http2.MAX_FRAME_SIZE: 1}), http2.PROTOCOL_ERROR),
        (HELLO + http2.frame(http2.PING, 0, 0, b"short"), http2.FRAME_SIZE_ERROR),
        (HELLO + http2.window_update(0, 0), http2.PROTOCOL_ERROR),
        (HELLO + http2.window_update(0, http2.MAX_WINDOW), http2.FLOW_CONTROL_ERROR),
        (HELLO + http2.frame(http2.PUSH_PROMISE, 0, 1, b""), http2.PROTOCOL_ERROR),
        (HELLO + http2.frame(http2.HEADERS, http2.PADDED | http2.END_HEADERS, 1, b"\x09"), http2.PROTOCOL_ERROR),
        (HELLO + http2.frame(http2.HEADERS, http2.PRIORITY_FLAG | 4, 1, b"\0"), http2.FRAME_SIZE_ERROR),
    ],
)
async def test_a_breach_of_the_protocol_ends_the_connection_with_its_code(sent: bytes, code: int) -> None:
    peer = Peer(echo)
    peer.wire.take()
    peer.connection.data_received(sent)
    assert peer.wire.is_closed
    last = peer.wire.sent[peer.wire.sent.rfind(b"\x07\x00\x00\x00\x00\x00") - 3 :]
    assert last[3] == http2.GOAWAY
    assert int.from_bytes(last[13:17], "big") == code
