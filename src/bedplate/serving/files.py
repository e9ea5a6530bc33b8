"""Writing files that hold secrets: all of a file or nothing, with its mode from the first byte."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from bedplate.core import errors

__all__ = ["write_private"]


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
        raise errors.Invalid(f"cannot write {path}: {err.strerror}", hint="choose a path this user can write") from err
