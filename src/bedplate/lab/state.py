"""The folder of a lab on disk, and who may work on it.

In: a lab's name. Out: `<state>/labs/<name>` with `lab.json` (the plan and how far it got), certificates, logs and the
nodes' own folders, where <state> is `$XDG_STATE_HOME/bedplate` or `.local/state/bedplate` in the home folder. A lock
per lab keeps two commands from changing one lab at a time; the kernel frees it when its holder dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from bedplate.core import errors, folders
from bedplate.lab.plan import Plan, check_name

__all__ = ["Record", "Shelf", "state_folder"]


class Record(msgspec.Struct, frozen=True):
    """`lab.json`. `phase` is `starting` until `lab up` is through, then `ready`; `pid` is that `lab up`."""

    phase: str
    pid: int
    plan: Plan


def state_folder(environ: Mapping[str, str] | None = None) -> Path:
    environ = os.environ if environ is None else environ
    folder = Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state").absolute() / "bedplate"
    folders.check_trusted(folder, "XDG_STATE_HOME names another folder for state")
    return folder


class Shelf:
    """All labs of one state folder."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = (root or state_folder()) / "labs"

    def folder(self, name: str) -> Path:
        return self.root / check_name(name)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.root.iterdir() if path.is_dir()) if self.root.is_dir() else []

    def read(self, name: str) -> Record | None:
        """What is known of a lab; None when there is none, or nothing readable is left of it."""
        try:
            return msgspec.json.decode((self.folder(name) / "lab.json").read_bytes(), type=Record)
        except (OSError, msgspec.DecodeError):
            return None

    def need(self, name: str) -> Record:
        """The record of a lab that must exist."""
        record = self.read(name)
        if record is None:
            others = ", ".join(self.names())
            hint = f"labs here: {others}" if others else f"start one: bedplate lab up --name {name}"
            raise errors.NotFound(f"there is no lab {name!r}", hint=hint)
        return record

    def write(self, record: Record) -> None:
        folder = self.folder(record.plan.name)
        folder.mkdir(parents=True, exist_ok=True, mode=0o711)
        part = folder / "lab.json.part"
        part.write_bytes(msgspec.json.format(msgspec.json.encode(record)))
        part.rename(folder / "lab.json")

    @contextlib.contextmanager
    def lock(self, name: str, *, wait_s: float = 0.0, interrupts: bool = False) -> Iterator[None]:
        """Hold the lab for us alone. With `interrupts`, a `lab up` that holds it is asked to give up first."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o711)
        with open(self.root / f".{check_name(name)}.lock", "w") as handle:
            end = time.monotonic() + wait_s
            has_asked = False
            while not _try_lock(handle.fileno()):
                record = self.read(name)
                if interrupts and record is not None and not has_asked:
                    has_asked = True
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(record.pid, signal.SIGTERM)
                if time.monotonic() >= end:
                    raise errors.Conflict(
                        f"another command is working on lab {name!r}",
                        hint=f"wait for it, or kill process {record and record.pid}",
                    )
                time.sleep(0.1)
            yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
