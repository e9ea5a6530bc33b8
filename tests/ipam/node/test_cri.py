"""Asking the container runtime: a gRPC server of another make, and everything that can go wrong on the way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest

from bedplate.core import errors
from bedplate.ipam.node import grpcclient, http2
from bedplate.ipam.node.cri import Runtime, Sandbox
from bedplate.ipam.node.grpcclient import CallFailed
from bedplate.ipam.node.hpack import literal
from bedplate.ipam.node.http2 import Code
from bedplate.ipam.node.pb import bedplate_cri_pb2 as pb

METHOD = "ListPodSandbox"


@contextlib.contextmanager
def runtime(path: Path, answer: Callable[[bytes, grpc.ServicerContext], bytes]) -> Any:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    handler = grpc.method_handlers_generic_handler(
        "runtime.v1.RuntimeService", {METHOD: grpc.unary_unary_rpc_method_handler(answer)}
    )
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield Runtime(str(path))
    finally:
        server.stop(0).wait()


def listing(count: int) -> bytes:
    items = [
        pb.PodSandbox(
            id=f"{number:064x}",
            metadata=pb.PodSandboxMetadata(name=f"pod-{number}", uid=f"uid-{number}", namespace="default"),
            state=pb.SANDBOX_NOTREADY if number % 2 else pb.SANDBOX_READY,
        )
        for number in range(count)
    ]
    return pb.ListPodSandboxResponse(items=items).SerializeToString()


@pytest.mark.parametrize("count", [0, 1, 3, 40_000])
async def test_all_sandboxes_are_listed_the_stopped_ones_too(tmp_path: Path, count: int) -> None:
    with runtime(tmp_path / "cri.sock", lambda request, context: listing(count)) as one:
        found = await one.sandboxes()
    assert len(found) == count
    if count:
        last = count - 1
        assert found[-1] == Sandbox(f"{last:064x}", f"uid-{last}", "default", f"pod-{last}")


async def test_a_failed_call_says_why(tmp_path: Path) -> None:
    def refuse(request: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode.UNAVAILABLE, "still loading: 50% “done”")
        return b""

    with runtime(tmp_path / "cri.sock", refuse) as one, pytest.raises(CallFailed, match="50% “done”") as caught:
        await one.sandboxes()
    assert caught.value.code is Code.UNAVAILABLE


async def test_an_answer_that_is_no_list_is_a_failure(tmp_path: Path) -> None:
    with runtime(tmp_path / "cri.sock", lambda request, context: b"\xff\xff") as one, pytest.raises(CallFailed):
        await one.sandboxes()


async def test_no_socket_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(errors.Unavailable):
        await Runtime(str(tmp_path / "none.sock")).sandboxes()


@contextlib.asynccontextmanager
async def talker(path: Path, *sent: bytes, stays: bool = False) -> AsyncIterator[str]:
    """Somebody who says this to everyone."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            for one in sent:
                writer.write(one)
            await writer.drain()
            while stays and await reader.read(1000):
                pass
        writer.close()

    server = await asyncio.start_unix_server(talk, path)
    try:
        yield str(path)
    finally:
        server.close()


HELLO = http2.settings({})
ANSWER = http2.frame(http2.HEADERS, 4, 1, b"\x88" + literal(b"content-type", b"application/grpc"))
BODY = b"\x00\x00\x00\x00\x02ok"
TRAILER = literal(b"grpc-status", b"0")


async def ask(path: str, timeout_s: float = 30.0) -> bytes:
    return await grpcclient.call(path, "/a/b", b"", timeout_s=timeout_s)


async def test_an_answer_may_come_in_odd_frames(tmp_path: Path) -> None:
    frames = (
        HELLO,
        http2.frame(http2.PING, 0, 0, b"12345678"),
        http2.window_update(0, 5),
        http2.frame(0xEE, 0, 0, b"unknown"),
        ANSWER,
        http2.frame(http2.DATA, http2.PADDED, 1, b"\x02" + BODY[:3] + b"\0\0"),
        http2.frame(http2.DATA, 0, 1, BODY[3:]),
        http2.frame(http2.HEADERS, http2.END_STREAM, 1, TRAILER[:4]),
        http2.frame(http2.CONTINUATION, http2.END_HEADERS, 1, TRAILER[4:]),
    )
    async with talker(tmp_path / "s", *frames, stays=True) as path:
        assert await ask(path) == b"ok"


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        HELLO,
        HELLO + ANSWER,
        HELLO + http2.goaway(0, 2, "no"),
        HELLO + http2.reset(1, 8),
        HELLO + http2.frame(http2.HEADERS, 5, 1, b"\x88"),
        HELLO + http2.frame(http2.HEADERS, 5, 1, b"\x8d"),
        HELLO + http2.frame(http2.HEADERS, 5, 1, b"\x80"),
        HELLO + http2.frame(http2.HEADERS, 5, 1, b"\x88" + literal(b"grpc-status", b"x")),
        HELLO + http2.frame(http2.HEADERS, 5, 1, b"\x88" + literal(b"grpc-status", b"77")),
        HELLO + ANSWER + http2.frame(http2.HEADERS, 5, 1, TRAILER),
        HELLO + ANSWER + http2.frame(http2.DATA, 0, 1, b"\x01" + BODY[1:]) + http2.frame(http2.HEADERS, 5, 1, TRAILER),
        HELLO + ANSWER + http2.frame(http2.DATA, 0, 1, BODY * 2) + http2.frame(http2.HEADERS, 5, 1, TRAILER),
        HELLO + http2.frame(http2.HEADERS, 0, 1, b"") + http2.frame(http2.CONTINUATION, 0, 1, b"\0" * 16_000) * 5,
        b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",
    ],
)
async def test_whatever_else_is_said_is_a_failure(tmp_path: Path, sent: bytes) -> None:
    async with talker(tmp_path / "s", sent) as path:
        with pytest.raises(CallFailed):
            await ask(path)


async def test_who_never_answers_is_not_waited_for(tmp_path: Path) -> None:
    async with talker(tmp_path / "s", HELLO, stays=True) as path:
        with pytest.raises(CallFailed, match=r"0\.2 s"):
            await ask(path, 0.2)
