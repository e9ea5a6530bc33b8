"""The head of a shell without a daemon, served on a socket in its data folder: for other shells of the same owner.

In: a head that this process has opened under the folder's lock, and what makes an application of a `Service`. Out: a
socket that only the owner of the folder can open, said in the lock as the address of a daemon is. Nothing is loaded for
it before the first other shell comes: most never do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from bedplate.core import errors
from bedplate.core.logging import get_logger
from bedplate.head.folder.datafolder import Opened
from bedplate.head.policy import Identity

if TYPE_CHECKING:
    from aiohttp import web

    from bedplate.head.daemon import Service

__all__ = ["SOCKET", "shared"]

SOCKET = "cmsh.sock"
_LOG = get_logger("head.sharing")
_LONGEST_PATH = 100
"""The kernel takes no longer path of a socket than 107 bytes."""


@contextlib.asynccontextmanager
async def shared(
    opened: Opened, application: Callable[[Service], web.AppRunner], owner: Identity
) -> AsyncIterator[None]:
    """Serve the head to whoever can open the socket, as `owner`, until the end of the context."""
    path, loop = opened.folder.file(SOCKET), asyncio.get_running_loop()
    # This process has the lock: what is there, a process left that was killed.
    visited = asyncio.Event()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        try:
            path.unlink(missing_ok=True)
            _bind(listening, path)
        except OSError as err:
            _LOG.warning("head.not_shared", folder=str(opened.folder.path), error=err.strerror)
            yield
            return
        loop.add_reader(listening.fileno(), visited.set)
        serving = asyncio.create_task(_serve(opened, listening, visited, application, owner))
        opened.folder.announce(f"http+unix://{quote(str(path.absolute()), safe='')}")
        try:
            yield
        finally:
            opened.folder.announce("")
            path.unlink(missing_ok=True)
            loop.remove_reader(listening.fileno())
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


def _bind(listening: socket.socket, path: Path) -> None:
    mask = os.umask(0o177)
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        is_long = len(os.fsencode(path)) > _LONGEST_PATH
        listening.bind(f"/proc/self/fd/{folder}/{path.name}" if is_long else str(path))
    finally:
        os.close(folder)
        os.umask(mask)
    listening.listen(64)
    listening.setblocking(False)


async def _serve(
    opened: Opened,
    listening: socket.socket,
    visited: asyncio.Event,
    application: Callable[[Service], web.AppRunner],
    owner: Identity,
) -> None:
    await visited.wait()
    asyncio.get_running_loop().remove_reader(listening.fileno())
    from aiohttp import web  # costs more than all the rest of a shell's start

    from bedplate.head.access import Access
    from bedplate.head.daemon import Service
    from bedplate.head.health import Health
    from bedplate.head.notices import Notices
    from bedplate.head.render import RENDERERS
    from bedplate.head.tokens import Tokens

    class Owner(Access):
        """Whoever can open the socket could open the folder."""

        def by_token(self, text: str) -> Identity | None:
            return owner

    try:
        async with Notices(opened.store) as notices, Health(opened.store) as health:
            tokens = Tokens(opened.store)
            await tokens.open()
            name, head = opened.folder.settings.name, opened.head
            service = Service(head, Owner(lambda: head.tree, tokens), notices, health, name=name, renderers=RENDERERS)
            runner = application(service)
            await runner.setup()
            try:
                await web.SockSite(runner, listening).start()
                await asyncio.Event().wait()
            finally:
                await runner.cleanup()
    except (errors.BedplateError, OSError) as err:
        _LOG.warning("head.not_shared", folder=str(opened.folder.path), error=str(err))
