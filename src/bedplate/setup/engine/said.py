"""What stages said, kept beside the journal for those who are not at the terminal of the run.

In: masked texts of stages, as they are said. Out: `<state>/<cluster>/said.jsonl`, readable by its owner alone, and from
it the last lines of each stage. It is for reading only: a run goes on where it cannot be written, and nothing is
resumed from it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import deque
from pathlib import Path

import msgspec

__all__ = ["FILE", "Said", "last_lines"]

FILE = "said.jsonl"
_WRITING = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_APPEND | os.O_NOFOLLOW
_LINES = 8
_LONGEST = 500
_TAIL = 512 << 10
"""So much of the end of the file is read: what a stage said long ago may be missing."""
_LARGEST = 8 << 20


class _Line(msgspec.Struct, frozen=True):
    stage: str
    text: str


class Said:
    """The file of one run."""

    def __init__(self, file: Path, flags: int) -> None:
        self._descriptor: int | None = None
        with contextlib.suppress(OSError):
            self._descriptor = os.open(file, _WRITING | flags, 0o600)

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    @classmethod
    def fresh(cls, folder: Path) -> Said:
        """That of a new run, in place of the last one's."""
        return cls(folder / FILE, os.O_TRUNC)

    @classmethod
    def further(cls, folder: Path) -> Said:
        """That of a run that is resumed or undone."""
        return cls(folder / FILE, 0)

    def add(self, stage: str, text: str) -> None:
        if self._descriptor is None:
            return
        lines = [json.dumps({"stage": stage, "text": line[:_LONGEST]}) + "\n" for line in text.splitlines()]
        # A full disk must not end a run that could go on.
        with contextlib.suppress(OSError):
            if os.fstat(self._descriptor).st_size > _LARGEST:
                self._shorten(self._descriptor)
            os.write(self._descriptor, "".join(lines).encode())

    @staticmethod
    def _shorten(descriptor: int) -> None:
        """Keep the end, which is all that is read."""
        end = os.pread(descriptor, _TAIL, os.fstat(descriptor).st_size - _TAIL)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, end.partition(b"\n")[2])


def last_lines(folder: Path, count: int = _LINES) -> dict[str, list[str]]:
    """What each stage said last. A line that is not whole, because the disk was full or the run is being killed, is
    left out."""
    try:
        with (folder / FILE).open("rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _TAIL, 0))
            content = file.read(_TAIL)
    except OSError:
        return {}
    lines: dict[str, deque[str]] = {}
    for row in content.splitlines():
        with contextlib.suppress(msgspec.MsgspecError):
            line = msgspec.json.decode(row, type=_Line)
            lines.setdefault(line.stage, deque(maxlen=count)).append(line.text)
    return {stage: list(texts) for stage, texts in lines.items()}
