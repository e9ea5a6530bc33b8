"""What is done after a critical error: the flag, or the answer of whoever sits at the terminal.

In: `--on-error-action`, or a line typed at the terminal. Out: one of four actions, or None where nobody can be asked.
`debug` shows the traceback and, at a terminal, opens Python's debugger where the error was raised. `remotedebug` opens
it on a socket that only this user can reach, for a run that has no terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import pdb
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, TextIO, get_args

__all__ = ["ACTIONS", "Action", "Chooser", "formatted", "inspect_here", "inspect_remotely"]

Action = Literal["debug", "remotedebug", "undo", "abort"]
ACTIONS: tuple[str, ...] = get_args(Action)

_QUESTION = "What should be done? [d]ebug, [r]emote debug, [u]ndo, [a]bort: "


class Chooser:
    """Answers with the flag; else asks, where there is a terminal, until the answer is one of the four."""

    def __init__(
        self, given: str | None, stdin: TextIO | None = None, ask: Callable[[str], None] | None = None
    ) -> None:
        self.given = given
        self._stdin = stdin
        self._ask = ask or _to_stderr

    @property
    def is_asking(self) -> bool:
        return self.given is None and self._stdin is not None

    @property
    def has_terminal(self) -> bool:
        return self._stdin is not None

    async def choose(self) -> str | None:
        if self.given is not None or self._stdin is None:
            return self.given
        while True:
            self._ask(_QUESTION)
            line = await _line_of(self._stdin)
            if not line:
                return None  # The terminal is gone.
            word = line.strip().lower()
            matches = [action for action in ACTIONS if word and action.startswith(word)]
            if len(matches) == 1:
                return matches[0]


async def _line_of(stream: TextIO) -> str:
    """A line that is typed. Not read in a thread: that one could not be stopped when a signal ends the run."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return stream.readline()
    loop = asyncio.get_running_loop()
    is_readable = asyncio.Event()
    loop.add_reader(descriptor, is_readable.set)
    try:
        await is_readable.wait()
    finally:
        loop.remove_reader(descriptor)
    return stream.readline()


def _to_stderr(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def formatted(error: BaseException) -> str:
    """The traceback, without values of variables."""
    return "".join(traceback.format_exception(error)).rstrip()


def inspect_here(error: BaseException) -> None:
    """Python's debugger at this terminal, where the error was raised."""
    debugger = pdb.Pdb(nosigint=True)
    debugger.reset()
    with contextlib.suppress(SystemExit):
        debugger.interaction(None, error.__traceback__)


async def inspect_remotely(error: BaseException, path: Path, say: Callable[[str], None]) -> None:
    """Python's debugger for the first who connects to the socket `path`; returns when that one leaves."""
    with _listener(path) as listener:
        say(f"Waiting for a debugger session: socat - UNIX-CONNECT:{path}")
        connection, _ = await asyncio.get_running_loop().sock_accept(listener)
    connection.setblocking(True)
    with connection:
        await asyncio.to_thread(_serve, error, connection)


@contextlib.contextmanager
def _listener(path: Path) -> Iterator[socket.socket]:
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.setblocking(False)
        listener.bind(str(path))
        path.chmod(0o600)
        try:
            listener.listen(1)
            yield listener
        finally:
            path.unlink(missing_ok=True)


def _serve(error: BaseException, connection: socket.socket) -> None:
    with connection.makefile("rw", buffering=1, encoding="utf-8", errors="replace") as stream:
        debugger = pdb.Pdb(stdin=stream, stdout=stream, nosigint=True)
        debugger.use_rawinput = False
        debugger.reset()
        with contextlib.suppress(SystemExit, OSError):
            debugger.interaction(None, error.__traceback__)
