"""API servers that can be killed and started again, real and embedded, behind one small interface."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from tests import forkserver, programs, servers
from tests.waiting import until

from bedplate.lab.controlplane import ControlPlane

__all__ = ["Place", "embedded", "real"]


class Place(Protocol):
    """A server under test."""

    kubeconfig: Path

    async def kill(self) -> None:
        """kill -9."""
        ...

    async def restart(self) -> None:
        """Start again on the same port with the same data; returns when ready."""
        ...


class _Real:
    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.kubeconfig = plane.kubeconfig

    async def kill(self) -> None:
        await self._plane.kill("kube-apiserver")

    async def restart(self) -> None:
        await self._plane.restart("kube-apiserver")


class _Embedded:
    def __init__(self, folder: Path, port: int) -> None:
        self._folder, self._port = folder, port
        self.kubeconfig = folder / "kubeconfig"
        self._process: forkserver.Process | None = None

    async def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(self._process.wait)

    async def restart(self) -> None:
        self.kubeconfig.unlink(missing_ok=True)
        command = [str(servers.bedplate_program()), "apiserver", "--data", str(self._folder / "data")]
        command += ["--port", str(self._port), "--kubeconfig-out", str(self.kubeconfig)]
        with (self._folder / "log").open("ab") as log:
            self._process = forkserver.Process(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        process = self._process

        def is_ready() -> bool:
            assert process.poll() is None, (self._folder / "log").read_text()
            # Written only once the server is ready.
            return self.kubeconfig.exists() and self.kubeconfig.stat().st_size > 0

        await until(is_ready, "the server is ready")

    async def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            await asyncio.to_thread(self._process.wait)


@contextlib.asynccontextmanager
async def real(folder: Path) -> AsyncIterator[Place]:
    async with ControlPlane(version="1.35", directory=folder, components=("etcd", "kube-apiserver")) as plane:
        yield _Real(plane)


@contextlib.asynccontextmanager
async def embedded(folder: Path) -> AsyncIterator[Place]:
    folder.mkdir(parents=True)
    place = _Embedded(folder, servers.free_port())
    await place.restart()
    try:
        yield place
    finally:
        await place.stop()


def opened(name: str, folder: Path) -> contextlib.AbstractAsyncContextManager[Place]:
    """A `real` or `embedded` server of a test's own; without its programs the test is skipped."""
    if name == "embedded":
        return embedded(folder)
    programs.built("kube-apiserver")
    programs.built("etcd", servers.ETCD)
    return real(folder)
