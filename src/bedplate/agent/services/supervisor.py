"""Our own supervisor, for machines whose PID 1 is not systemd, and for sandboxes.

In: unit files below a root, names of services. Out: a keeper process for each service that should run
(`services/keeper.py`). The agent talks to it by signals and reads its status file; whether it lives is what the kernel
says about its lock. So a service outlives its agent, the next agent finds it, and no service ever runs twice: the
keeper that does not get the lock ends. What a keeper left behind that was killed itself is killed before a new start.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import grp
import marshal
import os
import pwd
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bedplate.agent.files import FileProblem, Root
from bedplate.agent.services import Condition, Status, unit
from bedplate.agent.services.unit import Unit, UnitProblem

__all__ = ["Supervisor", "holder"]

_KEEPER = str(Path(__file__).with_name("keeper.py"))
_POLL_S = 0.02
_LANDS_WITHIN_S = 30.0
_FIRST_POLL_S = 0.002
_FLOCK = "hhqqi"
_BUSY = 75
_SUBREAPER = 36
_MARK = "BEDPLATE_SERVICE"
_LOG_BYTES = 10 << 20
_FOREVER_S = 10 * 365 * 86400.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CONDITIONS: Mapping[str, Condition] = {
    "running": "running",
    "starting": "starting",
    "stopping": "running",
    "waiting": "failed",
    "stopped": "stopped",
    "done": "running",
    "failed": "failed",
}


_ENDED = ("stopped", "failed", "done")
"""States that a keeper ends with: there is nothing left of the service. A task that did what it should is `done`."""


class _Seen(NamedTuple):
    """What a keeper last said of itself, and the process that holds its lock (0: none)."""

    holder: int
    facts: Mapping[str, str]

    def number(self, name: str) -> int:
        text = self.facts.get(name, "")
        return int(text) if text.isdecimal() else 0

    @property
    def is_told(self) -> bool:
        """Whether what was said is by the keeper that lives."""
        return self.holder != 0 and self.number("keeper") == self.holder


class Supervisor:
    """`folder` holds a folder for each service; `logs` their logs. Units and environment files are read below `root`.

    `environ` is what every service gets; in a sandbox that is also where it is.
    """

    def __init__(
        self,
        root: Root,
        folder: str,
        logs: str,
        *,
        python: str = sys.executable,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._root = root
        self._folder = folder
        self._logs = logs
        self._python = python
        self._environ = dict(environ or {})
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    # The interface

    async def start(self, name: str, timeout_s: float = 90.0) -> str | None:
        return await self._start(name, timeout_s, ())

    async def stop(self, name: str, timeout_s: float = 90.0) -> str | None:
        await self._landed(name)
        seen = self._look(name)
        if seen.holder:
            _send(seen.holder, signal.SIGTERM)
            if not await self._gone(name, seen.holder, timeout_s):
                self._destroy(name, seen.holder)
                await self._gone(name, seen.holder, timeout_s)
        self._kill_orphans(name, self._look(name))
        with contextlib.suppress(FileNotFoundError):
            # A task that was done is not any more.
            os.unlink(os.path.join(self._of(name), "status"))
        return None

    async def retire(self, name: str, timeout_s: float = 90.0) -> str | None:
        return await self.stop(name, timeout_s)

    async def restart(self, name: str, timeout_s: float = 90.0) -> str | None:
        # What cannot start is not stopped for it.
        try:
            self._spec(name)
        except (UnitProblem, FileProblem) as err:
            return str(err)
        await self.stop(name, timeout_s)
        return await self.start(name, timeout_s)

    async def reload(self, name: str, timeout_s: float = 90.0) -> str | None:
        await self._landed(name)
        seen = self._look(name)
        if not seen.is_told:
            return f"{name} does not run, and cannot be reloaded"
        before = seen.number("reloads")
        _send(seen.holder, signal.SIGHUP)
        end_s = time.monotonic() + timeout_s
        while time.monotonic() < end_s:
            seen = self._look(name)
            if not seen.holder:
                return f"{name} ended while it was reloaded"
            if seen.number("reloads") > before:
                return seen.facts.get("reload_error") or None
            await asyncio.sleep(_POLL_S)
        return f"{name} was not reloaded within {timeout_s:g} s"

    async def enable(self, name: str) -> str | None:
        """What should run is started by the agent when the machine starts."""
        return None

    async def disable(self, name: str) -> str | None:
        return None

    async def is_enabled(self, name: str) -> bool:
        return False

    async def reload_units(self) -> str | None:
        """Units are read at every start."""
        return None

    async def status(self, names: Iterable[str]) -> Mapping[str, Status]:
        self._reap()
        statuses = {}
        for name in names:
            await self._landed(name)
            statuses[name] = self._status(name)
        return statuses

    def ordered(self, names: Sequence[str]) -> Sequence[str]:
        """By `After=`; where that goes in a circle, as they were."""
        left, placed = list(names), list[str]()
        after = {name: set(_services(self._after(name))) & set(names) - {name} for name in names}
        while left:
            ready = next((name for name in left if after[name] <= set(placed)), left[0])
            left.remove(ready)
            placed.append(ready)
        return placed

    # Starting

    async def _start(self, name: str, timeout_s: float, above: tuple[str, ...]) -> str | None:
        await self._landed(name)
        seen = self._look(name)
        state = seen.facts.get("state", "")
        if seen.is_told and state == "starting":
            return await self._up(name, timeout_s)
        if (seen.is_told and state == "running") or state == "done":
            return None
        try:
            loaded, spec = self._spec(name)
        except (UnitProblem, FileProblem) as err:
            return str(err)
        why = await self._dependencies(loaded, timeout_s, (*above, name))
        if why:
            return why
        if seen.holder:
            # It waits to be started again; whoever asks now does not want to wait.
            await self.stop(name, timeout_s)
        self._kill_orphans(name, self._look(name))
        try:
            self._launch(name, loaded, spec)
        except OSError as err:
            return f"{name} cannot be started: {(err.strerror or str(err)).lower()}"
        limit_s = spec["start_timeout_s"] if isinstance(spec["start_timeout_s"], float) else timeout_s
        return await self._up(name, max(timeout_s, min(limit_s, 600.0)))

    async def _dependencies(self, loaded: Unit, timeout_s: float, above: tuple[str, ...]) -> str | None:
        for needed in _services((*loaded.requires, *loaded.wants)):
            if needed in above or self._unit(needed) is None:
                continue
            why = await self._start(needed, timeout_s, above)
            if why and f"{needed}.service" in loaded.requires:
                return f"{loaded.name} needs {needed}: {why}"
        return None

    def _launch(self, name: str, loaded: Unit, spec: Mapping[str, object]) -> None:
        folder = self._of(name)
        os.makedirs(folder, mode=0o755, exist_ok=True)
        os.makedirs(self._logs, mode=0o755, exist_ok=True)
        self._make_folders(loaded)
        handle = os.open(os.path.join(folder, "spec.new"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(handle, "wb") as stream:
            marshal.dump(dict(spec), stream)
        os.rename(os.path.join(folder, "spec.new"), os.path.join(folder, "spec"))
        self._reap()
        # The keeper inherits this lock: whoever comes when we are gone knows that it is on its way.
        launch = os.open(os.path.join(folder, "launch"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(launch, fcntl.LOCK_EX)
            self._children[name] = subprocess.Popen(
                [self._python, "-I", "-S", _KEEPER, folder, str(launch)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                # An agent that is a service itself must not hand its own mark on to others.
                env={name: value for name, value in os.environ.items() if name != _MARK},
                start_new_session=True,
                preexec_fn=_become_subreaper,
                pass_fds=(launch,),
            )
        finally:
            os.close(launch)

    async def _up(self, name: str, timeout_s: float) -> str | None:
        """Wait until a service runs, or says why not."""
        end_s, pause_s = time.monotonic() + timeout_s, _FIRST_POLL_S
        while True:
            seen, child = self._look(name), self._children.get(name)
            state = seen.facts.get("state", "")
            has_ended = not seen.holder and (child is None or child.poll() is not None)
            if has_ended and child is not None and seen.number("keeper") != child.pid and child.returncode != _BUSY:
                return f"{name}: its keeper ended with code {child.returncode}"
            if seen.is_told or has_ended:
                if state in ("running", "done"):
                    return None
                if state in ("waiting", "failed"):
                    return self._failure(name, seen)
            if has_ended and state == "stopped" and seen.facts.get("why"):
                return None  # it did what it was for before anybody looked
            if has_ended:
                return f"{name} was stopped while it started"
            if time.monotonic() > end_s:
                return f"{name} did not start within {timeout_s:g} s"
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _POLL_S)

    def _failure(self, name: str, seen: _Seen) -> str:
        why = seen.facts.get("why", "") or "it ended"
        last = _last_line(self._log(name))
        return f"{why}; {last}" if last else f"{why}; its log is {self._log(name)}"

    # What a service is made of

    def _spec(self, name: str) -> tuple[Unit, dict[str, object]]:
        loaded = self._unit(name)
        if loaded is None:
            raise UnitProblem(f"there is no unit {name}.service on this node; install the package that brings it")
        environ = {"PATH": _PATH, "LANG": "C.UTF-8", **self._environ, **unit.environment(loaded, self._text)}
        environ[_MARK] = self._of(name)
        groups, uid, gid = self._identity(loaded, environ)
        commands = {
            kind: [self._command(text, loaded, environ) for text in getattr(loaded, kind)]
            for kind in ("start", "start_pre", "start_post", "stop", "stop_post", "reload")
        }
        return loaded, {
            **commands,
            "type": loaded.type,
            "notify": loaded.type.startswith("notify"),
            "environ": environ,
            "uid": uid,
            "gid": gid,
            "groups": groups,
            "umask": int(loaded.umask, 8),
            "open_files": _limit(loaded.open_files),
            "folder": self._working_folder(loaded),
            "restart": loaded.restart,
            "restart_s": loaded.restart_s,
            "start_timeout_s": loaded.start_timeout_s if loaded.start_timeout_s > 0 else _FOREVER_S,
            "stop_timeout_s": loaded.stop_timeout_s if loaded.stop_timeout_s > 0 else _FOREVER_S,
            "kill_mode": loaded.kill_mode,
            "kill_signal": _signal(loaded.kill_signal),
            "pid_file": self._root.place(loaded.pid_file) if loaded.pid_file else "",
            "remains": loaded.remains,
            "success": list(loaded.success),
            "log": self._log(name),
            "log_bytes": _LOG_BYTES,
        }

    def _command(self, text: str, loaded: Unit, environ: Mapping[str, str]) -> tuple[list[str], bool]:
        words, may_fail = unit.command(text, loaded, environ)
        program = words[0]
        if not self._root.is_machine and program.startswith("/"):
            # A sandbox may have programs of its own; all others are the machine's.
            below = self._root.place(program)
            named = os.path.join(self._root.folder, program.lstrip("/"))
            # By the name of the unit where that leads to the same file: a link in it may lead elsewhere at the next
            # start, as that to the agent's own version does.
            is_same = os.path.realpath(named) == os.path.realpath(below)
            program = (named if is_same else below) if os.path.exists(below) else program
        return [program, *words[1:]], may_fail

    def _identity(self, loaded: Unit, environ: dict[str, str]) -> tuple[list[int], int | None, int]:
        if not loaded.user or not self._root.is_privileged:
            return [], None, 0
        uid = self._root.user_id(loaded.user)
        try:
            entry = pwd.getpwuid(uid)
        except KeyError:
            gid = self._root.group_id(loaded.group) if loaded.group else uid
            return [gid], uid, gid
        gid = self._root.group_id(loaded.group) if loaded.group else entry.pw_gid
        environ.setdefault("HOME", entry.pw_dir)
        environ.setdefault("USER", entry.pw_name)
        environ.setdefault("LOGNAME", entry.pw_name)
        groups = [group.gr_gid for group in grp.getgrall() if entry.pw_name in group.gr_mem]
        return sorted({gid, *groups}), uid, gid

    def _working_folder(self, loaded: Unit) -> str:
        path = loaded.working_directory.removeprefix("-")
        if not path or path == "~":
            return self._root.folder
        # As the folder of a file in it: a link in place of the folder is followed below the root, too.
        below = os.path.dirname(self._root.place(f"{path}/file"))
        if loaded.working_directory.startswith("-") and not os.path.isdir(below):
            return self._root.folder
        return below

    def _make_folders(self, loaded: Unit) -> None:
        """`RuntimeDirectory=`, `StateDirectory=` and `LogsDirectory=`, owned by the service's user."""
        for parent, names in (
            ("/run", loaded.runtime_folders),
            ("/var/lib", loaded.state_folders),
            ("/var/log", loaded.logs_folders),
        ):
            for name in names:
                place = self._root.place(f"{parent}/{name}")
                if os.path.isdir(place):
                    continue
                os.makedirs(place, mode=0o755)
                if loaded.user and self._root.is_privileged:
                    group = self._root.group_id(loaded.group) if loaded.group else -1
                    os.chown(place, self._root.user_id(loaded.user), group)

    def _unit(self, name: str) -> Unit | None:
        return unit.load(self._root, name)

    def _after(self, name: str) -> tuple[str, ...]:
        try:
            loaded = self._unit(name)
        except UnitProblem:
            return ()
        return loaded.after if loaded is not None else ()

    def _text(self, path: str) -> str | None:
        present = self._root.read(path, follow=True)
        return present.content.decode(errors="replace") if present.kind == "file" else None

    # What runs

    def _status(self, name: str) -> Status:
        seen = self._look(name)
        instance = f"{seen.number('keeper')}.{seen.number('keeper_start')}"
        why = seen.facts.get("why", "")
        if seen.is_told:
            condition = _CONDITIONS.get(seen.facts.get("state", ""), "unknown")
            return Status(name, condition, seen.number("main"), instance, seen.number("restarts"), why)
        if seen.holder:
            return Status(name, "starting", 0, f"{seen.holder}.")
        try:
            if self._unit(name) is None:
                return Status(name, "missing", why=f"there is no unit {name}.service")
        except UnitProblem as err:
            return Status(name, "failed", why=str(err))
        state = seen.facts.get("state", "stopped")
        if state in _ENDED:
            return Status(name, _CONDITIONS[state], 0, instance, seen.number("restarts"), why)
        return Status(name, "failed", 0, instance, seen.number("restarts"), "its keeper was killed")

    def _look(self, name: str) -> _Seen:
        folder = self._of(name)
        return _Seen(holder(os.path.join(folder, "lock")), _facts(os.path.join(folder, "status")))

    def _of(self, name: str) -> str:
        return os.path.join(self._folder, name.replace("/", "_"))

    def _log(self, name: str) -> str:
        return os.path.join(self._logs, f"{name.replace('/', '_')}.log")

    async def _gone(self, name: str, holder: int, timeout_s: float) -> bool:
        end_s, pause_s = time.monotonic() + timeout_s, _FIRST_POLL_S
        while self._look(name).holder == holder:
            if time.monotonic() > end_s:
                return False
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _POLL_S)
        self._reap()
        return True

    async def _landed(self, name: str) -> None:
        """Wait for a keeper that was launched, perhaps by an agent that is gone, until it has its lock or has ended."""
        try:
            launch = os.open(os.path.join(self._of(name), "launch"), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return
        try:
            end_s = time.monotonic() + _LANDS_WITHIN_S
            while time.monotonic() < end_s:
                try:
                    fcntl.flock(launch, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    await asyncio.sleep(_POLL_S)
        finally:
            os.close(launch)

    def _destroy(self, name: str, holder: int) -> None:
        _send(holder, signal.SIGKILL)
        self._kill_marked(name)

    def _kill_orphans(self, name: str, seen: _Seen) -> None:
        """Kill what a keeper left that did not end by itself: two of one service must never run."""
        if seen.holder or seen.facts.get("state", "stopped") in _ENDED:
            return
        pid, start = seen.number("main"), seen.number("main_start")
        if pid and start and _started(pid) == start:
            _send(pid, signal.SIGKILL)
        self._kill_marked(name)

    def _kill_marked(self, name: str) -> None:
        """Kill every process that carries the mark of a service in its environment."""
        mark = f"{_MARK}={self._of(name)}".encode()
        for entry in os.listdir("/proc"):
            if not entry.isdecimal() or int(entry) == os.getpid():
                continue
            try:
                with open(f"/proc/{entry}/environ", "rb") as stream:
                    is_ours = mark in stream.read().split(b"\0")
            except OSError:
                continue
            if is_ours:
                _send(int(entry), signal.SIGKILL)

    def _reap(self) -> None:
        self._children = {name: child for name, child in self._children.items() if child.poll() is None}


def holder(path: str) -> int:
    """The process that holds a lock on a file; 0 when none does."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(handle, fcntl.F_GETLK, asked))
    finally:
        os.close(handle)
    return 0 if kind == fcntl.F_UNLCK else int(pid)


def _facts(path: str) -> dict[str, str]:
    try:
        with open(path, errors="replace") as stream:
            pairs = (line.rstrip("\n").partition("=") for line in stream)
            return {key: value for key, _, value in pairs}
    except OSError:
        return {}


def _started(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            return int(stream.read().rpartition(b")")[2].split()[19])
    except OSError:
        return 0


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


_libc = ctypes.CDLL(None)


def _become_subreaper() -> None:
    """The keeper gets the orphans of its service; the kernel keeps this over an exec."""
    _libc.prctl(_SUBREAPER, 1, 0, 0, 0)


def _services(names: Iterable[str]) -> list[str]:
    return [name.removesuffix(".service") for name in names if name.endswith(".service")]


def _limit(text: str) -> int:
    last = text.rpartition(":")[2]
    return int(last) if last.isdecimal() else 0 if not last else 1 << 20


def _signal(name: str) -> int:
    if name.isdecimal():
        return int(name)
    try:
        return int(signal.Signals[name if name.startswith("SIG") else f"SIG{name}"])
    except KeyError:
        raise UnitProblem(f"KillSignal={name} is not a signal") from None


def _last_line(path: str) -> str:
    try:
        with open(path, "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - 4096))
            lines = stream.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")
