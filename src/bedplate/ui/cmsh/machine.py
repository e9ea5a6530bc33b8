"""The machine a shell runs on: commands of the host's shell, the user's editor, files.

In: command lines, texts, names of files. Out: exit codes and texts; errors name the file. What a shell may ask of it is
`Host`. Children write to the standard output of this process themselves, so that pagers and editors work. What a person
edits is in a file that nobody else can read, and that is gone afterwards.
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
from dataclasses import dataclass

from bedplate.core import errors

__all__ = ["Host", "Machine", "put_file", "read_file", "write_file"]

Ask = Callable[[str], Awaitable[str | None]]
_SHELL = "/bin/sh"
_INTERRUPTED = (-signal.SIGINT, 128 + signal.SIGINT)


async def _no_editor(text: str, suffix: str) -> str | None:
    return None


async def _no_answer(question: str) -> str | None:
    return None


async def _no_host(command: str, text: str | None) -> tuple[int, str]:
    return 127, ""


@dataclass(frozen=True)
class Host:
    """Each may wait.

    `edit(text, suffix)` opens an editor and gives the text as it was saved, None when there is no editor or it failed;
    `ask(question)` reads a line, `secret(question)` one without echo, None when nobody is there to answer;
    `run(command, text)` runs a command line of the host's shell with `text` as its input (None: the terminal's) and
    gives its exit code and what it printed (empty where it printed to the terminal itself).
    """

    edit: Callable[[str, str], Awaitable[str | None]] = _no_editor
    ask: Callable[[str], Awaitable[str | None]] = _no_answer
    secret: Callable[[str], Awaitable[str | None]] = _no_answer
    run: Callable[[str, str | None], Awaitable[tuple[int, str]]] = _no_host


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


def read_file(name: str) -> str:
    """The text of a file, every byte of it. Raises `Invalid`."""
    try:
        return pathlib.Path(os.path.expanduser(name)).read_bytes().decode()
    except OSError as wrong:
        reason = (wrong.strerror or "cannot be read").lower()
        raise errors.Invalid(f"the file {name} cannot be read: {reason}", hint="name a file on this machine") from None
    except UnicodeDecodeError:
        raise errors.Invalid(f"the file {name} is not text in UTF-8", hint="name a text file") from None


def write_file(name: str, text: str, *, replace: bool) -> None:
    """The file whole or not at all, readable by its owner alone. Raises `Invalid`, and `AlreadyExists` for a file that
    exists and is not to be replaced."""
    path = pathlib.Path(os.path.expanduser(name))
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        if replace:
            beside.replace(path)
        else:
            os.link(beside, path)
    except FileExistsError:
        raise errors.AlreadyExists(
            f"the file {name} already exists; nothing was written", hint="name another one, or replace it with --force"
        ) from None
    except OSError as wrong:
        reason = (wrong.strerror or "cannot be written").lower()
        raise errors.Invalid(f"the file {name} cannot be written: {reason}", hint="name another place") from None
    finally:
        beside.unlink(missing_ok=True)


def put_file(name: str, text: str, *, appends: bool) -> None:
    """Write the output of a command as a shell does: over what the file had, or behind it. Raises `Invalid`."""
    try:
        with open(os.path.expanduser(name), "a" if appends else "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as wrong:
        reason = (wrong.strerror or "cannot be written").lower()
        raise errors.Invalid(f"the file {name} cannot be written: {reason}", hint="name another place") from None
