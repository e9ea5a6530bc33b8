"""One caller's connection under any bytes: it ends, or stays whole, and nobody else is harmed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ipam.node.http2peer import HEADERS, HELLO, Peer, echo, framed

from bedplate.ipam.node import http2
from bedplate.ipam.node.grpcconnection import Handler


async def _feed(pieces: list[bytes], handler: Handler = echo) -> Peer:
    peer = Peer(handler)
    for piece in pieces:
        if not peer.wire.is_closed:
            peer.connection.data_received(piece)
            await asyncio.sleep(0)
    return peer


@given(st.lists(st.binary(max_size=200), max_size=6), st.booleans())
def test_any_bytes_end_a_connection_or_leave_it_whole(pieces: list[bytes], has_hello: bool) -> None:
    asyncio.run(_check_whole([HELLO, *pieces] if has_hello else pieces))


frames = st.builds(
    http2.frame,
    st.integers(0, 12),
    st.integers(0, 255),
    st.sampled_from([0, 1, 2, 3, 5, 7, 0x7FFFFFFF]),
    st.binary(max_size=30) | st.just(b"\x83\x86") | st.just(framed(b"a")),
)


@given(st.lists(frames, max_size=12))
def test_any_frames_end_a_connection_or_leave_it_whole(sent: list[bytes]) -> None:
    asyncio.run(_check_whole([HELLO, *sent]))


async def _check_whole(pieces: list[bytes]) -> None:
    peer = await _feed(pieces)
    if not peer.wire.is_closed:
        # Everything in a connection is still as it should be: it can be left without a trace.
        peer.connection.leave()
    peer.connection.connection_lost(None)
    await asyncio.sleep(0)
    assert not peer.served.connections


def _mutated(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        match rng.randrange(3):
            case 0:
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            case 1:
                del changed[rng.randrange(len(changed))]
            case _:
                changed.insert(rng.randrange(len(changed)), rng.randrange(256))
    return bytes(changed)


@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=pytest.mark.soak)])
async def test_damaged_calls_harm_nobody(count: int) -> None:
    rng = random.Random(7)
    whole: Callable[[], bytes] = _recorded
    good = whole()
    for _ in range(count):
        peer = await _feed([_mutated(good, rng)])
        peer.connection.connection_lost(None)
    peer = await _feed([good])
    await asyncio.sleep(0.01)
    assert framed(b"hello") in peer.wire.sent


def _recorded() -> bytes:
    """All bytes of a good call."""
    client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    client.initiate_connection()
    client.send_headers(1, [*HEADERS, ("grpc-timeout", "5S"), ("user-agent", "grpc-go/1.70.0")])
    client.send_data(1, framed(b"hello"), end_stream=True)
    return bytes(client.data_to_send())
