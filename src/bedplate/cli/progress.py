"""How far a long piece of work has come, for the user who waits for it.

In: a sentence now and then. Out: on a terminal one line of standard error that is written over and removed in the end;
nothing at all when the work is done within two seconds, and nothing where nobody watches.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click

__all__ = ["Progress", "shown"]

QUIET_S = 2.0
EVERY_S = 0.2
_ERASE = "\r\x1b[K"


class Progress:
    """Call it with what has been done so far."""

    def __init__(self, *, is_watched: bool) -> None:
        self._is_watched = is_watched
        self._next = time.monotonic() + QUIET_S
        self._has_said = False

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        if self._is_watched and now >= self._next:
            self._next, self._has_said = now + EVERY_S, True
            click.echo(f"{_ERASE}{text} …", err=True, nl=False)

    def done(self) -> None:
        """Leave no trace."""
        if self._has_said:
            click.echo(_ERASE, err=True, nl=False)
            self._has_said = False


@contextmanager
def shown() -> Iterator[Progress]:
    """A progress that is gone when its block ends, however it ends."""
    progress = Progress(is_watched=sys.stderr.isatty())
    try:
        yield progress
    finally:
        progress.done()
