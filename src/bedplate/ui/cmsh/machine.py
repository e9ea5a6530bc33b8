"""The machine a shell runs on: commands of the host's shell, and the user's editor.

In: command lines and texts. Out: exit codes and texts, for `shell.Host`. Children write to the standard output of this
process themselves, so that pagers and editors work. What a person edits is in a file that nobody else can read, and
that is gone afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping

from bedplate.ui.cmsh.shell import Host

__all__ = ["Machine"]

Ask = Callable[[str], Awaitable[str | None]]
_SHELL = "/bin/sh"
_INTERRUPTED = (-signal.SIGINT, 128 + signal.SIGINT)


class Machine:
    """`is_attended` says that a person sits at a terminal: children then may read it, and an editor is opened."""

    def __init__(self, environment: Mapping[str, str], *, is_attended: bool) -> None:
        self._environment = environment
        self._is_attended = is_attended
        self.is_busy = False
        """Whether a child has the terminal; Ctrl-C is then the child's alone."""

    def host(self, ask: Ask | None = None, secret: Ask | None = None) -> Host:
        """What a shell may ask of this machine; questions only where somebody answers them."""
        if ask is None or secret is None:
            return Host(edit=self.edit, run=self.run)
        return Host(edit=self.edit, run=self.run, ask=ask, secret=secret)

    async def run(self, command: str, text: str | None) -> tuple[int, str]:
        """Run a command line with a text as its input, or with the terminal's."""
        code = await self._child(_SHELL, "-c", command, text=text)
        # The terminal has shown ^C in the middle of a line.
        return code, "\n" if self._is_attended and code in _INTERRUPTED else ""

    async def edit(self, text: str, suffix: str) -> str | None:
        """The text as somebody saved it; None without a person, without an editor, or when the editor failed."""
        editor = self._environment.get("VISUAL") or self._environment.get("EDITOR") or "vi"
        if not self._is_attended and not (self._environment.get("VISUAL") or self._environment.get("EDITOR")):
            return None
        import tempfile  # 5 ms that only who edits pays

        with tempfile.TemporaryDirectory(prefix="cmsh-") as folder:
            path = pathlib.Path(folder) / f"value{suffix}"
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(text)
            code = await self._child(_SHELL, "-c", f"{editor} {shlex.quote(str(path))}", text=None)
            if code != 0:
                return None
            return path.read_bytes().decode()

    async def _child(self, *command: str, text: str | None) -> int:
        sys.stdout.flush()
        silent = None if self._is_attended else asyncio.subprocess.DEVNULL
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *command,
                stdin=silent if text is None else asyncio.subprocess.PIPE,
                env=dict(self._environment),
                # At a terminal Ctrl-C reaches all that run there; elsewhere children are a group that we end ourselves.
                process_group=None if self._is_attended else 0,
            )
        )
        self.is_busy = True
        try:
            # Whoever is interrupted while a child starts has to end it all the same.
            child = await asyncio.shield(starting)
            # A filter such as head may leave before it has read everything; that is not a failure.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                await child.communicate(None if text is None else text.encode())
            return await child.wait()
        finally:
            self.is_busy = False
            await self._end(await starting)

    async def _end(self, child: asyncio.subprocess.Process) -> None:
        if child.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            if self._is_attended:
                child.kill()
            else:
                os.killpg(child.pid, signal.SIGKILL)
        await child.wait()
