"""Standing by: another daemon serves this node, and this one waits until that one has ended.

In: the path of the daemons' socket. Out: `wait`, which returns when no daemon listens there any more. A daemon that is
replaced is told to stop only when its successor is there (`maxSurge` of the DaemonSet), so for a while there are two.
The original holds no lock on its store, and what it writes after another process has read the store would be lost.

No connection is kept open: one that sends nothing keeps the original from ending. Instead Linux (6.5 and later) tells
the end of the process that listens, which has written everything by then, in whatever PID namespace it is. Where this
is not told, the socket is looked at again and again, and the last calls get a moment to end.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from bedplate.core.clock import Clock

__all__ = ["Listener", "look", "wait"]

POLL_S = 0.2
SETTLE_S = 0.5
"""An old daemon's last calls end within that; a plugin waits for seconds."""
_SO_PEERPIDFD = 77
_PEER = struct.Struct("3i")


class Listener(NamedTuple):
    """A process that accepts connections: if the system has it, a descriptor that is readable once it has ended."""

    process: int | None


def look(path: str) -> Listener | None:
    """Who listens on a socket; whoever gets the descriptor closes it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(path)
        except BlockingIOError:
            # Its queue is full: it is there, and behind with its work.
            return Listener(None)
        except OSError:
            # Missing, or left behind. Whatever else it is, binding says it.
            return None
        pid, _, _ = _PEER.unpack(probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        if pid == os.getpid():
            return Listener(None)
        try:
            return Listener(probe.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD))
        except OSError:
            return Listener(None)


async def wait(path: str, *, time: Clock, begin: Callable[[], Awaitable[None]]) -> bool:
    """Return when no daemon listens. Where one does, `begin` is called once; whether it was."""
    has_begun, has_ended = False, True
    while True:
        listener = look(path)
        if listener is None:
            if has_ended:
                return has_begun
            await time.sleep(SETTLE_S)
            has_ended = True
            continue
        try:
            if not has_begun:
                has_begun = True
                await begin()
            if listener.process is None:
                await time.sleep(POLL_S)
            else:
                await _end_of(listener.process)
            has_ended = listener.process is not None
        finally:
            if listener.process is not None:
                os.close(listener.process)


async def _end_of(process: int) -> None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    loop.add_reader(process, _note, ended)
    try:
        await ended
    finally:
        loop.remove_reader(process)


def _note(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)
