"""rsync at the head's end of a transfer: one process for one node, over its standard input and output.

In: a tree, the bytes of a node's rsync. Out: bytes for the node; a grabbed tree, which is put in place of the image in
one step when all of it is there.

rsync serves as a daemon, which is how it is made for peers that are not trusted: it stays below the tree (by chroot as
root; by its own checks of every path otherwise), it is told here alone what the tree is and whether it may be written,
and options beyond those of our agents are refused. A grab is written beside the image.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final, NamedTuple

from bedplate.core import errors
from bedplate.head.images import disk
from bedplate.head.images.trees import Marker, Trees

__all__ = ["Serving", "Transfers", "configuration", "moving"]

_CHUNK: Final = 1 << 18
_IDLE_S = 900
"""A node that says nothing, or does not listen, for so long has gone."""
_LONGEST_S = 12 * 3600
"""No transfer lasts longer, however often its node says that it is at it: others wait for their turn."""
_STILL_S = 3600.0
_STILL_BYTES = 4096
"""Who carries less than this in so long is not at work: two rsyncs that wait for each other, as after garbage on the
way, say that they are alive for as long as they are let."""
_MEMORY = 2 << 30
"""What one rsync may take, whatever a node lets it read."""
_LAST = 4000
# Not `iconv`: what converts letters would be loaded from the tree that rsync has locked itself into.
_ALLOWED = (
    "a recursive links perms times owner group devices specials hard-links acls xattrs numeric-ids delete "
    "delete-during delete-delay timeout log-format out-format info chmod modify-window"
)


def configuration(tree: str, *, is_written: bool, is_root: bool) -> str:
    """The settings of an rsync daemon that serves one tree to one node; as root it locks itself into the tree."""
    lines = [
        # A file would grow for as long as a node makes mistakes.
        "log file = /dev/stderr",
        "reverse lookup = no",
        "numeric ids = yes",
        "[image]",
        f"path = {tree}",
        f"use chroot = {'yes' if is_root else 'no'}",
        f"read only = {'no' if is_written else 'yes'}",
        f"write only = {'yes' if is_written else 'no'}",
        # Links that a node sends would lead this process out of the tree where it cannot be locked in.
        f"munge symlinks = {'yes' if is_written and not is_root else 'no'}",
        "list = no",
        f"timeout = {_IDLE_S}",
        f"refuse options = * {' '.join(f'!{name}' for name in _ALLOWED.split())}",
    ]
    if os.geteuid() == 0:
        # Otherwise rsync becomes nobody.
        lines += ["uid = 0", "gid = 0"]
    return "\n".join(lines) + "\n"


async def moving(work: Coroutine[Any, Any, int], count: Callable[[], int]) -> int:
    """Work to its end, for as long as a count of what it did grows. Raises `Unavailable` when it stands still."""
    task, last = asyncio.ensure_future(work), count()
    try:
        while not (await asyncio.wait([task], timeout=_STILL_S))[0]:
            if count() - last < _STILL_BYTES:
                raise errors.Unavailable(
                    f"both ends of the transfer were alive, and nothing came of it for {_STILL_S / 60:g} minutes",
                    hint="ask for it again",
                )
            last = count()
        return task.result()
    finally:
        task.cancel()
        await asyncio.wait([task])


class Transfers:
    """At most `most` run at once; the others wait for their turn."""

    def __init__(self, trees: Trees, *, most: int = 10) -> None:
        self.trees = trees
        self._turns = asyncio.Semaphore(most)
        self._running: dict[str, asyncio.Task[object]] = {}

    @contextlib.asynccontextmanager
    async def serve(self, id_: str, path: str, *, is_written: bool, node: str, by: str) -> AsyncIterator[Serving]:
        """An rsync for one transfer, once it has its turn. Of a transfer that is asked for again the first ends.

        A written one goes to a copy beside the tree; `Serving.keep` puts it in place. Raises `Invalid`, `Conflict`.
        """
        if self.trees.which("rsync") is None:
            raise errors.Invalid(
                "rsync is not installed on the head node", hint="install it there: apt-get install rsync"
            )
        place, condition = self.trees.place(path), self.trees.condition(path)
        if not is_written and condition.state != "ready":
            raise errors.Invalid(f"{place} is not copied: {condition.refusal}", hint=condition.remedy)
        if is_written and condition.state in ("unmarked", "outside"):
            raise errors.Invalid(f"{place} is not written: {condition.refusal}", hint=condition.remedy)
        me = asyncio.current_task()
        former = self._running.get(id_)
        if former is not None and former is not me:
            former.cancel()
            await asyncio.wait([former], timeout=10.0)
        assert me is not None
        self._running[id_] = me
        try:
            async with self._turns, contextlib.AsyncExitStack() as stack:
                tree = place
                if is_written:
                    await stack.enter_async_context(self.trees.changing(place, f"grabbed from {node}"))
                    tree = disk.beside(place, "grab")
                    await stack.enter_async_context(self.trees.kept(tree))
                    await self.trees.prepare(place if condition.state == "ready" else "", tree)
                else:
                    stack.enter_context(self.trees.reading(place, f"copied to {node}"))
                    condition = self.trees.condition(path)
                    if condition.state != "ready":
                        raise errors.Invalid(f"{place} is not copied: {condition.refusal}", hint=condition.remedy)
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bedplate-image-"))
                settings = Path(folder) / "rsyncd.conf"
                settings.write_text(configuration(tree, is_written=is_written, is_root=self.trees.is_root))
                origin = f"grabbed from {node} by {by}"
                yield Serving(self.trees, str(settings), place, tree, condition.marker, origin, is_written, bytearray())
        finally:
            if self._running.get(id_) is me:
                del self._running[id_]


class Serving(NamedTuple):
    """A transfer that has its turn."""

    trees: Trees
    settings: str
    place: str
    tree: str
    marker: Marker
    origin: str
    is_written: bool
    said: bytearray

    async def carry(self, incoming: AsyncIterator[bytes], outgoing: Callable[[bytes], Awaitable[None]]) -> int:
        """Run rsync on a node's bytes until it ends; its exit code. Raises `Invalid` when the disk fills up, and
        ConnectionError when the node is gone."""

        count = 0

        async def out(data: bytes) -> None:
            nonlocal count
            count += len(data)
            try:
                async with asyncio.timeout(_IDLE_S):
                    await outgoing(data)
            except TimeoutError:
                raise ConnectionError("the node does not listen") from None

        async def taken() -> AsyncIterator[bytes]:
            nonlocal count
            async for data in incoming:
                count += len(data)
                yield data

        carried = moving(self._carry(taken(), out), lambda: count)
        try:
            async with asyncio.timeout(_LONGEST_S):
                return await (disk.spared(self.place, carried) if self.is_written else carried)
        except TimeoutError:
            raise errors.Invalid(
                f"the transfer was not over within {_LONGEST_S / 3600:g} hours", hint="exclude lists make it shorter"
            ) from None

    async def _carry(self, incoming: AsyncIterator[bytes], outgoing: Callable[[bytes], Awaitable[None]]) -> int:
        child = await asyncio.create_subprocess_exec(
            "rsync",
            "--server",
            "--daemon",
            f"--config={self.settings}",
            ".",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd="/",
            start_new_session=True,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
            limit=_CHUNK,
        )
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        with contextlib.suppress(ProcessLookupError):
            # Before it has read a byte of the node: what it starts later is under the same limit.
            resource.prlimit(child.pid, resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        taking = asyncio.create_task(self._take(incoming, child.stdin))
        listening = asyncio.create_task(self._listen(child.stderr))
        try:
            # A reader that fails closes rsync's input, which ends rsync.
            while data := await child.stdout.read(_CHUNK):
                await outgoing(data)
            code = await child.wait()
            if taking.done():
                taking.result()
            await listening
            return code
        finally:
            taking.cancel()
            listening.cancel()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            await child.wait()

    async def _take(self, incoming: AsyncIterator[bytes], sink: asyncio.StreamWriter) -> None:
        is_over = False
        try:
            async for data in incoming:
                if not is_over:
                    sink.write(data)
                    try:
                        await sink.drain()
                    except ConnectionError:
                        is_over = True  # rsync has ended, and its exit code says why
        finally:
            sink.close()

    async def _listen(self, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(_CHUNK):
            self.said.extend(data)
            del self.said[:-_LAST]

    def reason(self) -> str:
        """What rsync last complained about, in one line."""
        lines = self.said.decode(errors="replace").splitlines()
        complaints = [line.partition("] ")[2] for line in lines if "rsync:" in line or "ERROR" in line]
        return "; ".join(complaints[-3:])[:500]

    async def keep(self) -> None:
        """Put what was grabbed in place of the image; to the end, whoever does not wait for it."""
        await disk.to_the_end(self.trees.replace, self.place, self.tree, self.marker, self.origin)
