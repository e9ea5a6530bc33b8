"""Services as children of this process: for sandboxes that many share one process, and that end with it.

In: unit files below a root, names of services. Out: one process for each service that runs, without a keeper beside it
(`services/supervisor.py` has one, which costs 5 MB): nobody but the agent's own look for drift starts a service again,
and when this process ends, however that happens, the kernel ends its services. Only services that stay in the
foreground can be told from those that ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bedplate.agent.commands import run
from bedplate.agent.files import FileProblem
from bedplate.agent.services import Status
from bedplate.agent.services.supervisor import Supervisor
from bedplate.agent.services.unit import Unit, UnitProblem

__all__ = ["Children"]

_DEATH_SIGNAL = 1
_FIRST_POLL_S, _POLL_S = 0.001, 0.02
_libc = ctypes.CDLL(None)


class Children(Supervisor):
    """Units are read as the supervisor does; processes are started from the thread that made this."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._starts = 0
        self._instances: dict[str, str] = {}

    async def stop(self, name: str, timeout_s: float = 90.0) -> str | None:
        process = self._processes.pop(name, None)
        if process is None or process.poll() is not None:
            return None
        _signal(process, signal.SIGTERM)
        end_s, pause_s = time.monotonic() + timeout_s, _FIRST_POLL_S
        try:
            while process.poll() is None and time.monotonic() < end_s:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _POLL_S)
        finally:
            # What it started in its group goes with it.
            _signal(process, signal.SIGKILL)
            process.wait()
        return None

    async def reload(self, name: str, timeout_s: float = 90.0) -> str | None:
        process = self._processes.get(name)
        if process is None or process.poll() is not None:
            return f"{name} does not run, and cannot be reloaded"
        try:
            _, spec = self._spec(name)
        except (UnitProblem, FileProblem) as err:
            return str(err)
        for words, may_fail in _commands(spec["reload"]):
            command = [word.replace("$MAINPID", str(process.pid)) for word in words]
            ended = await run(command, timeout_s=timeout_s)
            if not ended.is_good and not may_fail:
                return ended.reason
        return None if spec["reload"] else f"{name} cannot be reloaded: its unit has no ExecReload="

    async def status(self, names: Iterable[str]) -> Mapping[str, Status]:
        return {name: self._status(name) for name in names}

    def kill(self) -> None:
        """The machine has lost its power."""
        for process in self._processes.values():
            _signal(process, signal.SIGKILL)
            process.wait()
        self._processes.clear()

    async def _start(self, name: str, timeout_s: float, above: tuple[str, ...]) -> str | None:
        process = self._processes.get(name)
        if process is not None and process.poll() is None:
            return None
        try:
            loaded, spec = self._spec(name)
        except (UnitProblem, FileProblem) as err:
            return str(err)
        why = await self._dependencies(loaded, timeout_s, (*above, name))
        if why:
            return why
        if not spec["start"]:
            return f"{name}.service has no ExecStart="
        try:
            self._launch(name, loaded, spec)
        except OSError as err:
            return f"{name} cannot be started: {(err.strerror or str(err)).lower()}"
        self._starts += 1
        self._instances[name] = f"{self._processes[name].pid}.{self._starts}"
        return None

    def _launch(self, name: str, loaded: Unit, spec: Mapping[str, object]) -> None:
        environ = spec["environ"]
        assert isinstance(environ, dict)
        self._make_folders(loaded)
        os.makedirs(self._logs, mode=0o755, exist_ok=True)
        with open(self._log(name), "ab") as log:
            self._processes[name] = subprocess.Popen(
                _commands(spec["start"])[-1][0],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=str(spec["folder"]),
                env=environ,
                start_new_session=True,
                preexec_fn=_ends_with(os.getpid()),
            )

    def _status(self, name: str) -> Status:
        process = self._processes.get(name)
        if process is None:
            try:
                is_there = self._unit(name) is not None
            except UnitProblem as err:
                return Status(name, "failed", why=str(err))
            why = "" if is_there else f"there is no unit {name}.service"
            return Status(name, "stopped" if is_there else "missing", why=why)
        code = process.poll()
        if code is None:
            return Status(name, "running", process.pid, self._instances[name])
        why = f"it was ended by signal {-code}" if code < 0 else f"it ended with code {code}"
        return Status(name, "failed", 0, self._instances[name], why=why)


def _commands(value: object) -> Sequence[tuple[Sequence[str], bool]]:
    assert isinstance(value, list)
    return value


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _ends_with(parent: int) -> Callable[[], None]:
    """The kernel ends the child when its parent ends, also by kill -9."""

    def tie() -> None:
        _libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(125)

    return tie
