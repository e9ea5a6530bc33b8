"""Other programs, run once with a deadline: tests of configuration, package managers, scripts.

In: a command. Out: how it ended and the last of what it wrote. It is killed with all it started when its time is up or
the agent stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

__all__ = ["Ended", "Run", "run"]

_LAST = 4000


class Ended(NamedTuple):
    """How a command ended. `code` is None when it could not be started or did not end in time; `text` is standard
    output, `why` the end of what it last on standard error, or what became of it."""

    code: int | None
    text: str = ""
    why: str = ""

    @property
    def is_good(self) -> bool:
        return self.code == 0

    @property
    def reason(self) -> str:
        """One line for people; empty when it succeeded."""
        if self.is_good:
            return ""
        lines = [line.strip() for line in (self.why or self.text).splitlines() if line.strip()]
        last = "; ".join(lines[-3:])
        if self.code is None:
            return last
        return f"exit code {self.code}: {last}" if last else f"exit code {self.code}"


class Run(Protocol):
    """`run` below, or what a test puts in its place."""

    async def __call__(
        self, command: Sequence[str], *, timeout_s: float = 60.0, environ: Mapping[str, str] | None = None
    ) -> Ended: ...


async def run(command: Sequence[str], *, timeout_s: float = 60.0, environ: Mapping[str, str] | None = None) -> Ended:
    """Run a command to its end. Never raises for what the command does."""
    try:
        child = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=None if environ is None else {**os.environ, **environ},
            start_new_session=True,
        )
    except OSError as err:
        return Ended(None, "", f"{command[0]}: {(err.strerror or str(err)).lower()}")
    try:
        async with asyncio.timeout(timeout_s):
            out, err_ = await child.communicate()
    except TimeoutError:
        return Ended(None, "", f"{shlex.join(command)[:200]} did not end within {timeout_s:g} s")
    finally:
        with contextlib.suppress(ProcessLookupError):
            # What it started in the background goes with it.
            os.killpg(child.pid, signal.SIGKILL)
        if child.returncode is None:
            await child.wait()
    code = child.returncode if child.returncode is not None else -1
    return Ended(code, out.decode(errors="replace")[-_LAST * 16 :], err_.decode(errors="replace")[-_LAST:])
