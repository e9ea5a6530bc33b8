"""Listening: where, what stands in the way, and stopping without cutting off a call."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from pathlib import Path

import grpc
import grpc.aio
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.waiting import until

from bedplate.core import errors
from bedplate.ipam.node.grpcconnection import MAX_HELD, MAX_MESSAGE, SMALL, Call
from bedplate.ipam.node.http2 import Code, Failed
from bedplate.ipam.node.metrics import CallMetrics
from bedplate.ipam.node.server import Bind, Server, parse_bind

METHOD = "/test.Service/Echo"


async def echo(message: bytes, call: Call) -> bytes:
    return message


def serving(handler: object = echo) -> Server:
    return Server({METHOD.encode(): handler}, CallMetrics(CollectorRegistry()))  # type: ignore[dict-item]


async def ask(target: str, message: bytes = b"hello", method: str = METHOD) -> bytes:
    async with grpc.aio.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        return bytes(await channel.unary_unary(method)(message, timeout=60))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("unix:///var/lib/cni/nv-ipam/daemon.sock", Bind("/var/lib/cni/nv-ipam/daemon.sock")),
        ("unix://relative/path", Bind("relative/path")),
        ("tcp://127.0.0.1:9092", Bind(host="127.0.0.1", port=9092)),
        ("tcp://[::1]:0", Bind(host="::1")),
        ("tcp://:9092", Bind(port=9092)),
    ],
)
def test_an_address_means_a_place(written: str, meant: Bind) -> None:
    assert parse_bind(written) == meant


@pytest.mark.parametrize(
    "written",
    ["", "/var/run/x.sock", "http://1.2.3.4:5", "unix://", "tcp://host", "tcp://h:99999", "tcp://h:x", "tcp://["],
)
def test_anything_else_is_refused(written: str) -> None:
    with pytest.raises(ValueError):
        parse_bind(written)


async def test_it_serves_on_a_unix_socket_and_removes_it(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    server = serving()
    await server.start(Bind(str(path)))
    assert await ask(f"unix:{path}") == b"hello"
    await server.stop(5)
    assert not path.exists()


@pytest.mark.parametrize("host", ["127.0.0.1", "", "localhost"])
async def test_it_serves_on_tcp(host: str) -> None:
    server = serving()
    await server.start(Bind(host=host))
    assert server.bound is not None
    assert await ask(f"127.0.0.1:{server.bound.port}") == b"hello"
    await server.stop(5)


async def test_an_old_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(path))
    server = serving()
    await server.start(Bind(str(path)))
    assert await ask(f"unix:{path}") == b"hello"
    await server.stop(5)


async def test_anything_else_in_its_place_is_left_alone_and_said(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    path.write_text("precious")
    with pytest.raises(errors.Invalid, match="is not a socket"):
        await serving().start(Bind(str(path)))
    assert path.read_text() == "precious"


@pytest.mark.parametrize("where", ["none/s.sock", "s" * 200])
async def test_a_place_that_cannot_be_had_is_said(tmp_path: Path, where: str) -> None:
    with pytest.raises(errors.Invalid, match="cannot listen"):
        await serving().start(Bind(str(tmp_path / where)))


async def test_a_taken_port_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(errors.Invalid, match="cannot listen"):
        await serving().start(Bind(host="127.0.0.1", port=taken.getsockname()[1]))


async def test_a_successors_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    server, successor = serving(), serving()
    await server.start(Bind(str(path)))
    await successor.start(Bind(str(path)))
    await server.stop(5)
    assert await ask(f"unix:{path}") == b"hello"
    await successor.stop(5)


async def test_stopping_answers_what_is_in_hand(tmp_path: Path) -> None:
    path, gate, begun = tmp_path / "s.sock", asyncio.Event(), asyncio.Event()

    async def slow(message: bytes, call: Call) -> bytes:
        begun.set()
        await gate.wait()
        return message

    server = serving(slow)
    await server.start(Bind(str(path)))
    call = asyncio.ensure_future(ask(f"unix:{path}"))
    await begun.wait()
    stopping = asyncio.ensure_future(server.stop(60))
    await asyncio.sleep(0.05)
    assert not path.exists()
    gate.set()
    assert await call == b"hello"
    await stopping


async def test_stopping_waits_only_so_long(tmp_path: Path) -> None:
    path, begun = tmp_path / "s.sock", asyncio.Event()

    async def endless(message: bytes, call: Call) -> bytes:
        begun.set()
        await asyncio.Event().wait()
        return message

    server = serving(endless)
    await server.start(Bind(str(path)))
    call = asyncio.ensure_future(ask(f"unix:{path}"))
    await begun.wait()
    await server.stop(0.1)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


async def test_who_comes_before_it_serves_waits_for_the_answer(tmp_path: Path) -> None:
    server = Server({}, CallMetrics(CollectorRegistry()))
    await server.bind(Bind(str(tmp_path / "s.sock")))
    call = asyncio.ensure_future(ask(f"unix:{tmp_path / 's.sock'}"))
    await asyncio.sleep(0.05)
    assert not call.done()
    await server.serve({METHOD.encode(): echo})
    assert await call == b"hello"
    await server.stop(5)
    assert not (tmp_path / "s.sock").exists()


async def test_one_that_never_serves_leaves_no_socket(tmp_path: Path) -> None:
    server = Server({}, CallMetrics(CollectorRegistry()))
    await server.bind(Bind(str(tmp_path / "s.sock")))
    await server.stop(0)
    assert not (tmp_path / "s.sock").exists()


async def test_calls_are_counted_by_method_and_code(tmp_path: Path) -> None:
    registry = CollectorRegistry()

    async def fail(message: bytes, call: Call) -> bytes:
        raise Failed(Code.NOT_FOUND, "no")

    server = Server({METHOD.encode(): echo, b"/test.Service/Fail": fail}, CallMetrics(registry))
    await server.start(Bind(str(tmp_path / "s.sock")))
    target = f"unix:{tmp_path / 's.sock'}"
    await ask(target)
    await ask(target)
    for method in ("/test.Service/Fail", "/made.Up/1", "/made.Up/2"):
        with pytest.raises(grpc.RpcError):
            await ask(target, method=method)
    await server.stop(5)
    text = generate_latest(registry).decode()
    assert 'bedplate_ipam_node_calls_total{code="OK",method="Echo"} 2.0' in text
    assert 'bedplate_ipam_node_calls_total{code="NOT_FOUND",method="Fail"} 1.0' in text
    # A caller cannot make up labels.
    assert 'bedplate_ipam_node_calls_total{code="UNIMPLEMENTED",method="unknown"} 2.0' in text
    assert 'bedplate_ipam_node_call_duration_seconds_count{method="Echo"} 2.0' in text


async def test_hundreds_of_connections_at_once_are_all_served(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    server = serving()
    await server.start(Bind(str(path)))
    found = await asyncio.gather(*(ask(f"unix:{path}", str(number).encode()) for number in range(200)))
    assert found == [str(number).encode() for number in range(200)]
    # The last caller's end may be heard of a little later than its answer.
    async with asyncio.timeout(120):
        while server._connections:
            await asyncio.sleep(0.02)
    await server.stop(5)


@pytest.mark.parametrize(("uids", "mode"), [((), 0o600), ((12_345,), 0o666)])
async def test_only_its_owner_may_open_the_socket(tmp_path: Path, uids: tuple[int, ...], mode: int) -> None:
    before = os.umask(0)
    try:
        server = Server({METHOD.encode(): echo}, CallMetrics(CollectorRegistry()), uids)
        await server.start(Bind(str(tmp_path / "s")))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == mode
    assert await ask(f"unix:{tmp_path}/s") == b"hello"
    await server.stop(1)


async def test_a_process_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server believes that it is another user's; the caller is neither that one nor root."""
    server = serving()
    server._uids = {os.geteuid() + 1}
    await server.start(Bind(str(tmp_path / "s")))
    reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await ask(f"unix:{tmp_path}/s")
    assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE
    server._uids = {os.geteuid()}
    assert await ask(f"unix:{tmp_path}/s") == b"hello"
    await server.stop(1)


async def test_root_its_own_user_and_the_named_ones_may_call() -> None:
    server = Server({}, CallMetrics(CollectorRegistry()), (7, 8))
    assert server._uids == {0, os.geteuid(), 7, 8}


async def test_a_link_in_the_place_of_the_socket_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    (tmp_path / "s").symlink_to(tmp_path / "other")
    with pytest.raises(errors.Invalid, match="is not a socket"):
        await serving().start(Bind(str(tmp_path / "s")))
    assert (tmp_path / "other").exists()


async def test_many_large_requests_at_a_time_do_not_fill_the_memory(tmp_path: Path) -> None:
    """Sixty calls of almost 4 MiB each on their way at the same time: few are in memory, and small ones pass."""
    waiting = asyncio.Event()
    most = 0

    async def slow(message: bytes, call: Call) -> bytes:
        nonlocal most
        most = max(most, server.budget.used)
        if len(message) > SMALL:
            await waiting.wait()
        return b""

    server = serving(slow)
    await server.start(Bind(str(tmp_path / "s")))
    message = bytes(MAX_MESSAGE - 100)
    calls = [asyncio.create_task(ask(f"unix:{tmp_path}/s", message)) for _ in range(60)]
    refused = len(calls) - MAX_HELD // MAX_MESSAGE
    await until(lambda: sum(call.done() for call in calls) >= refused, "most are refused")
    done = {call for call in calls if call.done()}
    assert {call.exception().code() for call in done} == {grpc.StatusCode.RESOURCE_EXHAUSTED}  # type: ignore[union-attr]
    assert await ask(f"unix:{tmp_path}/s", bytes(SMALL - 100)) == b""
    waiting.set()
    # One that shared the memory with others when it ran out may be refused later than those.
    rest = await asyncio.gather(*(call for call in calls if call not in done), return_exceptions=True)
    late = [answer for answer in rest if isinstance(answer, grpc.aio.AioRpcError)]
    assert {answer.code() for answer in late} <= {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert {answer for answer in rest if answer not in late} == {b""}, "some were carried out"
    assert most <= MAX_HELD + SMALL
    assert server.budget.used == 0
    await server.stop(1)


async def test_what_was_read_of_a_broken_off_request_is_forgotten(tmp_path: Path) -> None:
    server = serving()
    await server.start(Bind(str(tmp_path / "s")))

    async def endless() -> None:
        async with grpc.aio.insecure_channel(f"unix:{tmp_path}/s") as channel:
            call = channel.stream_unary(METHOD)(timeout=60)
            await call.write(bytes(SMALL * 4))
            await until(lambda: server.budget.used > SMALL, "it was read")
            call.cancel()
            await until(lambda: server.budget.used == 0, "it was forgotten")

    await endless()
    await server.stop(1)
