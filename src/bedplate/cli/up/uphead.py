"""The head of `bedplate up`: a daemon in this process, over the machines of the cluster.

In: a folder, which is made with a demonstration's tree when it is missing; the cluster's kubeconfig; what switches a
machine on. Out: where it serves, how to sign in and what to try, and what happens on its devices, for the view. It
stops with the program that opened it; the folder stays.
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
from bedplate.core.tasks import TaskGroup
from bedplate.head import kubenodes
from bedplate.head.daemon import Daemon, Options
from bedplate.head.errands import Controller
from bedplate.head.folder import creation, datafolder
from bedplate.head.policy import Identity
from bedplate.serving.files import write_private
from bedplate.setup.serving import KubernetesSetups
from bedplate.ui import web

__all__ = ["NAME", "NODES", "UpHead", "folder_of", "serving"]

_LOG = get_logger("up")
NAME = "basecm10"
NODES = 20
_KEPT_NOTICES = 50
_COUNT_S = 2.0


class UpHead:
    """The head while it serves."""

    def __init__(self, folder: datafolder.Folder, url: str, client: HeadClient, machines: int) -> None:
        self._folder = folder
        self.client = client
        self.url = url
        self._machines = machines
        self._devices = (0, machines)
        self._notices: deque[headapi.Notice] = deque(maxlen=_KEPT_NOTICES)
        self._revision = 0

    @property
    def authority(self) -> Path:
        """The certificate that vouches for the head."""
        return self._folder.file("ca.crt")

    def lines(self) -> list[str]:
        """What to tell the user."""
        shown = shlex.quote(os.path.relpath(self._folder.path))
        return [
            f"the head: {self.url} (sign in with the token in {shown}/admin.token), {self._machines} machines",
            f"try: {_program('cmsh')} --data {shown}",
        ]

    def picture(self) -> clusterview.Head:
        """What there is now."""
        notices = tuple((notice.id, _line(notice)) for notice in self._notices)
        return clusterview.Head(self.url, self._revision, *self._devices, notices)

    async def run(self) -> None:
        """Remember what the devices tell, and how many are what they should be. Should the head refuse it (a user may
        have taken the administrator's token away), the rest goes on without."""
        try:
            async with TaskGroup() as tasks:
                tasks.create_task(self._listen())
                tasks.create_task(self._count())
        except* errors.BedplateError as group:
            _LOG.error("up.devices_unknown", error=str(group.exceptions[0]))

    async def _count(self) -> None:
        while True:
            try:
                states = await self.client.nodes()
            except errors.Retryable as err:
                _LOG.v(1).info("up.head_away", error=str(err))
            else:
                settled = sum(state.state == "UP" and state.applied > 0 and not state.pending for state in states)
                self._devices = settled, len(states)
            await asyncio.sleep(_COUNT_S)

    async def _listen(self) -> None:
        self._revision = (await self.client.whoami()).revision
        events = self.client.events(self._revision, types=("revision", "notice"))
        async for event in events:
            if event.revision is not None:
                self._revision = event.revision.number
            if event.notice is not None:
                self._notices.append(event.notice)


@contextlib.asynccontextmanager
async def serving(
    data: Path, *, nodes: int = NODES, kubeconfig: Path | None = None, controller: Controller | None = None
) -> AsyncIterator[UpHead]:
    """The head once it answers; a folder that is there is served as it is."""
    folder = await folder_of(data, nodes=nodes)
    if kubeconfig is not None:
        _place(kubeconfig, kubenodes.file_of(folder.path, demotree.CLUSTER))
    options = Options(bind="127.0.0.1", port=_last_port(folder))
    daemon = Daemon(folder, options, web.serve, controller=controller, setups=KubernetesSetups)
    async with TaskGroup() as tasks:
        running = tasks.create_task(daemon.run())
        await daemon.started.wait()
        client = HeadClient(daemon.url, token=folder.admin_token(), ca_file=str(folder.file("ca.crt")))
        try:
            async with client:
                head = UpHead(folder, daemon.url, client, nodes)
                living = tasks.create_task(head.run())
                try:
                    yield head
                finally:
                    living.cancel()
                    await asyncio.wait({living})
        finally:
            running.cancel()


async def folder_of(data: Path, *, nodes: int = NODES, clock: Clock | None = None) -> datafolder.Folder:
    """The data folder; one that is not there is made, with the demonstration's tree."""
    if (data / datafolder.SETTINGS).exists():
        return datafolder.Folder.find(data)
    await creation.make(data, name=NAME, nodes=nodes, clock=clock)
    async with datafolder.open_head(data, clock=clock) as opened:
        session = opened.head.session()
        demotree.stage(session)
        await opened.head.commit_as(Identity.local("bedplate up"), session.edits(), "a cluster to look at")
        return opened.folder


def _place(kubeconfig: Path, own: Path) -> None:
    """Let the head have the kubeconfig of its cluster."""
    own.parent.mkdir(mode=0o700, exist_ok=True)
    write_private(own, kubeconfig.read_bytes())


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
