"""A wire between a client and a server that can be cut, for tests of what a lost connection costs.

In: the port of a server. Out: a port of its own. `cut()` closes every connection and takes no new one until
`restore()`; `swallow_next()` lets one request of that method reach the server and loses its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType


class Wire:
    """Open with `async with`."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_cut = False
        self._swallowed = b""
        self.port = 0
        self.lost = 0
        """How many answers were swallowed."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Wire:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        await self._drop()

    async def cut(self) -> None:
        self._is_cut = True
        await self._drop()

    def restore(self) -> None:
        self._is_cut = False

    def lead_to(self, port: int) -> None:
        """Connections that are made from now on go to another server."""
        self._to = port

    def swallow_next(self, method: str) -> None:
        self._swallowed = method.encode() + b" "

    async def _drop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if not self._is_cut:
                await self._join(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", self._to)
        is_swallowing = asyncio.Event()

        async def requests() -> None:
            while chunk := await reader.read(65536):
                if self._swallowed and chunk.startswith(self._swallowed):
                    self._swallowed = b""
                    is_swallowing.set()
                ours.write(chunk)
                await ours.drain()

        async def answers() -> None:
            while chunk := await theirs.read(65536):
                if is_swallowing.is_set():
                    self.lost += 1
                    return
                writer.write(chunk)
                await writer.drain()

        ways = [asyncio.create_task(requests()), asyncio.create_task(answers())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            ours.close()
            with contextlib.suppress(OSError):
                await ours.wait_closed()
