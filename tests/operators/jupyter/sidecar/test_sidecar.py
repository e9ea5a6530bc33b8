"""The sidecar before a kernel that the test plays: what passes, what ends, who is believed."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.operators.jupyter.sidecar.conftest import KEY, Start, write_file
from tests.waiting import until

from bedplate.core.clock import ManualClock
from bedplate.operators.jupyter.names import CHANNELS
from bedplate.operators.jupyter.sidecar import messages
from bedplate.operators.jupyter.sidecar.gateway import TimedOut


@contextlib.asynccontextmanager
async def echoes(prefix: str = "") -> AsyncIterator[dict[str, int]]:
    """A kernel whose channels send back what they get, after the channel's name; their ports."""
    servers = {}
    for name in CHANNELS:

        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str = name) -> None:
            writer.write(f"{prefix}{name}:".encode())
            with contextlib.suppress(OSError):
                while data := await reader.read(1 << 16):
                    writer.write(data)
                    await writer.drain()
            writer.close()

        servers[name] = await asyncio.start_server(echo, "127.0.0.1", 0)
    try:
        yield {name: server.sockets[0].getsockname()[1] for name, server in servers.items()}
    finally:
        for server in servers.values():
            server.close()


async def exchange(port: int, data: bytes, begins: bytes) -> bytes:
    """Send all of it and read as much, with the beginning that the kernel adds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:

        async def send() -> None:
            writer.write(data)
            await writer.drain()

        sending = asyncio.ensure_future(send())
        answer = await asyncio.wait_for(reader.readexactly(len(begins) + len(data)), 60)
        await sending
        return answer
    finally:
        writer.close()


async def test_every_channel_passes_every_byte_to_its_own(start: Start, seed: int) -> None:
    data = random.Random(seed).randbytes(3_000_000)
    async with start() as running, echoes() as ports:
        write_file(running.path, ports)
        await asyncio.wait_for(running.sidecar.is_serving.wait(), 60)
        for name, port in running.sidecar.ports.items():
            begins = f"{name}:".encode()
            assert await exchange(port, data, begins) == begins + data


async def test_nothing_is_served_before_the_connection_file_is_complete(start: Start) -> None:
    async with start() as running, echoes() as ports:
        assert await running.say({"ping": 1}) == [{"pong": 1, "kernel_id": "the-kernel", "state": "waiting"}]
        running.path.write_text('{"shell_port": 1')
        assert not running.sidecar.is_serving.is_set()
        write_file(running.path, ports)
        await asyncio.wait_for(running.sidecar.is_serving.wait(), 60)
        assert (await running.say({"ping": 2}))[0]["state"] == "ready"


async def test_a_kernel_that_is_started_again_at_other_ports_is_found(start: Start) -> None:
    async with start() as running, echoes("a-") as first, echoes("b-") as second:
        write_file(running.path, first)
        await asyncio.wait_for(running.sidecar.is_serving.wait(), 60)
        assert await exchange(running.sidecar.ports["shell"], b"x", b"a-shell:") == b"a-shell:x"
        replacement = running.path.with_suffix(".new")
        write_file(replacement, second)
        os.replace(replacement, running.path)
        assert await exchange(running.sidecar.ports["shell"], b"x", b"b-shell:") == b"b-shell:x"


async def test_a_kernel_that_does_not_listen_closes_the_peers_connection(start: Start) -> None:
    async with start() as running:
        async with echoes() as ports:
            write_file(running.path, ports)
            await asyncio.wait_for(running.sidecar.is_serving.wait(), 60)
        reader, writer = await asyncio.open_connection("127.0.0.1", running.sidecar.ports["hb"])
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()


async def test_channels_of_unix_sockets_are_reached(start: Start, tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"ipc:" + await reader.readexactly(1))
        writer.close()

    server = await asyncio.start_unix_server(answer, str(tmp_path / "k-1"))
    async with start() as running:
        write_file(running.path, dict.fromkeys(CHANNELS, 1), transport="ipc", ip=str(tmp_path / "k"))
        await asyncio.wait_for(running.sidecar.is_serving.wait(), 60)
        assert await exchange(running.sidecar.ports["shell"], b"x", b"ipc:") == b"ipc:x"
    server.close()


# The gateway


async def test_without_pings_it_ends_after_the_timeout_and_says_so(start: Start) -> None:
    time = ManualClock()
    async with start(time, timeout=60.0) as running:
        await time.advance(59)
        assert not running.task.done()
        assert (await running.say({"ping": 1}))[0]["pong"] == 1
        await time.advance(59)
        assert not running.task.done()
        await time.advance(2)
        with pytest.raises(TimedOut) as caught:
            await asyncio.wait_for(running.task, 60)
        assert str(caught.value) == "Timeout receiving pings from server for 60 sec. Shutting down."


async def test_refused_messages_do_not_count_as_pings(start: Start) -> None:
    time = ManualClock()
    async with start(time, timeout=60.0) as running:
        await time.advance(59)
        answers = await running.say("{", {"shutdown": 1}, {"ping": 9, "signature": "wrong"}, {"signum": 2})
        assert [list(answer) for answer in answers] == [["error"]] * 4
        await time.advance(2)
        with pytest.raises(TimedOut):
            await asyncio.wait_for(running.task, 60)


async def test_once_a_ping_was_signed_others_no_longer_count(start: Start) -> None:
    async with start() as running:
        write_file(running.path, dict.fromkeys(CHANNELS, 1))
        await asyncio.wait_for(running.sidecar.is_serving.wait(), 60)
        first, repeated, unsigned = await running.say(
            messages.signed({"ping": 5}, KEY), messages.signed({"ping": 5}, KEY), {"ping": 6}
        )
        assert first["pong"] == 5
        assert "received before" in repeated["error"] and "signed" in unsigned["error"]


async def test_the_gateways_end_ends_it_without_an_error(start: Start) -> None:
    async with start() as running:
        write_file(running.path, dict.fromkeys(CHANNELS, 1))
        await asyncio.wait_for(running.sidecar.is_serving.wait(), 60)
        # As Jupyter Enterprise Gateway sends it: one object, no line's end, then the connection is closed.
        answers = await running.say(messages.signed({"shutdown": 1}, KEY), ends=True)
        assert answers[0]["state"] == "stopping"
        await asyncio.wait_for(running.task, 60)


async def test_a_message_without_end_is_cut_off(start: Start) -> None:
    async with start() as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.sidecar.gateway.port)
        writer.write(b"x" * 100_000)
        with contextlib.suppress(OSError):
            assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()
        assert (await running.say({"ping": 1}))[0]["pong"] == 1


async def test_the_parameters_are_told_again_until_a_signed_ping_comes(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bedplate.operators.jupyter.sidecar.gateway.AGAIN_S", 0.01)
    private = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    public = private.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    received: list[bytes] = []

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read())
        writer.close()

    server = await asyncio.start_server(receive, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with start(response_address=address, public_key=base64.b64encode(public).decode()) as running:
        write_file(running.path, dict.fromkeys(CHANNELS, 1))
        await until(lambda: len(received) >= 2, "the parameters came twice")
        await running.say(messages.signed({"ping": 1}, KEY))
        assert all(json.loads(base64.b64decode(payload))["version"] == 1 for payload in received[:2])
        assert not running.task.done()
    server.close()
