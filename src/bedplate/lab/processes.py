"""Child processes that end with their parent: programs with a log file, and single commands.

In: a command, a log file. Out: a `Process` to start, stop, kill, freeze and start again. It does not decide when. Or: a
command, a deadline, the intention in words. Out: its standard output, or an error that names the intention, the exit
code and the last lines. Programs that stay when we go are not started here (`nodes.Node`).

A child must not outlive us even after `kill -9`, when no code of ours runs any more. So between fork and exec each
child asks the kernel (`PR_SET_PDEATHSIG`) for a SIGKILL when its parent goes, then checks that the parent has not
gone already. The kernel counts the *thread* that forked as the parent: start processes from a thread that lives as
long as they shall, such as the main one.

`Process` is plain `subprocess` rather than asyncio's, so that it may be started in one event loop and stopped in
another.
"""

from __future__ import annotations

import asyncio
import collections
import ctypes
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bedplate.core import errors

__all__ = ["Process", "die_with_parent", "failure_of", "run", "tail"]

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.05
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int) -> Callable[[], None]:
    """A `preexec_fn` that ties the child to the process `parent` (our own id)."""

    def tie() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(125)

    return tie


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a log, for an error message."""
    try:
        with open(path, errors="replace") as handle:
            return "".join(collections.deque(handle, lines)).rstrip()
    except OSError as err:
        return f"(not readable: {err.strerror})"


def failure_of(child: subprocess.Popen[bytes], name: str, log: Path) -> errors.Terminal | None:
    """The error to raise when a process has ended by itself, else None."""
    if child.poll() is None:
        return None
    return errors.Terminal(f"{name} exited with code {child.returncode}; last lines of {log}:\n{tail(log)}")


class Process:
    """One program under our control. Its output goes to `log`, appended over restarts."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, *, environ: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self._environ = dict(environ) if environ is not None else None
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id, or None when it does not run."""
        return self._child.pid if self._child is not None and self.is_running else None

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Start it, unless it runs already."""
        if self.is_running:
            return
        with open(self.log, "ab") as log:
            # A session of its own: Ctrl-C on the terminal reaches us, and we stop our children in order.
            self._child = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environ,
                start_new_session=True,
                preexec_fn=die_with_parent(os.getpid()),
            )

    def signal(self, number: int) -> None:
        """Send a signal (SIGSTOP and SIGCONT play a hung component)."""
        if self._child is not None and self.is_running:
            self._child.send_signal(number)

    def freeze(self) -> None:
        """SIGSTOP, and return when no thread of it runs any more: the signal reaches a busy thread some time later."""
        self.signal(signal.SIGSTOP)
        while self.pid is not None and not _is_stopped(self.pid):
            time.sleep(_POLL_S)

    async def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        await self.wait()

    async def wait(self) -> None:
        """Return when the process has ended."""
        while self.is_running:  # noqa: ASYNC110 - the kernel sets no asyncio.Event
            await asyncio.sleep(_POLL_S)

    async def stop(self, grace_s: float = 10.0) -> None:
        """SIGTERM; SIGKILL for what still runs after the grace time."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_s):
                await self.wait()
        except TimeoutError:
            await self.kill()

    def failure(self) -> errors.Terminal | None:
        """The error to raise when the process has ended by itself, else None."""
        return failure_of(self._child, self.name, self.log) if self._child is not None else None


def _is_stopped(pid: int) -> bool:
    """Whether every thread of a process is stopped (T), or the process is gone."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return all((thread / "stat").read_text().rsplit(")", 1)[1].split()[0] in "TtZX" for thread in threads)
    except OSError:
        return not Path(f"/proc/{pid}").exists()


async def run(
    command: Sequence[str],
    what: str,
    *,
    timeout_s: float = 60.0,
    stdin: str = "",
    environ: Mapping[str, str] | None = None,
    around: Sequence[str] = (),
) -> str:
    """Standard output of a command that succeeded; it is killed when the deadline passes or we are cancelled.

    `around` is put before the command to run it elsewhere, and left out of messages.
    """
    child = await asyncio.create_subprocess_exec(
        *around,
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environ) if environ is not None else None,
        preexec_fn=die_with_parent(os.getpid()),
    )
    try:
        async with asyncio.timeout(timeout_s):
            out, err = await child.communicate(stdin.encode())
    except TimeoutError:
        raise errors.Unavailable(f"could not {what}: timed out after {timeout_s:.0f} s ({_short(command)})") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        last = "\n".join((err or out).decode(errors="replace").strip().splitlines()[-15:])
        raise errors.Terminal(f"could not {what}: {_short(command)} exited with code {child.returncode}\n{last}")
    return out.decode(errors="replace")


def _short(command: Sequence[str]) -> str:
    text = " ".join(shlex.join(command).split())
    return text if len(text) <= 160 else text[:157] + "..."
