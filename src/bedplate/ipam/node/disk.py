"""The folder of a store: the few calls to the system that make a text durable, and who may use the store.

In: names inside the folder, bytes. Out: effects, or `OSError`; the locks, or `StoreBusy` naming the process that has
them. Everything that reads or writes a store goes through `Disk`, so that a test can let any single step fail, or be
the last one before a crash. What the steps are for is decided in `storage.py` and `storeload.py`.

One process at a time uses a store, ours or the original's, so there are two locks. `store.lock` is ours: held for
life, with the holder's process id in it. The other is the one the original takes, on the store file itself: since a
file that is replaced leaves the lock with the old one, `storage.py` locks every new file before it gets the store's
name.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

from bedplate.ipam.node.reservations import StoreBusy, StoreFailed

__all__ = ["Disk", "Locks", "holder_of", "take_locks"]

# Root writes here: a symbolic link in place of a file would lead it anywhere.
_ITSELF = os.O_CLOEXEC | os.O_NOFOLLOW
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _ITSELF


class Disk:
    """The folder that holds the store `name`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self.journal = f"{path.name}.journal"
        self.previous = f"{path.name}.previous"
        """The snapshot before the present one."""
        self.recovering = f"{path.name}.recovering"
        """Says that something was lost and not yet made up for."""
        self.lock_file = f"{path.name}.lock"
        self._folder: int | None = None

    @property
    def folder(self) -> int:
        """The folder, opened."""
        if self._folder is None:
            self._folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return self._folder

    def release(self) -> None:
        """Let go of the folder."""
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None

    def names(self) -> list[str]:
        """Every name in the folder."""
        return os.listdir(self.folder)

    def read(self, name: str) -> bytes | None:
        """The content of a file; None when there is none of that name."""
        try:
            file = os.open(name, os.O_RDONLY | _ITSELF, dir_fd=self.folder)
        except FileNotFoundError:
            return None
        with open(file, "rb") as stream:
            return stream.read()

    def create(self, name: str, mode: int) -> int:
        """A new file, opened for writing; the process's mask applies to the mode."""
        return os.open(name, _NEW, mode, dir_fd=self.folder)

    def open(self, name: str, flags: int = os.O_RDWR, mode: int = 0o600) -> int:
        """A file that may be there already."""
        return os.open(name, flags | _ITSELF, mode, dir_fd=self.folder)

    def close(self, file: int) -> None:
        """Let go of a file, and of its lock."""
        os.close(file)

    def status(self, file: int) -> os.stat_result:
        """Mode, inode and number of names of an open file."""
        return os.fstat(file)

    def look(self, name: str) -> os.stat_result | None:
        """The same of a name; None when it is not there."""
        try:
            return os.stat(name, dir_fd=self.folder)
        except FileNotFoundError:
            return None

    def chmod(self, file: int, mode: int) -> None:
        """Set the mode."""
        os.fchmod(file, mode)

    def lock(self, file: int) -> bool:
        """Lock a file against other processes; False when one has it."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def write(self, file: int, texts: Sequence[bytes]) -> None:
        """Write all of it, where the file's position is."""
        waiting = [memoryview(text) for text in texts if text]
        while waiting:
            done = os.writev(file, waiting[:1000])
            while waiting and done >= len(waiting[0]):
                done -= len(waiting.pop(0))
            if waiting:
                waiting[0] = waiting[0][done:]

    def truncate(self, file: int, size: int) -> None:
        """Cut a file off, and go on writing there."""
        os.ftruncate(file, size)
        os.lseek(file, size, os.SEEK_SET)

    def sync(self, file: int) -> None:
        """Return when the file's content is on the disk."""
        os.fsync(file)

    def sync_folder(self) -> None:
        """Return when the names are on the disk."""
        os.fsync(self.folder)

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in place of whatever had it."""
        os.rename(old, new, src_dir_fd=self.folder, dst_dir_fd=self.folder)

    def link(self, old: str, new: str) -> None:
        """Give a file one more name."""
        os.link(old, new, src_dir_fd=self.folder, dst_dir_fd=self.folder)

    def unlink(self, name: str) -> None:
        """Take a name away; it need not be there."""
        try:
            os.unlink(name, dir_fd=self.folder)
        except FileNotFoundError:
            return


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


def take_locks(disk: Disk) -> Locks:
    """Both locks. The store file is created when it is missing, empty and for root alone, as the original does."""
    try:
        own = disk.open(disk.lock_file, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise _unusable(disk, error) from error
    try:
        _take_one(disk, own, disk.lock_file, "another ipam-node of Bedplate")
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
    if error.errno == errno.ELOOP:
        return StoreFailed(
            f"the store {disk.path} cannot be used: it, or a file beside it, is a symbolic link",
            hint="name the file itself with --store-file; the folder may be a link",
        )
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
        hint="only one daemon may run per node: stop the other one first",
        pid=pid,
    )


def _written(disk: Disk, name: str) -> int | None:
    """The process that a lock file names: not every file system has the numbers that the system's list of locks has."""
    text = (disk.read(name) or b"").strip() if name == disk.lock_file else b""
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
