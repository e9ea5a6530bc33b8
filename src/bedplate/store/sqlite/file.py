"""The database file: who owns it, whether it is ours, how it is made, and what SQLite's errors mean.

In: a path. Out: connections to a database that this process alone owns, or an error that says what is in the way. A
file that is not ours, or is damaged, is never changed and never deleted.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import sqlite3
from pathlib import Path

from bedplate.core import errors
from bedplate.store.interface import OutcomeUnknown, StoreFull

__all__ = ["Damaged", "InUse", "Lost", "Opened", "Ownership", "connect", "explain", "inspect", "prepare"]

_MAGIC = b"SQLite format 3\x00"
_APPLICATION_ID = 0x42504C54
_SCHEMA_VERSION = 1
_HEADER_BYTES = 100
_PAGE_BYTES = 8192

# One row per change. `id` is the revision in the upper bits and the position within the commit in the lower 16, so that
# the table itself is the log in commit order. `created` is 0 for a deletion; `previous` is the id of the row that this
# one replaced, 0 when a life of the key begins. `value` stands last: a scan that skips it never reads its pages.
_SCHEMA = """
CREATE TABLE log (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    created INTEGER NOT NULL,
    previous INTEGER NOT NULL,
    value BLOB
);
CREATE UNIQUE INDEX log_by_key ON log (key, id, created);
CREATE TABLE marks (name TEXT PRIMARY KEY, revision INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO marks VALUES ('oldest', 1), ('swept', 1);
"""


class InUse(errors.Terminal):
    """Another process owns the file."""


class Damaged(errors.Terminal):
    """The file is not a Bedplate store, or it is damaged."""


class Lost(errors.Unavailable):
    """The file was deleted or replaced while it was open: what is written now would be gone with the process."""


class Opened:
    """Which files a process has opened, and how it left them: the database and its log (`-wal`).

    Made before anything is opened: a database that is replaced from then on is never taken for the one that is open.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files = {path: _identity(path)}
        self._touched: int | None = None

    def note_log(self) -> None:
        """Remember the log, which is there once something was read."""
        log = Path(f"{self._path}-wal")
        self._files[log] = _identity(log)
        self.note()

    def note(self) -> None:
        """Remember the database as it is now, after this process may have written to it."""
        try:
            self._touched = os.stat(self._path).st_mtime_ns
        except OSError:
            self._touched = None

    def require_same(self) -> None:
        """Raise `Lost` unless the files of these names are the ones that were opened."""
        for file, identity in self._files.items():
            now = _identity(file)
            if now != identity:
                raise Lost(
                    f"{file} was {'deleted or moved' if now is None else 'replaced'} while it was open; nothing is "
                    "written any more",
                    hint="move the same file back, or stop the process, restore the newest backup, and start it again",
                )

    def require_untouched(self) -> None:
        """Raise `Lost` unless they are also as this process left them: they were moved away, and are back."""
        self.require_same()
        if self._touched is None or os.stat(self._path).st_mtime_ns != self._touched:
            raise Lost(
                f"{self._path} was changed while it was away; nothing is written any more",
                hint="stop the process, restore the newest backup, and start it again",
            )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


class Ownership:
    """The lock beside the database: held from `acquire` to `release`, and let go by the kernel if the process dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock_path = Path(f"{path}.lock")
        self._descriptor = -1

    def acquire(self) -> None:
        descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise InUse(
                f"{self._path} is in use by process {holder or '(not known)'}",
                hint="stop that process, or give this one a data folder of its own",
            ) from None
        self._descriptor = descriptor
        # The lock is what counts; the number only helps people, and a full disk must not keep the store shut.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        # The lock file stays: removing it would let two later openers lock two different files of the same name.
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def prepare(path: Path, *, must_exist: bool) -> None:
    """Make the database if there is none and there may be none; otherwise make sure, without touching it, that it is
    one of ours."""
    if must_exist or (path.exists() and path.stat().st_size > 0):
        inspect(path)
        return
    for suffix in ("-wal", "-journal"):
        if Path(f"{path}{suffix}").exists():
            raise Damaged(
                f"{path} is missing, but its log {path}{suffix} exists",
                hint="restore the database file, or move the log away to start with an empty store",
            )
    _create(path)


def inspect(path: Path) -> None:
    """Raise `Damaged` unless the file is a database of ours."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        raise Damaged(f"{path} is missing", hint="restore it from a backup, or put the file back") from None
    if not header:
        raise Damaged(f"{path} is empty", hint="restore it from a backup, or put the file back")
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise Damaged(f"{path} is not a database", hint="choose another path, or move the file away")
    if int.from_bytes(header[68:72], "big") != _APPLICATION_ID:
        raise Damaged(f"{path} is a database of another program", hint="choose another path, or move the file away")
    version = int.from_bytes(header[60:64], "big")
    if version != _SCHEMA_VERSION:
        raise Damaged(
            f"{path} has format {version}; this version of the program reads format {_SCHEMA_VERSION}",
            hint="use the version of the program that wrote it",
        )


def _create(path: Path) -> None:
    """Build the empty database under another name and rename it, so that no crash leaves half of one."""
    draft = Path(f"{path}.new")
    for leftover in (draft, Path(f"{draft}-journal")):
        leftover.unlink(missing_ok=True)
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
            connection.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
    except sqlite3.Error as error:
        raise explain(error, path) from error
    os.rename(draft, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def connect(path: Path, *, writer: bool) -> sqlite3.Connection:
    """A connection in write-ahead mode in which every commit is synced; it may be handed from thread to thread."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    try:
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise Damaged(f"{path} is on a file system without shared memory maps", hint="use a local disk")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 2000")
        if not writer:
            connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE}
_BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}


def explain(error: sqlite3.Error | OSError, path: Path) -> errors.BedplateError:
    """What an error of SQLite, or of the system, means for the store."""
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return StoreFull(f"no space left for {path}", hint="free some disk space")
        return errors.Terminal(f"{path} cannot be opened: {error}", hint="choose a folder that can be written to")
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if code in _FULL or (code == sqlite3.SQLITE_IOERR_WRITE and _has_no_room(path)):
        return StoreFull(f"no space left for {path}", hint="free some disk space; no data was lost")
    if code & 0xFF in _BROKEN:
        return Damaged(f"{path} is damaged: {error}", hint="restore it from a backup; the file was not changed")
    if code == sqlite3.SQLITE_IOERR_FSYNC:
        # After a failed sync nobody knows what reached the disk, and a later sync may hide the loss.
        return OutcomeUnknown(
            f"the disk below {path} failed to sync: {error}", hint="restart once the disk is repaired"
        )
    return errors.Unavailable(f"{path} cannot be used: {error}")


def _has_no_room(path: Path) -> bool:
    """Whether a refused write was for want of space: SQLite does not pass on the system's reason."""
    free = os.statvfs(path.parent)
    if free.f_bavail * free.f_frsize < 16 * _PAGE_BYTES:
        return True
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    log = Path(f"{path}-wal")
    return limit != resource.RLIM_INFINITY and log.exists() and log.stat().st_size + 16 * _PAGE_BYTES > limit
