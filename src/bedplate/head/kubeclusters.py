"""Follows the Kubernetes clusters that the head reaches: those with a kubeconfig in the data folder.

In: `kubernetes/NAME.kubeconfig` for clusters of the tree. Out: for each one a task, while this head is the active one
and the file stays the same; a task that ended by an error is started again. What it does is said by who starts it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from bedplate.core import errors
from bedplate.core.backoff import Backoff
from bedplate.core.clock import Clock
from bedplate.core.logging import get_logger
from bedplate.head.service import Head

if TYPE_CHECKING:
    from bedplate.kube.client import Client

__all__ = ["FOLDER", "Follower", "KubeClusters", "file_of", "until_served"]

_LOG = get_logger("head.kubernetes")
FOLDER = "kubernetes"
_LOOK_S = 5.0
_ANSWER_S = 10.0


async def until_served(client: Client, clock: Clock, tell: Callable[[str], None] = lambda why: None) -> None:
    """Return once the API server of a cluster answers; `tell` is called with why it does not. A cluster that is being
    made has its kubeconfig long before an API server: whoever lists at once waits longer and longer after each failure,
    and is still waiting when there is one."""
    pace = Backoff(first_s=0.5, cap_s=2.0, jitter=0.2)
    while True:
        try:
            await client.request("GET", "/readyz", accept="text/plain", timeout_s=_ANSWER_S)
        except errors.Unavailable as err:
            tell(str(err))
            await clock.sleep(pace.next())
        except errors.BedplateError:
            # Whatever it refuses, it answers.
            return
        else:
            return


class Follower(Protocol):
    """What works on one cluster."""

    async def run(self, file: Path) -> None:
        """Work with that kubeconfig until cancelled."""
        ...


F = TypeVar("F", bound=Follower)


def file_of(folder: Path, cluster: str) -> Path:
    """Where the kubeconfig of a cluster is in a data folder."""
    return folder / FOLDER / f"{cluster}.kubeconfig"


class KubeClusters(Generic[F]):
    """All clusters with a kubeconfig, each with what `start` makes for its name. `run` until cancelled."""

    def __init__(self, head: Head, folder: Path, start: Callable[[str], F], *, clock: Clock) -> None:
        self._head = head
        self._folder = folder
        self._start = start
        self._clock = clock
        self._running: dict[str, tuple[tuple[int, int], asyncio.Task[None], F]] = {}

    def __iter__(self) -> Iterator[F]:
        return iter([follower for _, _, follower in self._running.values()])

    def get(self, name: str) -> F | None:
        """What works on a cluster; None for one without a kubeconfig, or while another head is the active one."""
        running = self._running.get(name)
        return running[2] if running is not None else None

    async def run(self) -> None:
        """Follow the kubeconfigs that come, change and go."""
        try:
            while True:
                await self._compare()
                await self._clock.sleep(_LOOK_S)
        finally:
            for name in list(self._running):
                await self._stop(name)

    async def _compare(self) -> None:
        there = self._files() if self._head.standing.is_active else {}
        for name, (mark, task, _) in list(self._running.items()):
            if there.get(name) != mark or task.done():
                await self._stop(name)
        for name, mark in there.items():
            if name not in self._running:
                follower = self._start(name)
                task = asyncio.create_task(follower.run(file_of(self._folder, name)), name=f"kubernetes {name}")
                self._running[name] = mark, task, follower

    def _files(self) -> dict[str, tuple[int, int]]:
        try:
            entries = list((self._folder / FOLDER).iterdir())
        except OSError:
            return {}
        marks = {}
        for entry in entries:
            if entry.suffix == ".kubeconfig" and self._head.tree.find("kubernetes", entry.stem) is not None:
                with contextlib.suppress(OSError):
                    about = entry.stat()
                    marks[entry.stem] = about.st_mtime_ns, about.st_ino
        return marks

    async def _stop(self, name: str) -> None:
        _, task, _ = self._running.pop(name)
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled() and (err := task.exception()) is not None:
            _LOG.warning("head.kubernetes.interrupted", cluster=name, error=errors.describe(err))
