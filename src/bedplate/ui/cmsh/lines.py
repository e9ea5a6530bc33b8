"""The lines typed before, kept in a file for the next shell, without those that name a secret.

In: lines, and who knows which of them hold a secret. Out: a history for the editor of lines, newest first; a
file that only its owner reads, one entry in a line, shared by shells that run at once.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
from collections.abc import Callable, Iterable

from prompt_toolkit.history import History

__all__ = ["Lines", "sounds_secret"]

_KEPT = 2000
_WORDS = re.compile(r"[^\s'\"]+")
_SUSPECT = ("password", "passphrase", "secret", "token", "credential", "privatekey")


def sounds_secret(line: str) -> bool:
    """Whether something follows a word that sounds like the name of a secret, declared or not (extras are not).

    Rather a harmless line too few in the history than a secret in it: neither quotes nor the place are looked at.
    """
    words = [word.lower() for word in _WORDS.findall(line)]
    return any(part in word for word in words[:-1] for part in _SUSPECT)


class Lines(History):
    """The history of typed lines; without a path the lines live as long as the shell."""

    def __init__(self, path: pathlib.Path | None, holds_secret: Callable[[str], bool]) -> None:
        super().__init__()
        self._path = path
        self._holds_secret = holds_secret

    def append_string(self, string: str) -> None:
        if string.strip() and not self._holds_secret(string) and not sounds_secret(string):
            super().append_string(string)

    def load_history_strings(self) -> Iterable[str]:
        if self._path is None:
            return []
        try:
            lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        if len(lines) > 2 * _KEPT:
            self._shorten(lines[-_KEPT:])
        return reversed(lines[-_KEPT:])

    def _shorten(self, lines: list[str]) -> None:
        assert self._path is not None
        fresh = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.write("".join(f"{line}\n" for line in lines))
            fresh.replace(self._path)

    def store_string(self, string: str) -> None:
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write("".join(f"{line}\n" for line in string.splitlines()))
        except OSError:
            # A folder that cannot be written must not stand in the way of work; the next shell knows less.
            self._path = None
