"""Files of the machine the shell runs on: read as text, written whole; errors name the file."""

from __future__ import annotations

import os
import pathlib

from bedplate.core import errors

__all__ = ["read", "write"]


def read(name: str) -> str:
    """The text of a file, every byte of it. Raises `Invalid`."""
    try:
        return pathlib.Path(os.path.expanduser(name)).read_bytes().decode()
    except OSError as wrong:
        reason = (wrong.strerror or "cannot be read").lower()
        raise errors.Invalid(f"the file {name} cannot be read: {reason}", hint="name a file on this machine") from None
    except UnicodeDecodeError:
        raise errors.Invalid(f"the file {name} is not text in UTF-8", hint="name a text file") from None


def write(name: str, text: str) -> None:
    """The file whole or not at all, readable by its owner alone. Raises `Invalid`."""
    path = pathlib.Path(os.path.expanduser(name))
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        beside.replace(path)
    except OSError as wrong:
        reason = (wrong.strerror or "cannot be written").lower()
        raise errors.Invalid(f"the file {name} cannot be written: {reason}", hint="name another place") from None
    finally:
        beside.unlink(missing_ok=True)
