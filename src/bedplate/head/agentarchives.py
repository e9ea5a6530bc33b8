"""Archives of the node agent that a head hands out: files of its data folder, named after their digests.

In: archives as `make packages` writes them. Out: their bytes for nodes whose desired state names them. What nodes run
is said by the tree (`agentversion`, `agentarchives`), not by what lies here.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import NamedTuple

from bedplate.core import errors

__all__ = ["ARCHIVES", "Archive", "Archives"]

ARCHIVES = "agents"
_NAME = re.compile(r"bedplate-agent-(?P<version>[0-9][0-9A-Za-z.+~-]{0,63})-linux-(?P<architecture>\w+)\.tar\.gz")
_PART = 1 << 20


class Archive(NamedTuple):
    """An archive of the agent, by its name and content."""

    version: str
    architecture: str
    digest: str


class Archives:
    """A folder of archives; None: this head has none."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def add(self, source: Path) -> Archive:
        """Take a copy of an archive. Raises `Invalid` for a file that is none."""
        match = _NAME.fullmatch(source.name)
        if match is None or self._folder is None:
            raise errors.Invalid(
                f"{source} is not named like an archive of the agent",
                hint="make packages builds bedplate-agent-VERSION-linux-ARCHITECTURE.tar.gz",
            )
        self._folder.mkdir(mode=0o700, exist_ok=True)
        new, digest = self._folder / f".{os.getpid()}.new", hashlib.sha256()
        try:
            with source.open("rb") as stream, new.open("wb") as copy:
                while part := stream.read(_PART):
                    digest.update(part)
                    copy.write(part)
                copy.flush()
                os.fsync(copy.fileno())
            new.rename(self._folder / digest.hexdigest())
        finally:
            new.unlink(missing_ok=True)
        return Archive(match["version"], match["architecture"], digest.hexdigest())

    def place(self, digest: str) -> Path:
        """Where an archive is. Raises `NotFound`."""
        place = self._folder / digest if self._folder is not None and re.fullmatch("[0-9a-f]{64}", digest) else None
        if place is None or not place.is_file():
            raise errors.NotFound(
                f"this head has no archive of the agent with the SHA-256 {digest[:12]}…",
                hint="add it on each head node: bedplate head agent-archive FILE",
            )
        return place
