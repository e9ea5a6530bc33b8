"""Clean up after a `lab up` that was killed.

In: the read end of a pipe as standard input, held open by `lab up`. Out: nothing, when `lab up` says how it ended
before it goes; when the pipe closes without a word (kill -9, or the machine was out of memory), the half-made lab is
removed.

A process of its own, in a session of its own: what ends `lab up` from a terminal does not reach it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from bedplate.lab import state, teardown

__all__ = ["Watchdog", "watch"]

_DONE = b"done"


class Watchdog:
    """Held by `lab up` while a lab is half made."""

    def __init__(self, root: Path, name: str) -> None:
        self._command = [sys.executable, "-m", "bedplate.lab.watchdog", str(root), name, str(os.getpid())]
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Watchdog:
        self._child = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # By now the lab is either ready or has been removed by us.
        if self._child is not None:
            self._child.communicate(_DONE, timeout=30)


def watch(root: Path, name: str, pid: int) -> None:
    """Wait for the pipe to close, then remove the lab unless we were told that all is well."""
    if sys.stdin.buffer.read() == _DONE:
        return
    shelf = state.Shelf(root)
    with shelf.lock(name, wait_s=60):
        record = shelf.read(name)
        if record is not None and record.phase == "starting" and record.pid == pid:
            teardown.remove(name, shelf.folder(name))


if __name__ == "__main__":
    watch(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
