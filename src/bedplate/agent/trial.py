"""Files are judged before they are put in place: by the program that reads them, and by who has their ports.

In: a file with its test, its content as it would be written. Out: why it must not be written, or nothing. The new
content stands beside the old file for as long as its program looks at it.
"""

from __future__ import annotations

import re
import shutil

from bedplate.agent import ports
from bedplate.agent.commands import Run
from bedplate.agent.files import Root, Written
from bedplate.api.desired import File
from bedplate.core.logging import get_logger

__all__ = ["refusal"]

_LOG = get_logger("agent.trial")
_TEST_S = 60.0
_UNKNOWN_FLAG = re.compile(r"unknown flag: (--[a-z-]+)")


async def refusal(
    root: Root, run: Run, file: File, content: bytes, written: Written, *, folder_mode: int | None
) -> str:
    """Why a file must not be written; empty: it may. Raises `FileProblem` when it cannot be put beside the old one."""
    if root.is_machine:
        taken = next(filter(None, (ports.taken(root, port, file.services) for port in file.ports)), "")
        if taken:
            return taken
    elif not _can_ask(root, file.test[0]):
        return ""
    folders = root.missing_folders(file.path)
    try:
        with root.trial(file.path, content, written, folder_mode=folder_mode) as place:
            ended = await run([word.replace("{}", place) for word in file.test], timeout_s=_TEST_S)
    finally:
        root.remove_folders(folders)
    if ended.is_good:
        return ""
    unknown = _UNKNOWN_FLAG.search(ended.why)
    if unknown and unknown[1] in file.test:
        # Older releases of a program cannot be asked.
        _LOG.info("agent.test.unknown", program=file.test[0], flag=unknown[1], path=file.path)
        return ""
    return f"{file.test[0]} refuses it: {ended.reason}"


def _can_ask(root: Root, program: str) -> bool:
    """Whether a sandbox has the program of a test; rules of the kernel are tested by root alone."""
    return shutil.which(program) is not None and (program != "nft" or root.is_privileged)
