"""Running a shell: over the lines of a script, or at a terminal.

In: an open backend, lines. Out: what the commands print, and the exit code of the worst of them. A failing command does
not keep the others from running, but it keeps a later commit from being made; what is staged at the end of a script is
dropped with a warning.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import pathlib
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TextIO

from bedplate.core import errors, memory
from bedplate.ui.backend import Backend
from bedplate.ui.cmsh.machine import Machine
from bedplate.ui.cmsh.shell import Shell, worst
from bedplate.ui.cmsh.targets import Reached

__all__ = ["beside", "interactive", "is_terminal", "of_file", "of_stream", "of_text", "script"]

Line = tuple[str, str]
"""Where a line stands (`file:3: `, or nothing), and the line."""

_CHUNK = 65536
_UNWRITABLE = (errno.EPIPE, errno.ENOSPC, errno.EIO)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person may sit behind a standard stream; it is None where the caller has closed it."""
    return stream is not None and stream.isatty()


async def script(
    reached: Reached, lines: AsyncIterator[Line], *, is_verbose: bool, is_long: bool = False, quits: bool = False
) -> int:
    """Run the lines of a script; `is_long` follows what others commit meanwhile, `quits` ends it at a failure."""
    writer = _Writer()
    # The standard input of a script that comes from elsewhere is free for its children; else they would eat it.
    machine = Machine(os.environ, is_attended=not is_long and is_terminal(sys.stdin))
    shell = Shell(reached.backend, writer.out, writer.err, host=machine.host(), quits=quits)
    codes = []
    async with beside(_follow(reached.backend)) if is_long else contextlib.nullcontext():
        async for where, line in lines:
            writer.where = where
            codes.append(await guarded(shell, line, writer.err, is_verbose=is_verbose))
            if shell.is_over:
                break
            if is_long and sys.stdout is not None:
                # A program at the other end of the pipe waits for this answer before it asks again.
                sys.stdout.flush()
    writer.where = ""
    shell.finish()
    sys.stdout.flush()
    return worst(codes)


async def interactive(reached: Reached, history: pathlib.Path, *, is_verbose: bool, quits: bool = False) -> int:
    """A shell at this terminal. The file `cmshrc` beside its history is run first: for aliases."""
    from bedplate.ui.cmsh.terminal import Terminal  # line editing costs a start 150 ms

    memory.keep()
    machine = Machine(os.environ, is_attended=True)
    terminal = Terminal(machine, os.environ, history, reached.own)
    shell = Shell(
        reached.backend,
        terminal.out,
        terminal.err,
        host=machine.host(terminal.ask, terminal.secret),
        interactive=True,
        quits=quits,
    )
    startup = history.with_name("cmshrc")
    for line in _content(startup).splitlines() if startup.is_file() else ():
        await guarded(shell, line, terminal.err, is_verbose=is_verbose)
    return await terminal.run(shell, lambda line: guarded(shell, line, terminal.err, is_verbose=is_verbose))


async def guarded(shell: Shell, line: str, err: Callable[[str], None], *, is_verbose: bool) -> int:
    """Run a line. A bug in a command costs that command, not the session with what is staged in it."""
    try:
        return await shell.run_line(line)
    except errors.BedplateError as wrong:
        err(f"error: {errors.describe(wrong)}\n")
        return 1
    except Exception as bug:
        if isinstance(bug, OSError) and bug.errno in _UNWRITABLE:
            raise  # nobody can be told anything any more
        # The error's own text is never shown: it may hold what somebody typed as a secret.
        where = "".join(traceback.format_tb(bug.__traceback__)) if is_verbose else ""
        err(f"{where}internal error ({type(bug).__name__}){'' if is_verbose else '; cmsh -v shows where'}\n")
        return 1


async def of_text(text: str) -> AsyncIterator[Line]:
    """The lines of `-c`."""
    for line in text.splitlines():
        yield "", line


async def of_file(path: pathlib.Path) -> AsyncIterator[Line]:
    """The lines of a file. Raises `Invalid` when it cannot be read."""
    for number, line in enumerate(_content(path).splitlines(), 1):
        yield f"{path}:{number}: ", line


def _content(path: pathlib.Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "it is not text in UTF-8"
        raise errors.Invalid(f"{path} cannot be read: {reason}", hint="give a text file that you can read") from err


async def of_stream(stream: TextIO | None) -> AsyncIterator[Line]:
    """The lines of a pipe, each as soon as it is there; meanwhile the rest of the program goes on."""
    if stream is None:
        return
    descriptor, rest = stream.fileno(), b""
    while True:
        await _readable(descriptor)
        chunk = os.read(descriptor, _CHUNK)
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield "", line.decode("utf-8", "replace")
        if not chunk:
            break
    if rest:
        yield "", rest.decode("utf-8", "replace")


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except PermissionError:
        return  # a plain file never makes anybody wait
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


async def _follow(backend: Backend) -> None:
    """Keep the tree up to date with what others commit; nobody reads notices in the output of a script."""
    with contextlib.suppress(errors.BedplateError):
        async for _ in backend.follow():
            pass


@contextlib.asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do the work in a task of its own for as long as the block lasts."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class _Writer:
    """Standard output and standard error, in the order things are said; errors say which line they are from."""

    def __init__(self) -> None:
        self.where = ""

    def out(self, text: str) -> None:
        sys.stdout.write(text)

    def err(self, text: str) -> None:
        sys.stdout.flush()
        sys.stderr.write(self.where + text)
        sys.stderr.flush()
