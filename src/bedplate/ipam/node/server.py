"""Listening on the daemon's socket, and stopping without cutting off a call.

In: an address (`unix://…` or `tcp://host:port`) and what is served. Out: answered calls. An old socket is removed
before and after; anything else at its place is left alone and said.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import struct
from collections.abc import Collection, Mapping
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit

from bedplate.core import errors, logging
from bedplate.ipam.node.grpcconnection import Budget, Connection, Handler, shown
from bedplate.ipam.node.http2 import Code
from bedplate.ipam.node.metrics import CallMetrics

__all__ = ["Bind", "Server", "parse_bind"]

log = logging.get_logger("ipam.node.grpc")
_BACKLOG = 4096
_CLOSE_S = 0.5
_PEER = struct.Struct("3i")


class Bind(NamedTuple):
    """Where to listen: a path, or a host and a port."""

    path: str = ""
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        return f"unix://{self.path}" if self.path else f"tcp://{self.host}:{self.port}"


def parse_bind(written: str) -> Bind:
    """What `--bind-address` means; `ValueError` when it means nothing."""
    parts = urlsplit(written)
    if parts.scheme == "unix":
        path = parts.netloc + parts.path
        if not path:
            raise ValueError("a unix address needs a path")
        return Bind(path=path)
    if parts.scheme != "tcp":
        raise ValueError("only unix:// and tcp:// are supported")
    if parts.port is None:
        raise ValueError("a tcp address needs a port")
    return Bind(host=parts.hostname or "", port=parts.port)


class Server:
    """Serves gRPC until `stop`."""

    def __init__(
        self, handlers: Mapping[bytes, Handler], metrics: CallMetrics, allowed_uids: Collection[int] = ()
    ) -> None:
        self.handlers = handlers
        self.budget = Budget()
        self._metrics = metrics
        self._is_open = bool(allowed_uids)
        self._uids = {0, os.geteuid(), *allowed_uids}
        self._connections: set[Connection] = set()
        self._servers: list[asyncio.Server] = []
        self._sockets: list[socket.socket] = []
        """Bound, and not served yet."""
        self._path = ""
        self._inode = 0
        self._all_gone: asyncio.Event | None = None
        self.bound: Bind | None = None

    async def bind(self, bind: Bind) -> None:
        """Let callers connect; they wait until `serve`. Raises `Invalid` when the place is taken."""
        mode = 0o666 if self._is_open else 0o600
        self._sockets = [_unix_socket(bind.path, mode)] if bind.path else await _tcp_sockets(bind)
        for listener in self._sockets:
            listener.listen(_BACKLOG)
        if bind.path:
            self._path, self._inode = bind.path, os.lstat(bind.path).st_ino
            self.bound = bind
        else:
            self.bound = Bind(host=bind.host, port=self._sockets[0].getsockname()[1])

    async def serve(self, handlers: Mapping[bytes, Handler]) -> None:
        """Answer what callers ask, those who came before too."""
        self.handlers = handlers
        loop = asyncio.get_running_loop()
        while self._sockets:
            connect = partial(Connection, self, loop)
            self._servers.append(await loop.create_server(connect, sock=self._sockets.pop(), backlog=_BACKLOG))
        log.info("grpc.listening", address=str(self.bound))

    async def start(self, bind: Bind) -> None:
        """Both of it."""
        await self.bind(bind)
        await self.serve(self.handlers)

    async def stop(self, within_s: float) -> None:
        """Take no more calls, answer those in hand, remove the socket."""
        for server in self._servers:
            server.close()
        for listener in self._sockets:
            listener.close()
        self.bound = None
        self._remove_socket()
        for connection in list(self._connections):
            connection.leave()
        calls = {call for connection in self._connections for call in connection.calls}
        if calls:
            await asyncio.wait(calls, timeout=within_s)
        if self._connections:
            self._all_gone = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await self._all_gone.wait()
        log.info("grpc.stopped")

    def _remove_socket(self) -> None:
        # Only our own: a successor may have put its socket there already.
        if self._path:
            with contextlib.suppress(FileNotFoundError):
                if os.lstat(self._path).st_ino == self._inode:
                    os.unlink(self._path)

    # What a connection calls

    def admits(self, transport: asyncio.BaseTransport) -> bool:
        """Whether this caller may call: on a unix socket, by the user of its process."""
        peer = transport.get_extra_info("socket")
        if peer is None or peer.family != socket.AF_UNIX:
            return True
        _, uid, _ = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        if uid in self._uids:
            return True
        log.warning("grpc.refused", uid=uid, hint="--allowed-uids")
        return False

    def started(self, connection: Connection) -> None:
        """A caller has come."""
        self._connections.add(connection)

    def ended(self, connection: Connection) -> None:
        """A caller has gone."""
        self._connections.discard(connection)
        if self._all_gone is not None and not self._connections:
            self._all_gone.set()

    def done(self, method: bytes, code: Code, message: str, seconds: float, notes: Mapping[str, object]) -> None:
        """A call was answered: count it and say so."""
        name = method.rpartition(b"/")[2].decode() if method in self.handlers else "unknown"
        self._metrics.count(name, code, seconds)
        if code is Code.OK and not log.shows(1):
            return
        values = {"method": shown(method), "request": os.urandom(8).hex(), "seconds": round(seconds, 6), **notes}
        if code is Code.OK:
            log.info("grpc.answered", **values)
        else:
            log.error("grpc.failed", code=code.name, error=message, **values)


def _unix_socket(path: str, mode: int) -> socket.socket:
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise errors.Invalid(
                f"--bind-address: {path} exists and is not a socket", hint="remove it, or choose another address"
            )
        os.unlink(path)
    except FileNotFoundError:
        pass
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # On Linux the file gets the mode of the socket, so that it never has another one.
        os.fchmod(listener.fileno(), mode)
        listener.bind(path)
        os.chmod(path, mode)
    except OSError as err:
        listener.close()
        raise errors.Invalid(f"--bind-address: cannot listen on {path}: {err.strerror or err}") from err
    return listener


async def _tcp_sockets(bind: Bind) -> list[socket.socket]:
    """One socket: for all addresses where none is named, both families on one port."""
    loop = asyncio.get_running_loop()
    listener: socket.socket | None = None
    try:
        if not bind.host:
            return [socket.create_server(("", bind.port), family=socket.AF_INET6, dualstack_ipv6=True)]
        async with asyncio.timeout(10):
            infos = await loop.getaddrinfo(bind.host, bind.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = infos[0]
        listener = socket.create_server(address[:2], family=socket.AddressFamily(family))
    except (OSError, TimeoutError) as err:
        raise errors.Invalid(f"--bind-address: cannot listen on {bind}: {err}") from err
    return [listener]
