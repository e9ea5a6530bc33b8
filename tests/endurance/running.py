"""An embedded API server that tests may kill, stop and start again, and raw connections to it.

In: a folder and arguments for `bedplate apiserver`. Out: a process on one port for all its lives, its log, its memory;
TLS sockets that say exactly what a test wants said. Nothing here is shared with the server under test.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from typing import Any

import aiohttp
from tests import forkserver, servers
from tests.waiting import wait_until

__all__ = ["Embedded", "read_answer", "read_answers", "session", "status_of"]

READY_DEADLINE_S = 120.0
STOP_DEADLINE_S = 30.0
ANSWER_TIMEOUT_S = 60.0
FAULT = re.compile(r"Traceback|request\.failed|(change|observer|controller)_failed\b|controller\.failed")


class Embedded:
    """`bedplate apiserver` on a folder and a port that stay the same over all restarts."""

    def __init__(
        self, folder: pathlib.Path, *arguments: str, env: dict[str, str] | None = None, data: pathlib.Path | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = servers.free_port()
        self.kubeconfig = folder / "kubeconfig"
        self.log_file = folder / "log"
        self._arguments = arguments
        self._env = env or {}
        self._data = data or folder / "data"
        self.process: forkserver.Process | None = None
        self.server: servers.Server

    def launch(self) -> None:
        """Start the process without waiting for it."""
        self.kubeconfig.unlink(missing_ok=True)
        command = [str(servers.bedplate_program()), "apiserver", "--data", str(self._data), "--port", str(self.port)]
        command += ["--kubeconfig-out", str(self.kubeconfig), *self._arguments]
        with self.log_file.open("ab") as log:
            self.process = forkserver.Process(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, **self._env}
            )

    def wait_ready(self) -> None:
        def is_ready() -> bool:
            assert self.is_alive, f"the server ended:\n{self.log[-4000:]}"
            return self.kubeconfig.exists() and self.kubeconfig.stat().st_size > 0

        wait_until(is_ready, "the server is ready", describe=lambda: self.log[-4000:])
        self.server = servers.read_kubeconfig("embedded", self.kubeconfig, self.folder)

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM, as systemd does it; the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_DEADLINE_S)

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    @property
    def faults(self) -> list[str]:
        """Lines of the log that tell of something that should not happen."""
        return [line for line in self.log.splitlines() if FAULT.search(line)]

    @property
    def rss_mb(self) -> float:
        assert self.process is not None
        pages = int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    @property
    def open_files(self) -> int:
        assert self.process is not None
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def connect(self, *, as_admin: bool = True) -> ssl.SSLSocket:
        """A TLS connection on which a test speaks HTTP, or something else, itself."""
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_TIMEOUT_S)
        return self.server.ssl_context(as_admin=as_admin).wrap_socket(plain, server_hostname="127.0.0.1")

    def say(self, data: bytes, *, as_admin: bool = True) -> bytes:
        """Send bytes on a new connection; everything that comes back until the server closes or one answer is whole."""
        with self.connect(as_admin=as_admin) as connection:
            try:
                connection.sendall(data)
            except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
                pass
            return read_answer(connection)

    def request(
        self, method: str, path: str, body: bytes | Any = b"", content_type: str = "application/json", **headers: str
    ) -> tuple[int, bytes]:
        """One request as its own connection: code and body."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close", f"Content-Length: {len(raw)}"]
        lines += [f"Content-Type: {content_type}"] if raw else []
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        answer = self.say("\r\n".join(lines).encode() + b"\r\n\r\n" + raw)
        head, _, content = answer.partition(b"\r\n\r\n")
        return status_of(head), content

    def get(self, path: str) -> Any:
        code, body = self.request("GET", path)
        assert code == 200, (code, body[:500])
        return json.loads(body)

    @contextlib.contextmanager
    def running(self) -> Iterator[Embedded]:
        self.start()
        try:
            yield self
        finally:
            if self.is_alive:
                self.kill()


def read_answer(connection: ssl.SSLSocket) -> bytes:
    """One whole answer with a Content-Length, or whatever came before the connection ended."""
    found = read_answers(connection, 1)
    return found[0] if found else b""


def read_answers(connection: ssl.SSLSocket, count: int) -> list[bytes]:
    """The next answers of a connection, in order; fewer when it ends before."""
    answers: list[bytes] = []
    buffer = b""
    while len(answers) < count:
        head, found, rest = buffer.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        if found and head.startswith(b"HTTP/1.1 100"):
            buffer = rest
            continue
        if found and length is not None and len(rest) >= int(length[1]):
            size = int(length[1])
            answers.append(head + found + rest[:size])
            buffer = rest[size:]
            continue
        try:
            data = connection.recv(65536)
        except (ConnectionResetError, ssl.SSLError, BrokenPipeError):
            data = b""
        if not data:
            return [*answers, buffer] if buffer else answers
        buffer += data
    return answers


def status_of(answer: bytes) -> int:
    """The code in the first line; 0 when there is none."""
    found = re.match(rb"HTTP/1\.1 (\d{3})", answer)
    return int(found[1]) if found else 0


def session(server: servers.Server, limit: int = 0) -> aiohttp.ClientSession:
    """An administrator's HTTP client."""
    connector = aiohttp.TCPConnector(ssl=server.ssl_context(), limit=limit)
    return aiohttp.ClientSession(server.url, connector=connector, timeout=aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S))
