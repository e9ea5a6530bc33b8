"""Where a file is going to be written: refused before work begins that would be lost.

In: a path. Out: nothing, or `Invalid` that names what is wrong with it. Nothing is written.
"""

from __future__ import annotations

import os
from pathlib import Path

from bedplate.core import errors

__all__ = ["check_target"]


def check_target(file: Path, meanwhile: str = "") -> None:
    """Raises `Invalid` where the file cannot be written; a device is never replaced by one. `meanwhile` says in the
    message what was not done."""
    if file.exists() and not file.is_file():
        why = "it is not a regular file"
    elif not file.parent.is_dir():
        why = "its folder does not exist"
    elif not os.access(file.parent, os.W_OK):
        why = "its folder is read-only"
    else:
        return
    tail = f"; {meanwhile}" if meanwhile else ""
    raise errors.Invalid(f"{file} cannot be written: {why}{tail}", hint="name another file")
