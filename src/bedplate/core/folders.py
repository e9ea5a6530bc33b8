"""Folders that root trusts: programs are run and keys are read from them, so that nobody else may write there.

In: a folder, which need not exist yet. Out: nothing, or `Invalid` with the folder at fault. Only root is held to it:
another user's files cannot make this process do what that user could not.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from bedplate.core import errors

__all__ = ["check_trusted"]


def check_trusted(folder: Path, hint: str) -> None:
    """Refuse, as root, a folder that others may write, or that stands in one where others may replace it."""
    if os.geteuid() != 0:
        return
    path = folder.absolute()
    # A symbolic link is as trustworthy as the folder it stands in.
    resolved = path.resolve()
    for place in dict.fromkeys((path, *path.parents, resolved, *resolved.parents)):
        problem = _problem(place, is_leaf=place in (path, resolved))
        if problem:
            raise errors.Invalid(f"{folder} is not safe to use as root: {place} {problem}", hint=hint)


def _problem(place: Path, *, is_leaf: bool) -> str:
    try:
        about = place.lstat()
    except OSError:
        return ""  # What does not exist is made by this process.
    if about.st_uid != 0:
        return f"belongs to user {about.st_uid}"
    if stat.S_ISLNK(about.st_mode):
        return ""
    is_writable = about.st_mode & stat.S_IWOTH or (about.st_mode & stat.S_IWGRP and about.st_gid != 0)
    # In a sticky folder such as /tmp others may add files, but not replace a folder of root.
    if is_writable and (is_leaf or not about.st_mode & stat.S_ISVTX):
        return "may be written by others"
    return ""
