"""The head node's disk under software images: names beside a tree, folders that change places, space that must stay.

In: paths of trees. Out: the same trees under other names, or gone; work that is ended before the disk is full; commands
that are run to their end. Nothing here knows what an image is.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from bedplate.core import errors

__all__ = ["WORDS", "Ran", "beside", "discard", "exchange", "restore", "run", "spared", "to_the_end", "unmunge"]

_CHUNK: Final = 1 << 18
_OUTPUT: Final = 1 << 18
_MUNGED = "/rsyncd-munged/"
_AT_FDCWD, _EXCHANGE = -100, 2
_SPARE = 1 << 30
_LOOK_EACH_S = 1.0

T = TypeVar("T")

WORDS: Final = ("new", "grab", "grab.old", "gone")
"""What lies beside a tree while it is changed. What a killed head left there is removed by the next change."""


class Ran(NamedTuple):
    """How a command in an image ended."""

    code: int
    output: str


def beside(place: str, word: str) -> str:
    """A name in the same folder that no image can have: it begins with a dot."""
    return os.path.join(os.path.dirname(place), f".{os.path.basename(place)}.{word}")


def restore(place: str) -> None:
    """Give an image its name back that was killed between two names, see `exchange`."""
    aside = f"{beside(place, 'grab')}.old"
    if not os.path.lexists(place) and os.path.lexists(aside):
        os.rename(aside, place)


async def to_the_end(work: Callable[..., None], *args: object) -> None:
    """Something in a thread, which nothing can interrupt: who is cancelled waits for it, so that nothing else is done
    to the same files meanwhile."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *args))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        raise


async def discard(path: str) -> None:
    """Remove a folder with all that is in it."""
    await to_the_end(_removed, path)


def _removed(path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)


def unmunge(tree: str) -> None:
    """Make links of a grabbed tree what they were: rsync wrote them so that they led nowhere while it worked."""
    for parent, folders, names in os.walk(tree):
        for name in (*folders, *names):
            path = os.path.join(parent, name)
            if os.path.islink(path) and (target := os.readlink(path)).startswith(_MUNGED):
                os.unlink(path)
                os.symlink(target.removeprefix(_MUNGED), path)


def exchange(new: str, place: str) -> None:
    """Let two folders change places in one step; where the file system cannot, in two."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.renameat2(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(place), _EXCHANGE) == 0:
        return
    aside = f"{new}.old"
    os.rename(place, aside)
    os.rename(new, place)
    os.rename(aside, new)


async def run(command: Sequence[str], timeout_s: float) -> Ran:
    """A command to its end, with the last of what it wrote."""
    child = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/root"},
    )
    assert child.stdout is not None
    last = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            while data := await child.stdout.read(_CHUNK):
                last += data
                del last[:-_OUTPUT]
            code = await child.wait()
    except TimeoutError:
        return Ran(124, f"{last.decode(errors='replace')}\nit did not end within {timeout_s:g} s\n")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await child.wait()
    return Ran(code, last.decode(errors="replace"))


async def spared(place: str, work: Coroutine[Any, Any, T]) -> T:
    """The result of what writes to a tree; it is ended before the disk is full. Raises `Invalid` then.

    Time is what counts: a few bytes of a node can ask for many of what is there already."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            if _is_short(place):
                raise errors.Invalid(
                    f"the disk of {os.path.dirname(place)} on the head node is almost full",
                    hint="free space there, or files if it has too many of them",
                )
            await asyncio.wait([task], timeout=_LOOK_EACH_S)
        return task.result()
    finally:
        task.cancel()
        await asyncio.wait([task])


def _is_short(place: str) -> bool:
    """Whether the disk has too little left for the head itself: of space, or of files."""
    about = os.statvfs(os.path.dirname(place))
    is_crowded = about.f_files > 0 and about.f_favail < about.f_files // 100
    return is_crowded or about.f_bavail * about.f_frsize < min(_SPARE, about.f_blocks * about.f_frsize // 20)
