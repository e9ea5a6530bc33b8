"""What a shell may ask of the machine it runs on; whoever drives it hands this in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

__all__ = ["Host"]


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
