"""The machines of `bedplate up`: each a folder with a real agent, a machine of the simulated cloud, and a Node.

In: the head's devices, the fleet of kubelets, the simulated site. Out: an enrolled agent for each device that is a
machine here, all of them in one process of their own (`agents`); the kubelet's process on a machine decides whether its
Node is Ready and how many pods it takes; a machine that is switched off through its agent stops in the cloud, one that
the cloud stops loses its agent, and one that starts has it again. Nothing of it outlives this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import NamedTuple

from bedplate.agent import enrol, settings
from bedplate.api.headapi import Facts
from bedplate.cli.up import agents
from bedplate.cli.up.site import RUNNING, Site
from bedplate.client import HeadClient
from bedplate.core import clock, errors, logging
from bedplate.core.tasks import TaskGroup
from bedplate.lab import processes

__all__ = ["Kubelet", "Sandboxes", "kubelet_of"]

_LOG = logging.get_logger("up.machines")
_LEAST_LIFE_S = 3600.0
_LOOK_S = 0.5
_FLAG = "--max-pods="


class Kubelet(NamedTuple):
    """A kubelet that runs on a machine."""

    pid: int
    max_pods: int


def kubelet_of(text: str) -> Kubelet | None:
    """What a machine's kubelet said of itself: its process, then its arguments."""
    pid, *words = text.split() or [""]
    if not pid.isdecimal():
        return None
    numbers = [word.removeprefix(_FLAG) for word in words if word.startswith(_FLAG)]
    return Kubelet(int(pid), int(numbers[-1]) if numbers and numbers[-1].isdecimal() else 0)


class Sandboxes:
    """`run` until cancelled."""

    def __init__(self, folder: Path, site: Site, *, time: clock.Clock | None = None) -> None:
        self._folder = folder.resolve()
        self._site = site
        self._time = time or clock.SystemClock()
        self._names: list[str] = []
        self._enrolled: set[str] = set()
        self._texts: dict[str, str] = {}
        self._changed: set[str] = set()
        self._child: asyncio.subprocess.Process | None = None
        site.cloud.listeners.append(lambda change: self._changed.add(change.machine.name))

    async def switch_on(self, node: str) -> str | None:
        """What the management controller of a machine does; None, or why it cannot."""
        try:
            self._site.cloud.start(node)
        except errors.NotFound:
            return f"there is no machine {node} in the cloud"
        return None

    async def run(self, url: str, authority: Path, client: HeadClient) -> None:
        """Let the agents of the head's devices live. Raises what keeps them from being enrolled."""
        devices = {entity.key: entity.type for entity in await client.list("device")}
        here = self._site.machines
        self._names = [name for name, type_ in devices.items() if name in here or type_ == "HeadNode"]
        self._folder.mkdir(parents=True, exist_ok=True)
        trusted = await asyncio.to_thread(authority.read_bytes)
        async with self._agents() as child, TaskGroup() as tasks:
            tasks.create_task(self._listen(child))
            tasks.create_task(self._look())
            for name in self._names:
                tasks.create_task(self._join(name, url, trusted, client))

    # Agents

    async def _join(self, name: str, url: str, authority: bytes, client: HeadClient) -> None:
        """Enrol a machine, and start its agent. One that starts has nothing in `/run`; its certificate is kept while it
        is good."""
        root = self._folder / name
        shutil.rmtree(root / "run", ignore_errors=True)
        (root / "run").mkdir(parents=True)
        place = Path(settings.place(str(root)))
        pair, trusted = place.with_name(enrol.PAIR), place.with_name(enrol.AUTHORITY)
        life = enrol.life(str(pair))
        is_good = life is not None and life.ends_s > self._time.now().timestamp() + _LEAST_LIFE_S
        if not is_good or not trusted.exists() or trusted.read_bytes().strip() != authority.strip():
            token = (await client.create_token(name, kind="enrol", replace=True)).token
            await enrol.enrol([url], token, str(place.parent), about=Facts(hostname=name))
        settings.write(str(place), name, [url], str(trusted), str(pair))
        self._enrolled.add(name)
        self._power(name)

    @contextlib.asynccontextmanager
    async def _agents(self) -> AsyncIterator[asyncio.subprocess.Process]:
        """The process of all agents; it ends when its input does, and the kernel ends it with this one."""
        with (self._folder / "agents.log").open("ab") as log:
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", agents.__name__, str(self._folder)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                preexec_fn=processes.die_with_parent(os.getpid()),
                # Ctrl-C is for the program that everybody sees; it ends this one.
                start_new_session=True,
            )
        self._child = child
        try:
            yield child
        finally:
            assert child.stdin is not None
            child.stdin.close()
            try:
                async with asyncio.timeout(10.0):
                    await child.wait()
            except TimeoutError:
                child.kill()
                await child.wait()

    def _tell(self, line: str) -> None:
        if self._child is not None and self._child.stdin is not None and self._child.returncode is None:
            self._child.stdin.write(f"{line}\n".encode())

    async def _listen(self, child: asyncio.subprocess.Process) -> None:
        assert child.stdout is not None
        while line := (await child.stdout.readline()).decode().split():
            if line[0] == "off" and line[1] in self._site.machines:
                self._site.cloud.stop(line[1])
        raise errors.Unavailable("the agents have ended", hint=f"see {self._folder / 'agents.log'}")

    # Power and kubelets

    async def _look(self) -> None:
        while True:
            changed, self._changed = self._changed & self._enrolled, set()
            for name in changed:
                self._power(name)
            for name, text in self._kubelets(self._names):
                await self._apply(name, kubelet_of(text))
            await self._time.sleep(_LOOK_S)

    def _power(self, name: str) -> None:
        """Give an agent to a machine that runs, and take it from one that does not."""
        is_on = name not in self._site.machines or self._site.state(name) == RUNNING
        self._tell(f"on {name} {self._names.index(name)}" if is_on else f"cut {name}")

    def _kubelets(self, names: Iterable[str]) -> Iterable[tuple[str, str]]:
        """The machines whose kubelet is another one than at the last look, or none; those that never had one wait."""
        for name in names:
            if name not in self._site.machines:
                continue
            try:
                text = (self._folder / name / agents.KUBELET.lstrip("/")).read_text()
            except FileNotFoundError:
                continue
            kubelet = kubelet_of(text)
            if kubelet is not None and not os.path.exists(f"/proc/{kubelet.pid}"):
                text = "-"
            if self._texts.get(name) != text:
                self._texts[name] = text
                yield name, text

    async def _apply(self, name: str, kubelet: Kubelet | None) -> None:
        self._site.kubelet(name, runs=kubelet is not None)
        if kubelet is not None and kubelet.max_pods:
            await self._site.resize(name, kubelet.max_pods)
