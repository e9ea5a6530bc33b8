"""The agents of `bedplate up`: a real agent for each machine, all in this one process, each with a folder as its root.

    python -m bedplate.cli.up.agents FOLDER        machines are FOLDER/NAME, enrolled already

In, a line each: `on NAME NUMBER` starts the agent of a machine, `cut NAME` takes the power from it. Out: `off NAME`
when a machine has switched itself off because the head asked for it. The end of the input is the end of all of them and
of their services, however it comes about. Everything that an agent does is the agent's own code on real files, but for
three things that a folder does not have: packages that can be downloaded, programs that they bring (every service is a
process that waits), and hardware to measure (checks say what those of simulated devices say).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import bedplate
from bedplate.agent import enrol, settings
from bedplate.agent.apply import Effects
from bedplate.agent.checks import FILES, SERVICES, Checks
from bedplate.agent.commands import Ended
from bedplate.agent.files import Root
from bedplate.agent.link import Link
from bedplate.agent.loop import Agent
from bedplate.agent.node import Pace
from bedplate.agent.placement import Placement
from bedplate.agent.services.children import Children
from bedplate.agent.services.firewall import Firewalled
from bedplate.agent.services.unit import Unit, load
from bedplate.agent.state import State
from bedplate.agent.update import Updates
from bedplate.api.desired import Desired
from bedplate.api.headapi import Result
from bedplate.core import errors, logging
from bedplate.core.clock import SystemClock
from bedplate.core.tasks import TaskGroup
from bedplate.sim.device import GPU, read_check

__all__ = ["KUBELET", "Machine", "main"]

_LOG = logging.get_logger("up.agents")
_STATE, _RUN, _LOGS = "/var/lib/bedplate-agent", "/run/bedplate-agent/services", "/var/log/bedplate-agent"
_UNITS, _PACKAGES = "/usr/lib/systemd/system", "/usr/share/doc"
_GPU_LABEL = "nvidia.com/gpu.present"
KUBELET = "/run/kubelet"
"""Process and arguments of the kubelet that runs on a machine, in one line: `bedplate up` plays its part in the cluster
for as long as that process lives."""
_PACE = Pace(drift_s=5.0, retry_s=10.0)
_WAITS = "exec sleep 2147483647"
_STAND_IN = """\
[Unit]
Description=Stands in for {name}: there is no such program in a sandbox
[Service]
ExecStart=/bin/sh -c '{waits}'
ExecReload=/bin/true
"""
_KUBELET_UNIT = f"""\
[Unit]
Description=Stands in for the kubelet: says how it was started, and waits
[Service]
ExecStart=/bin/sh -c 'echo "$$$$ $$*" > "$$BEDPLATE_ROOT{KUBELET}.new"; \
mv "$$BEDPLATE_ROOT{KUBELET}.new" "$$BEDPLATE_ROOT{KUBELET}"; {_WAITS}' kubelet $KUBELET_EXTRA_ARGS
"""


class _Services(Children):
    """Every service has a unit: where no package brought one, one that stands in for it."""

    def _unit(self, name: str) -> Unit | None:
        loaded = load(self._root, name)
        if loaded is None:
            text = _KUBELET_UNIT if name == "kubelet" else _STAND_IN.format(name=name, waits=_WAITS)
            _put(self._root, f"{_UNITS}/{name}.service", text)
            loaded = load(self._root, name)
        return loaded

    def _spec(self, name: str) -> tuple[Unit, dict[str, object]]:
        """Programs that a drop-in names are not there, either."""
        loaded, spec = super()._spec(name)
        for kind, stand_in in (("start", ["/bin/sh", "-c", _WAITS]), ("reload", ["/bin/true"])):
            commands = spec[kind]
            assert isinstance(commands, list)
            spec[kind] = [
                (words if words[0] in ("/bin/sh", "/bin/true") else stand_in, may_fail) for words, may_fail in commands
            ]
        return loaded, spec


class _Packages:
    """A package is a folder with its name where distributions keep a package's papers."""

    def __init__(self, root: Root) -> None:
        self._root = root

    async def installed(self, names: Iterable[str]) -> set[str]:
        return {name for name in names if self._root.stat(f"{_PACKAGES}/{name}/copyright") is not None}

    async def install(self, name: str) -> str | None:
        _put(self._root, f"{_PACKAGES}/{name}/copyright", f"{name}: a package of a sandbox, without content\n")
        return None

    async def remove(self, name: str) -> str | None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._place(name))
            os.rmdir(os.path.dirname(self._place(name)))
        return None

    async def upgrade(self, name: str, version: str, *, only_fetch: bool = False) -> str | None:
        return None

    def _place(self, name: str) -> str:
        return self._root.place(f"{_PACKAGES}/{name}/copyright")


class _Checks(Checks):
    """What the agent keeps is checked for real, hardware is not there to be measured."""

    number = 0

    async def measure(self, name: str, state: Desired | None) -> Result | None:
        if name in (SERVICES, FILES):
            return await super().measure(name, state)
        if name == GPU and (state is None or _GPU_LABEL not in state.labels):
            return None
        reading = read_check(self.number, name, time.time())
        return Result(check=name, status=reading.status, value=reading.value, info=reading.info)


async def _run(command: Sequence[str], *, timeout_s: float = 60.0, environ: Mapping[str, str] | None = None) -> Ended:
    """Programs of a sandbox are not there: what would test a configuration says nothing against it."""
    return Ended(0)


class Machine:
    """One machine: its folder, and its agent while it is on."""

    def __init__(self, folder: str, number: int) -> None:
        self.root = Root(folder, is_privileged=False)
        self._number = number
        self._services = _Services(
            self.root, _below(self.root, _RUN), _below(self.root, _LOGS), environ={"BEDPLATE_ROOT": folder}
        )

    def agent(self, link: Link) -> Agent:
        services = Firewalled(self._services, self.root)
        effects = Effects(self.root, State(_below(self.root, _STATE)), services, _Packages(self.root), _run)
        checks = _Checks(self.root, services, _run)
        checks.number = self._number
        updates = Updates(
            Placement(self.root), effects.state, link, version=bedplate.__version__, home=None, is_kept=False
        )
        return Agent(replace(effects, turns=link), link, checks=checks, pace=_PACE, updates=updates)

    async def run(self) -> None:
        """Until it is switched off, or cancelled: then its power is gone."""
        told = settings.read(self.root.folder)
        renew = [sys.executable, "-m", "bedplate.apps.agent", "renew", "--root", self.root.folder]
        try:
            async with Link(settings.login(told)) as link, TaskGroup() as tasks:
                renewing = tasks.create_task(
                    enrol.keep_renewed(told.cert, renew, clock=SystemClock(), rng=random.Random())
                )
                await self.agent(link).run()
                renewing.cancel()
        finally:
            self._services.kill()


class _Park:
    """All machines. `handle` does what a line says."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._running: dict[str, asyncio.Task[None]] = {}

    def handle(self, line: str) -> None:
        verb, name, *rest = line.split()
        if verb == "on" and name not in self._running:
            self._running[name] = asyncio.create_task(self._live(name, int(rest[0])))
        elif verb == "cut" and name in self._running:
            self._running.pop(name).cancel()

    async def stop(self) -> None:
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _live(self, name: str, number: int) -> None:
        try:
            await Machine(os.path.join(self._folder, name), number).run()
        except* (errors.BedplateError, OSError) as group:
            _LOG.error("up.agent_ended", machine=name, error=str(group.exceptions[0]))
        else:
            sys.stdout.write(f"off {name}\n")
            sys.stdout.flush()
        if self._running.get(name) is asyncio.current_task():
            del self._running[name]


def _below(root: Root, folder: str) -> str:
    return os.path.dirname(root.place(f"{folder}/x"))


def _put(root: Root, path: str, text: str) -> None:
    place = root.place(path)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(place, "w") as stream:
        stream.write(text)


async def _main(folder: str) -> None:
    park = _Park(folder)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        while line := await reader.readline():
            park.handle(line.decode())
    finally:
        await park.stop()


def main() -> None:
    """The program."""
    # The cluster and the head come first: whoever looks at them must not wait for the machines.
    os.nice(5)
    logging.configure(logging.LogOptions(), sys.stderr)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main(sys.argv[1]))


if __name__ == "__main__":
    main()
