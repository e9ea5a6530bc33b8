"""Where log lines go when they are split: errors to one stream at once, everything else to another, perhaps buffered.

In: rendered lines by the name of their level. Out: text on two streams. What is buffered is written when the buffer is
full, when an error is logged, every `flush_s` by a thread of its own, and when the program ends.
"""

from __future__ import annotations

import atexit
import re
import threading
from typing import TextIO

__all__ = ["SplitStreams", "parse_size"]

_SIZE = re.compile(r"(\d+)([kKMG]i?)?")
_POWERS = {"k": 1, "m": 2, "g": 3}


def parse_size(text: str) -> int:
    """A number of bytes: `512`, `1k`, `2Ki`, `3M`, `4Gi`; raises ValueError for anything else."""
    match = _SIZE.fullmatch(text)
    if match is None or match[2] == "ki":
        raise ValueError(f"{text!r} must be a number of bytes, such as 512, 64k or 1Mi")
    unit = (match[2] or "").lower()
    size, base = int(match[1]), 1024 if unit.endswith("i") else 1000
    for _ in range(_POWERS.get(unit[:1], 0)):
        size *= base
    return size


class SplitStreams:
    """Two streams: one for errors, one for the rest."""

    def __init__(self, info: TextIO, errors: TextIO, size: int = 0, flush_s: float = 5.0) -> None:
        self._info = info
        self._errors = errors
        self._size = size
        self._lines: list[str] = []
        self._held = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        if size > 0:
            threading.Thread(target=self._flush_often, args=(flush_s,), name="log flush", daemon=True).start()
            atexit.register(self.close)

    def info(self, line: str) -> None:
        """Write or buffer a line."""
        with self._lock:
            self._lines.append(line)
            # Characters, not bytes: the limit is one of memory, and lines are ASCII almost always.
            self._held += len(line) + 1
            if self._held > self._size:
                self._flush()

    def error(self, line: str) -> None:
        """Write a line at once, after what was logged before it."""
        with self._lock:
            self._flush()
            self._errors.write(line + "\n")
            self._errors.flush()

    def flush(self) -> None:
        """Write what is buffered."""
        with self._lock:
            self._flush()

    def close(self) -> None:
        """Write what is buffered, and end the thread."""
        self._ended.set()
        atexit.unregister(self.close)
        self.flush()

    def _flush(self) -> None:
        if self._lines:
            text, self._lines, self._held = "\n".join(self._lines) + "\n", [], 0
            try:
                self._info.write(text)
                self._info.flush()
            except ValueError:
                # The stream is closed: the program is ending.
                return

    def _flush_often(self, flush_s: float) -> None:
        while not self._ended.wait(flush_s):
            self.flush()
