"""Leave nothing behind.

In: the name of a lab, whatever state it is in. Out: no process, namespace, interface, mount, control group or file of
it.

Everything hangs on processes in one tree of control groups: with the last of them go the namespaces, with those the
bridges, cables and mounts, the pods' too. So the work is to end the processes, remove the groups and delete the folder,
and it can be done by any process that knows the name: by `lab up` when it fails, by `lab down`, by the next `lab up`.

Or by the watchdog, where `lab up` was killed: a process of its own, in a session of its own, which what ends `lab up`
from a terminal does not reach. Its standard input is a pipe that `lab up` holds open. When that closes without a word
(kill -9, or the machine was out of memory), the half-made lab is removed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from bedplate.core import errors
from bedplate.lab import cgroups, state
from bedplate.lab.plan import interface_name

__all__ = ["Watchdog", "has_remains", "is_alive", "remove", "watch"]

_RETRY_S = 0.1
_DONE = b"done"


def is_alive(name: str) -> bool:
    """Whether any process of the lab runs."""
    return bool(cgroups.Tree(name).members())


def has_remains(name: str, folder: Path) -> bool:
    """Whether anything of the lab is on this machine."""
    return folder.exists() or cgroups.Tree(name).exists or Path("/sys/class/net", interface_name(name)).exists()


def remove(name: str, folder: Path, *, deadline_s: float = 30.0) -> None:
    """Remove the lab, all of it. Nothing there is fine."""
    tree = cgroups.Tree(name)
    tree.kill(deadline_s)
    interface = interface_name(name)
    subprocess.run(["ip", "link", "delete", interface], capture_output=True, timeout=30, check=False)
    tree.remove(deadline_s)
    end = time.monotonic() + deadline_s
    # The kernel drops a dead process's mounts a moment after the process; until then a folder may be busy.
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            if time.monotonic() > end:
                raise errors.Unavailable(f"{folder} cannot be deleted", hint="check whether a file in it is open")
            time.sleep(_RETRY_S)


class Watchdog:
    """Held by `lab up` while a lab is half made."""

    def __init__(self, root: Path, name: str) -> None:
        self._command = [sys.executable, "-m", "bedplate.lab.teardown", str(root), name, str(os.getpid())]
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
            remove(name, shelf.folder(name))


if __name__ == "__main__":
    watch(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
