"""A head's daemon in this process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tests.waiting import DEADLINE_S

from bedplate.head.daemon import Daemon, Options
from bedplate.head.folder.datafolder import Folder
from bedplate.ui import web


@contextlib.asynccontextmanager
async def serving(folder: Folder, port: int = 0) -> AsyncIterator[Daemon]:
    daemon = Daemon(folder, Options(port=port), web.serve)
    task = asyncio.create_task(daemon.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            await daemon.started.wait()
        yield daemon
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
