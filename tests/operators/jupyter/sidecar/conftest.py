"""A sidecar in this process, with ports that the system chooses, before a kernel that a test plays."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from bedplate.core import clock
from bedplate.operators.jupyter.names import CHANNELS
from bedplate.operators.jupyter.sidecar.options import Place, Serving
from bedplate.operators.jupyter.sidecar.process import Sidecar

KEY = "a-key"


def write_file(path: Path, ports: dict[str, int], **more: Any) -> None:
    """A kernel's connection file."""
    content = {f"{name}_port": port for name, port in ports.items()}
    path.write_text(json.dumps({**content, "ip": "127.0.0.1", "transport": "tcp", "key": KEY, **more}))


class Running:
    """A sidecar that runs, and how it ended."""

    def __init__(self, sidecar: Sidecar, task: asyncio.Future[None], path: Path) -> None:
        self.sidecar = sidecar
        self.task = task
        self.path = path

    async def say(self, *messages: object, ends: bool = False) -> list[dict[str, Any]]:
        """Say something at the communication port; the answers."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.sidecar.gateway.port)
        try:
            texts = [message if isinstance(message, str) else json.dumps(message) for message in messages]
            writer.write("\n".join(texts).encode() + (b"" if ends else b"\n"))
            writer.write_eof()
            answers = await asyncio.wait_for(reader.read(), 60)
            return [json.loads(line) for line in answers.splitlines()]
        finally:
            writer.close()


Start = Callable[..., contextlib.AbstractAsyncContextManager[Running]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a sidecar; its kernel's connection file is `path`."""

    @contextlib.asynccontextmanager
    async def started(time: clock.Clock | None = None, **chosen: Any) -> AsyncIterator[Running]:
        path = tmp_path / "kernel-parm.json"
        where = Place(str(path), "the-kernel", dict.fromkeys(CHANNELS, 0), 0)
        serving = Serving(**{"timeout": 1e6, "bind_address": "127.0.0.1", **chosen})
        sidecar = Sidecar(serving, where, time if time is not None else clock.SystemClock())
        task = asyncio.ensure_future(sidecar.run())
        try:
            while not sidecar.gateway.port and not task.done():
                await asyncio.sleep(0)
            yield Running(sidecar, task, path)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    return started
