"""Who may use a store: one process at a time, ours or the original's.

In: a `Disk`. Out: the locks, or `StoreBusy` naming the process that has them.

Two locks. `store.lock` is ours: held for life, with the holder's process id in it. The other is the one the original
takes, on the store file itself: since a file that is replaced leaves the lock with the old one, `storage.py` locks
every new file before it gets the store's name.
"""

from __future__ import annotations

import os
from pathlib import Path

from bedplate.ipam.node.disk import Disk
from bedplate.ipam.node.reservations import StoreBusy, StoreFailed

__all__ = ["Locks", "holder_of", "take"]


class Locks:
    """The locks that this process holds: `own` on the lock file, `store` on the store file."""

    __slots__ = ("_disk", "own", "store")

    def __init__(self, disk: Disk, own: int, store: int) -> None:
        self._disk, self.own, self.store = disk, own, store

    def renew(self, file: int) -> None:
        """The store is another file now, already locked."""
        old, self.store = self.store, file
        self._disk.close(old)

    def release(self) -> None:
        """Let others in."""
        self._disk.close(self.store)
        self._disk.close(self.own)


def lock_name(store: str) -> str:
    """The name of our lock file."""
    return f"{store}.lock"


def take(disk: Disk) -> Locks:
    """Both locks. The store file is created when it is missing, empty and for root alone, as the original does."""
    try:
        own = disk.open(lock_name(disk.name), os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise _unusable(disk, error) from error
    try:
        _take_one(disk, own, lock_name(disk.name), "another ipam-node of ours")
        store = disk.open(disk.name, os.O_RDWR | os.O_CREAT)
        try:
            _take_one(disk, store, disk.name, "another daemon, perhaps the original's")
            disk.truncate(own, 0)
            disk.write(own, [b"%d\n" % os.getpid()])
        except BaseException:
            disk.close(store)
            raise
    except OSError as error:
        disk.close(own)
        raise _unusable(disk, error) from error
    except BaseException:
        disk.close(own)
        raise
    return Locks(disk, own, store)


def _unusable(disk: Disk, error: OSError) -> StoreFailed:
    return StoreFailed(
        f"the store {disk.path} cannot be used: {error.strerror or error}",
        hint=f"make {disk.path.parent} a folder that this process may write to",
    )


def _take_one(disk: Disk, file: int, name: str, who: str) -> None:
    if disk.lock(file):
        return
    pid = holder_of(disk.status(file)) or _written(disk, name)
    process = f"process {pid} ({_program(pid)})" if pid else who
    raise StoreBusy(
        f"the store {disk.path} is in use: {process} has locked {name}",
        hint="one daemon a node: stop the other one first",
        pid=pid,
    )


def _written(disk: Disk, name: str) -> int | None:
    """The process that a lock file names: not every file system has the numbers that the system's list of locks has."""
    text = (disk.read(name) or b"").strip() if name == lock_name(disk.name) else b""
    return int(text) if text.isdigit() else None


def holder_of(status: os.stat_result) -> int | None:
    """The process that has locked a file, as far as the system tells it."""
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5] == device and fields[4].isdigit():
            return int(fields[4]) or None
    return None


def _program(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "gone meanwhile"
    return b" ".join(words[:3]).decode(errors="replace").strip() or "unknown"
