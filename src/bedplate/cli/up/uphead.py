"""The head of `bedplate up`: a daemon in this process, with simulated devices under it.

In: a folder, which is made with a demonstration's tree when it is missing. Out: where it serves, how to sign in and
what to try, and what happens on its devices, for the view. It stops with the program that opened it; the folder stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import socket
import sys
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

from bedplate.api import headapi
from bedplate.cli import clusterview
from bedplate.cli.up import demotree
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.core.clock import Clock, parse_rfc3339
from bedplate.core.logging import get_logger
from bedplate.head.daemon import Daemon, Options
from bedplate.head.folder import creation, datafolder
from bedplate.head.policy import Identity
from bedplate.sim.agents import Devices, Pace
from bedplate.ui import web

__all__ = ["NAME", "NODES", "UpHead", "folder_of", "serving"]

_LOG = get_logger("up")
NAME = "basecm10"
NODES = 20
_KEPT_NOTICES = 50
# Long enough to see that a service was down, short enough not to wait for it.
_SERVICE_S = 0.2


class UpHead:
    """The head while it serves."""

    def __init__(self, folder: datafolder.Folder, url: str, client: HeadClient) -> None:
        self._folder = folder
        self._client = client
        self._url = url
        self._devices = Devices(client, pace=Pace(service_s=_SERVICE_S))
        self._notices: deque[headapi.Notice] = deque(maxlen=_KEPT_NOTICES)
        self._revision = 0
        self._listens = asyncio.Event()

    def lines(self) -> list[str]:
        """What to tell the user."""
        shown = shlex.quote(os.path.relpath(self._folder.path))
        return [
            f"the head: {self._url} (sign in with the token in {shown}/admin.token), {NODES} simulated devices",
            f"try: {_program('cmsh')} --data {shown}",
        ]

    def picture(self) -> clusterview.Head:
        """What there is now."""
        notices = tuple((notice.id, _line(notice)) for notice in self._notices)
        return clusterview.Head(self._url, self._revision, len(self._devices.devices), notices)

    async def run(self) -> None:
        """Let the devices live, and remember what they tell. Should the head refuse them (a user may have taken the
        administrator's token away), the rest goes on without them."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._listen())
                # Listening starts first, so that no report is missed.
                await self._listens.wait()
                tasks.create_task(self._devices.run())
        except* errors.BedplateError as group:
            _LOG.error("up.devices_stopped", error=str(group.exceptions[0]))

    def _linked(self, is_up: bool, words: str) -> None:
        if is_up:
            self._listens.set()

    async def _listen(self) -> None:
        self._revision = (await self._client.whoami()).revision
        events = self._client.events(self._revision, types=("revision", "notice"), on_link=self._linked)
        async for event in events:
            if event.revision is not None:
                self._revision = event.revision.number
            if event.notice is not None:
                self._notices.append(event.notice)


@contextlib.asynccontextmanager
async def serving(data: Path) -> AsyncIterator[UpHead]:
    """The head once it answers; a folder that is there is served as it is."""
    folder = await folder_of(data)
    daemon = Daemon(folder, Options(bind="127.0.0.1", port=_last_port(folder)), web.serve)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(daemon.run())
        await daemon.started.wait()
        client = HeadClient(daemon.url, token=folder.admin_token(), ca_file=str(folder.file("ca.crt")))
        try:
            async with client:
                head = UpHead(folder, daemon.url, client)
                living = tasks.create_task(head.run())
                try:
                    yield head
                finally:
                    living.cancel()
                    await asyncio.wait({living})
        finally:
            running.cancel()


async def folder_of(data: Path, *, clock: Clock | None = None) -> datafolder.Folder:
    """The data folder; one that is not there is made, with the demonstration's tree."""
    if (data / datafolder.SETTINGS).exists():
        return datafolder.Folder.find(data)
    await creation.make(data, name=NAME, nodes=NODES, clock=clock)
    async with datafolder.open_head(data, clock=clock) as opened:
        session = opened.head.session()
        demotree.stage(session)
        await opened.head.commit_as(Identity.local("bedplate up"), session.edits(), "a cluster to look at")
        return opened.folder


def _last_port(folder: datafolder.Folder) -> int:
    """The port of the last time, if it is free; else any."""
    last = urlsplit(folder.settings.url).port or 0
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", last))
    except OSError:
        return 0
    return last


def _program(name: str) -> str:
    """The program beside this one, as it is typed here."""
    if shutil.which(name) is not None:
        return name
    return os.path.relpath(Path(sys.argv[0]).with_name(name))


def _line(notice: headapi.Notice) -> str:
    return f"{parse_rfc3339(notice.time):%H:%M:%S} {notice.host}: {notice.text}"
