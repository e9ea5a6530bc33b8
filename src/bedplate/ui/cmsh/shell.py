"""One shell: lines in, text and exit codes out.

In: lines of commands, from a terminal, `-c`, a file or standard input. Out: what the commands say, through `out` and
`err`; whether to go on (`is_over`). Nothing here reads a terminal: who drives it (`terminal`, `apps/cmsh`) does, and
hands in how to edit a text, to ask for a secret, and to run something on the host.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bedplate.ui.backend import Backend

__all__ = ["Completion", "Host", "Shell"]

Write = Callable[[str], None]
"""Takes text as it is to appear, line ends included."""


async def _no_editor(text: str, suffix: str) -> str | None:
    return None


async def _no_answer(question: str) -> str | None:
    return None


async def _no_host(command: str, text: str | None) -> tuple[int, str]:
    return 127, ""


@dataclass(frozen=True)
class Host:
    """What a shell may ask of the machine it runs on. Each may wait.

    `edit(text, suffix)` opens an editor and gives the text as it was saved, None when there is no editor or it failed;
    `ask(question)` reads a line, `secret(question)` one without echo, None when nobody is there to answer;
    `run(command, text)` runs a command line of the host's shell with `text` as its input (None: the terminal's) and
    gives its exit code and what it printed (empty where it printed to the terminal itself).
    """

    edit: Callable[[str, str], Awaitable[str | None]] = _no_editor
    ask: Callable[[str], Awaitable[str | None]] = _no_answer
    secret: Callable[[str], Awaitable[str | None]] = _no_answer
    run: Callable[[str, str | None], Awaitable[tuple[int, str]]] = _no_host


class Completion(NamedTuple):
    """A word that fits: `text` replaces the last `length` letters of the line; `about` is one line on what it is."""

    text: str
    length: int
    about: str = ""


class Shell:
    """See the module. One shell is one session: its place and its staged edits."""

    def __init__(self, backend: Backend, out: Write, err: Write, *, host: Host | None = None) -> None:
        self.backend = backend
        self._out = out
        self._err = err
        self._host = host or Host()
        self.is_over = False

    async def run_line(self, text: str) -> int:
        """Run one line (`;` between commands); the exit code of the worst: 0 ok, 1 failed, 2 usage, 3 plan has work."""
        raise NotImplementedError

    def prompt(self) -> str:
        """`[head->mode[object]->submode]% `, stars included."""
        raise NotImplementedError

    def complete(self, text: str) -> list[Completion]:
        """What may stand at the end of a line."""
        raise NotImplementedError

    def left(self) -> Sequence[str]:
        """What is staged and would be lost by leaving, one line each."""
        raise NotImplementedError
