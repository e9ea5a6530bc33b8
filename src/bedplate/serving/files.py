"""Writing files that hold secrets: all of a file or nothing, with its mode from the first byte."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bedplate.core import errors

__all__ = ["new_private", "write_private"]


def write_private(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Write a file atomically and durably; only its owner may read it unless `mode` says otherwise.

    Raises `Invalid` where the path cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as err:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise _refused(path, err) from err


@contextlib.contextmanager
def new_private(path: Path) -> Iterator[BinaryIO]:
    """A new file that only its owner may read, for writing and reading; it gets its name when the block has ended well.

    Until then it has none, so that a process that is killed leaves nothing behind (where the file system has no files
    without names, it has a temporary one). Raises `AlreadyExists`, and `Invalid` where the path cannot be written.
    """
    path = path.absolute()
    temporary: Path | None = None
    try:
        try:
            descriptor = os.open(path.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as err:
            if err.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                raise
            temporary = path.with_name(f".{path.name}.{os.getpid()}")
            descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            _name(temporary or Path(f"/proc/self/fd/{file.fileno()}"), path)
    except FileExistsError as err:
        raise errors.AlreadyExists(f"{path} already exists; nothing was written", hint="choose another name") from err
    except OSError as err:
        raise _refused(path, err) from err
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _refused(path: Path, err: OSError) -> errors.Invalid:
    is_full = err.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = "free some disk space; nothing was written" if is_full else "choose a path this user can write"
    return errors.Invalid(f"cannot write {path}: {err.strerror}", hint=hint)


def _name(file: Path, path: Path) -> None:
    """Give a file its name, for good; a name that is taken is `FileExistsError`."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Only with the descriptor of a folder Python asks the system to follow the link of a file without a name.
        os.link(file, path, src_dir_fd=folder, follow_symlinks=True)
        os.fsync(folder)
    finally:
        os.close(folder)
