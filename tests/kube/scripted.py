"""A small HTTP server that answers as a test tells it, faults included, and remembers what it was asked.

In: a list of answers, or a function. Out: recorded requests. Answers are written by hand on the socket, so that a
stream can be cut in the middle of a body, stay silent, or lie about its length.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from bedplate.core import clock


class FastClock(clock.SystemClock):
    """A clock whose sleeps take no time and are remembered."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


@dataclass
class Asked:
    """A request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    all_headers: list[tuple[str, str]]
    body: bytes
    certificate: dict[str, Any] | None = None

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query))

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    """What to send. `cut_after`: close after that many bytes of the body. `hang`: do not end the answer."""

    code: int = 200
    body: Any = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    chunks: Iterable[bytes] | None = None
    hang: bool = False
    drop: bool = False

    def payload(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


Script = Callable[[Asked], Answer | Awaitable[Answer]]


class ScriptedServer:
    """Serves `answers` in turn, the last one forever; or whatever the function `answers` returns."""

    def __init__(self, answers: list[Answer] | Script) -> None:
        self._answers = answers
        self.asked: list[Asked] = []
        self.connections = 0
        self.closed = 0
        self.url = ""

    async def _choose(self, asked: Asked) -> Answer:
        if callable(self._answers):
            chosen = self._answers(asked)
            return await chosen if isinstance(chosen, Awaitable) else chosen
        return self._answers[min(len(self.asked), len(self._answers)) - 1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while asked := await _read_request(reader, writer):
                self.asked.append(asked)
                answer = await self._choose(asked)
                reusable = await _write_answer(writer, answer)
                if answer.hang:
                    await _until_left(reader)
                if not reusable:
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            self.closed += 1
            writer.close()


async def _until_left(reader: asyncio.StreamReader) -> None:
    while not reader.at_eof():
        await asyncio.sleep(0.02)


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Asked | None:
    line = await reader.readline()
    if not line:
        return None
    method, target, _ = line.decode().split(" ")
    pairs: list[tuple[str, str]] = []
    while (line := await reader.readline()) not in (b"\r\n", b""):
        key, _, value = line.decode().partition(":")
        pairs.append((key.strip(), value.strip()))
    headers = {key.lower(): value for key, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    tls = writer.get_extra_info("ssl_object")
    return Asked(method, target, headers, pairs, body, tls.getpeercert() if tls else None)


async def _write_answer(writer: asyncio.StreamWriter, answer: Answer) -> bool:
    """True when the connection can be used again."""
    if answer.drop:
        return False
    headers = {"Content-Type": "application/json", **answer.headers}
    if answer.chunks is not None:
        headers["Transfer-Encoding"] = "chunked"
    else:
        headers.setdefault("Content-Length", str(len(answer.payload()) + answer.hang))
    head = f"HTTP/1.1 {answer.code} X\r\n" + "".join(f"{key}: {value}\r\n" for key, value in headers.items()) + "\r\n"
    writer.write(head.encode())
    if answer.chunks is not None:
        for chunk in answer.chunks:
            writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0)
        if answer.cut_after is not None or answer.hang:
            return False
        writer.write(b"0\r\n\r\n")
    elif answer.hang:
        await writer.drain()
        return False
    elif answer.cut_after is not None:
        writer.write(answer.payload()[: answer.cut_after])
        await writer.drain()
        return False
    else:
        writer.write(answer.payload())
    await writer.drain()
    return True


@contextlib.asynccontextmanager
async def serving(
    answers: list[Answer] | Script, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[ScriptedServer]:
    """A server on a free port; everything it started ends with the block."""
    scripted = ScriptedServer(answers)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(scripted.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, host, 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    scripted.url = f"{'https' if tls else 'http'}://{host}:{port}"
    try:
        yield scripted
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def status(code: int, reason: str, message: str = "no", **details: Any) -> Answer:
    """A Status answer as an API server sends it."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }
    return Answer(code, {**body, "details": details} if details else body)


def node(name: str, version: str = "1") -> dict[str, Any]:
    """A Node as get answers it."""
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "resourceVersion": version, "uid": f"u-{name}"},
    }


def node_list(names: list[str], version: str = "10", continue_token: str = "") -> dict[str, Any]:
    """A page of Nodes."""
    metadata = {"resourceVersion": version, **({"continue": continue_token} if continue_token else {})}
    return {"kind": "NodeList", "apiVersion": "v1", "metadata": metadata, "items": [node(name) for name in names]}
