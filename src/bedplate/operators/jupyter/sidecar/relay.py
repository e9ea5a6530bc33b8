"""The five channels, passed on byte by byte between a gateway and the kernel.

In: connections of ZeroMQ peers at the sidecar's ports. Out: one connection to the kernel for each. Nothing is read of
what passes: identities, subscriptions, signatures and ZeroMQ's own encryption are between the two ends, as if they
were connected directly. The end of one side is the end of the other, so that a peer connects again when a
kernel is started again. A side that does not read makes the other one wait; nothing is kept here.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from bedplate.core import logging
from bedplate.operators.jupyter.sidecar.connection import Connection

__all__ = ["Relay"]

log = logging.get_logger("cmjksidecar")
CHUNK = 1 << 16
CONNECT_S = 5.0
MOST = 512
"""Connections of one channel at a time: each costs two descriptors."""


class Relay:
    """Serves one channel."""

    def __init__(self, channel: str, connection: Callable[[], Connection | None]) -> None:
        self.channel = channel
        self.port = 0
        self._connection = connection
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, host: str | None, port: int) -> None:
        """Listen; `port` then says where."""
        self._server = await asyncio.start_server(self._accept, host, port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening and end what is open."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a server's callback runs in a task"
        self._tasks.add(task)
        try:
            if len(self._tasks) > MOST:
                log.warning("channel.full", channel=self.channel, connections=MOST)
                return
            await self._pass_on(reader, writer)
        except asyncio.CancelledError:
            # Only `close` cancels, and it waits for the end.
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                kernel_reader, kernel_writer = await self._connect()
        except (OSError, TimeoutError) as err:
            # The peer sees its connection closed and tries again: the kernel may not listen yet.
            log.v(2).info("channel.not_connected", channel=self.channel, error=str(err))
            return
        try:
            for side in (writer, kernel_writer):
                _send_at_once(side)
            await _both(copy(reader, kernel_writer), copy(kernel_reader, writer))
        finally:
            kernel_writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connection = self._connection()
        if connection is None:
            raise OSError("there is no connection file")
        address = connection.address(self.channel)
        if isinstance(address, str):
            return await asyncio.open_unix_connection(address, limit=CHUNK)
        return await asyncio.open_connection(*address, limit=CHUNK)


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes until it ends."""
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()


async def _both(*ways: Coroutine[Any, Any, None]) -> None:
    """Run both directions until one ends."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _send_at_once(writer: asyncio.StreamWriter) -> None:
    handle = writer.get_extra_info("socket")
    if handle is not None and handle.family in (socket.AF_INET, socket.AF_INET6):
        handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
