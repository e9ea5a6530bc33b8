"""The gateway, seen from the sidecar: is it there, and does it know how to reach the kernel?

In: connections at the communication port, the kernel's connection file, a clock. Out: answers to pings; the parameters,
sent until a signed ping shows that they arrived; and why the sidecar ends: `Stopped`, or `TimedOut`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

from bedplate.core import clock, errors, logging
from bedplate.operators.jupyter.sidecar import messages
from bedplate.operators.jupyter.sidecar.connection import Connection
from bedplate.operators.jupyter.sidecar.messages import Ping

__all__ = ["Gateway", "Stopped", "TimedOut"]

log = logging.get_logger("cmjksidecar")
LINE = 1 << 14
"""The longest message."""
QUIET_S = 30.0
"""A connection that says nothing for so long is closed; a gateway that opens a new one for each ping is as well."""
AGAIN_S = 5.0
SEND_S = 10.0
MOST = 64


class Stopped(errors.Terminal):
    """The gateway ended the kernel."""


class TimedOut(errors.Terminal):
    """The gateway was not heard of for too long."""


class Gateway:
    """Counts pings and tells the parameters."""

    def __init__(
        self, timeout_s: float, kernel_id: str, connection: Callable[[], Connection | None], time: clock.Clock
    ) -> None:
        self.port = 0
        self._timeout_s = timeout_s
        self._kernel_id = kernel_id
        self._connection = connection
        self._time = time
        self._heard = time.monotonic()
        self._last = 0
        self._is_told = asyncio.Event()
        self._is_over = asyncio.Event()
        self._open: set[asyncio.Task[None]] = set()

    # Pings

    async def serve(self, host: str | None, port: int) -> asyncio.Server:
        """Listen at the communication port; `port` then says where."""
        server = await asyncio.start_server(self._accept, host, port, limit=LINE)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def watch(self) -> None:
        """Wait for the end: raises `Stopped` or `TimedOut`."""
        while not self._is_over.is_set():
            left_s = self._heard + self._timeout_s - self._time.monotonic()
            if left_s <= 0:
                raise TimedOut(f"Timeout receiving pings from server for {self._timeout_s:g} sec. Shutting down.")
            await self._sleep(left_s)
        raise Stopped("the gateway ended the kernel")

    async def _sleep(self, seconds: float) -> None:
        """Until then, or until the end."""
        sleeping = asyncio.ensure_future(self._time.sleep(seconds))
        ending = asyncio.ensure_future(self._is_over.wait())
        try:
            await asyncio.wait((sleeping, ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sleeping, ending):
                task.cancel()
            await asyncio.gather(sleeping, ending, return_exceptions=True)

    async def close(self) -> None:
        """End what is open."""
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a server's callback runs in a task"
        self._open.add(task)
        try:
            # Beyond the limit a connection is closed unheard; those that are open end by themselves.
            if len(self._open) <= MOST:
                await self._converse(reader, writer)
        except (OSError, ValueError, TimeoutError, asyncio.CancelledError) as err:
            log.v(4).info("gateway.connection_ended", error=str(err))
        finally:
            self._open.discard(task)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            async with asyncio.timeout(QUIET_S):
                # A gateway that sends one message and closes need not end its line.
                line = await reader.readline()
            if not line:
                return
            if line.strip():
                writer.write(json.dumps(self.answer(line)).encode() + b"\n")
                await writer.drain()

    def answer(self, line: bytes) -> dict[str, Any]:
        """Take a message in; what is answered."""
        connection = self._connection()
        key = connection.key if connection is not None else None
        try:
            message = messages.read(line, key, self._last, self._is_told.is_set())
        except errors.BedplateError as err:
            log.v(2).info("gateway.message_refused", why=str(err))
            return {"error": str(err)}
        if not isinstance(message, Ping):
            self._last = message.number
            self._is_over.set()
            return {"kernel_id": self._kernel_id, "state": "stopping"}
        if message.is_signed:
            self._last = message.number
            self._is_told.set()
        self._heard = self._time.monotonic()
        state = "waiting" if connection is None else "ready"
        return {"pong": message.number, "kernel_id": self._kernel_id, "state": state}

    # Parameters

    async def tell(self, host: str, port: int, public_key: str, parameters: dict[str, Any]) -> None:
        """Send the parameters until the gateway shows that it has them."""
        while not self._is_told.is_set():
            try:
                async with asyncio.timeout(SEND_S):
                    await self._send(host, port, public_key, parameters)
                log.info("gateway.told", address=f"{host}:{port}")
            except (OSError, TimeoutError) as err:
                log.warning("gateway.not_told", address=f"{host}:{port}", error=str(err) or type(err).__name__)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S):
                    await self._is_told.wait()
        log.info("gateway.connected", address=f"{host}:{port}")

    async def _send(self, host: str, port: int, public_key: str, parameters: dict[str, Any]) -> None:
        _, writer = await asyncio.open_connection(host, port)
        try:
            # The address by which this pod reaches the gateway is the one by which the gateway reaches this pod.
            own = writer.get_extra_info("sockname")[0]
            writer.write(messages.encrypted({**parameters, "ip": own}, public_key))
            await writer.drain()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
