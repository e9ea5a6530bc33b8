"""The folder of a store: the few calls to the system that make a text durable.

In: names inside the folder, bytes. Out: effects, or `OSError`. Everything that reads or writes a store goes through
`Disk`, so that a test can let any single step fail, or be the last one before a crash. What the steps are for is
decided in `storage.py` and `storeload.py`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Disk", "journal_name", "previous_name", "recovering_name", "temporary"]

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def journal_name(store: str) -> str:
    """The name of a store's journal."""
    return f"{store}.journal"


def previous_name(store: str) -> str:
    """The name of the snapshot before the present one."""
    return f"{store}.previous"


def recovering_name(store: str) -> str:
    """The name of the file that says that something was lost and not yet made up for."""
    return f"{store}.recovering"


def temporary(name: str, number: int) -> str:
    """A name for a file that is being written: the original's form."""
    return f".{name}{number}"


class Disk:
    """The folder that holds the store `name`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
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
            file = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.folder)
        except FileNotFoundError:
            return None
        with open(file, "rb") as stream:
            return stream.read()

    def create(self, name: str, mode: int) -> int:
        """A new file, opened for writing; the process's mask applies to the mode."""
        return os.open(name, _NEW, mode, dir_fd=self.folder)

    def open(self, name: str, flags: int = os.O_RDWR, mode: int = 0o600) -> int:
        """A file that may be there already."""
        return os.open(name, flags | os.O_CLOEXEC, mode, dir_fd=self.folder)

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
