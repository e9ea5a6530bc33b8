"""Software images on a node: what is in the head's tree comes here, or what is here goes into a tree of the head.

In: an errand of the head (which image, which mode, whether to write), what the node should be, a way to the head. Out:
the machine's own `rsync` with its rules, whose bytes travel over the agent's connection; how far it is, and what became
of it. `command` and `Output` are pure.

Nothing here wipes a machine by mistake: deletions come last and only where the errand says so, a full one needs the
head's word that somebody named this node, and what `api.images` protects is never touched. A transfer that was cut off
is repeated: rsync replaces a file whole or not at all, and deletes what it left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import sys
from asyncio.streams import FlowControlMixin
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from bedplate.agent.files import Root
from bedplate.agent.state import State
from bedplate.api import images
from bedplate.api.desired import Desired, Errand
from bedplate.client.http import Duplex, Lost
from bedplate.core import errors
from bedplate.core.backoff import Backoff
from bedplate.core.clock import Clock
from bedplate.core.logging import get_logger
from bedplate.core.tasks import TaskGroup

__all__ = ["NANOSECONDS", "Done", "Line", "Output", "Transfers", "command"]

_LOG = get_logger("agent.images")
_PIPE = str(Path(__file__).with_name("pipe.py"))
_CHUNK = 1 << 18
_LINES = 200
_LAST = 4000
_TRIES = 5
_IDLE_S = 600
NANOSECONDS = "--modify-window=-1"
_MOMENT_S = 0.5
_TOLD_S = 2.0
_ALIVE_S = 60.0
_VANISHED = 24
"""Files of the sender vanished while it read them: a running machine does that, an image on the head does not."""
_LOST = (10, 12, 30, 35)
"""rsync lost its peer, or heard nothing of it."""
_ITEM = re.compile(r"@(\S+) +(\d+) (.*)")
_PERCENT = re.compile(r"\s*[\d,.]+\S*\s+(\d{1,3})%")

Tell = Callable[[str], Awaitable[None]]


class Line(Protocol):
    """The way to the head."""

    def image(self, id_: str) -> AbstractAsyncContextManager[Duplex]: ...


class Done(NamedTuple):
    """What became of a transfer; `why` is empty when it went well."""

    why: str = ""
    text: str = ""
    lines: tuple[str, ...] = ()


class Output:
    """What rsync writes while it works: feed it pieces, cut anywhere."""

    def __init__(self, *, is_reversed: bool = False) -> None:
        self._rest = b""
        self._is_reversed = is_reversed
        self.percent = 0
        self.created = self.changed = self.deleted = 0
        self.lines: list[str] = []

    def feed(self, data: bytes) -> None:
        """Take a piece of it."""
        *pieces, self._rest = re.split(rb"[\r\n]", self._rest + data)
        for piece in pieces:
            text = piece.decode(errors="replace")
            if (item := _ITEM.fullmatch(text)) is not None:
                self._item(item[1], item[3])
            elif (percent := _PERCENT.match(text)) is not None:
                self.percent = min(int(percent[1]), 100)

    def _item(self, what: str, name: str) -> None:
        if what.startswith("*deleting"):
            word = "delete"
        elif "+++" in what:
            word = "create"
        elif re.fullmatch(r"\.d\.\.t\.*", what):
            return  # the time of a folder, which changes with everything in it
        else:
            word = "change"
        if self._is_reversed:
            word = {"delete": "create", "create": "delete"}.get(word, word)
        self.created += word == "create"
        self.changed += word == "change"
        self.deleted += word == "delete"
        if len(self.lines) < _LINES:
            self.lines.append(f"{word} /{name.removeprefix('/')}"[:500])

    def summary(self, *, is_written: bool) -> str:
        """What happened, or would happen, in words."""
        counts = ((self.created, "created"), (self.changed, "changed"), (self.deleted, "deleted"))
        parts = [f"{count:,} {word}" for count, word in counts if count]
        if not parts:
            return "nothing to change"
        return f"{', '.join(parts)}" if is_written else f"would be {', '.join(parts)}"


def command(errand: Errand, root: str, rules: str, handle: int, *, is_privileged: bool) -> list[str]:
    """The call of rsync for an errand. Deletions come after everything else went well."""
    shell = [sys.executable, "-I", "-S", _PIPE, str(handle)]
    # Owners, devices and attributes beyond the mode are a privileged process's to set.
    what = ("-aHAX", "--numeric-ids") if is_privileged else ("-rlptH", "--chmod=u+rwX")
    # The list of files at once: asked for in pieces, each of them would wait for a way to the head and back.
    words = ["rsync", *what, "--no-inc-recursive", f"--filter=merge {rules}", f"--timeout={_IDLE_S}"]
    # By itself rsync takes two files of one size and one second for the same.
    words.append(NANOSECONDS)
    words += ["--info=progress2", "--out-format=@%i %l %n%L", "--outbuf=L"]
    words += ["-e", " ".join(_quoted(word) for word in shell)]
    if errand.delete:
        words.append("--delete-delay")
    if not errand.write:
        words.append("--dry-run")
    here = root.rstrip("/") + "/"
    if errand.mode == "grab" and errand.write:
        return [*words, here, "head::image/"]
    return [*words, "head::image/", here]


def _quoted(word: str) -> str:
    """rsync takes its remote shell apart at blanks, and knows quotes but no backslashes."""
    if not re.search(r"[\s'\"]", word):
        return word
    return f'"{word}"' if '"' not in word else f"'{word}'"


class Transfers:
    """One at a time. `run` never raises for what rsync or the head does."""

    def __init__(
        self, root: Root, state: State, line: Line, clock: Clock, *, which: Callable[[str], str | None] = shutil.which
    ) -> None:
        self._root = root
        self._state = state
        self._line = line
        self._clock = clock
        self._which = which

    async def run(self, errand: Errand, desired: Desired | None, tell: Tell) -> Done:
        """Carry an errand out; `tell` is called now and then with how far it is."""
        refusal = self._refusal(errand, desired)
        if refusal:
            return Done(refusal)
        rules = os.path.join(self._state.folder, "image.rules")
        try:
            self._write_rules(rules, errand, desired)
        except OSError as err:
            return Done(f"{rules} cannot be written: {(err.strerror or str(err)).lower()}")
        backoff = Backoff(first_s=1.0, cap_s=30.0)
        why = ""
        for attempt in range(_TRIES):
            if attempt:
                await self._clock.sleep(backoff.next())
                await tell(f"tries again: {why}")
            try:
                done = await self._once(errand, rules, tell)
            except errors.Retryable as err:
                why = str(err)
                continue
            except errors.BedplateError as err:
                return Done(f"{err}; {err.hint}" if err.hint else str(err))
            except OSError as err:
                return Done(f"rsync cannot be run: {(err.strerror or str(err)).lower()}")
            return done
        return Done(f"{why} ({_TRIES} tries)")

    def _refusal(self, errand: Errand, desired: Desired | None) -> str:
        if self._which("rsync") is None:
            return "rsync is not installed on this node; install it: apt-get install rsync, or dnf install rsync"
        if desired is None:
            return "the head has not said yet what this node should be, so that its exclude lists are not known"
        if errand.mode == "full" and errand.write and not errand.confirmed:
            return "a full installation wipes this node, and nobody confirmed that by its name"
        if desired.data_node and errand.delete and errand.write and errand.mode != "grab" and not errand.confirmed:
            return "this is a data node: nothing is deleted here unless somebody confirms it by its name"
        return ""

    def _write_rules(self, path: str, errand: Errand, desired: Desired | None) -> None:
        mode: images.Mode = errand.mode or "update"
        managed = {record.path for record in self._state.records()} | _program(self._root)
        lists: Sequence[str] = ()
        if desired is not None:
            managed |= {file.path for file in desired.files}
            lists = desired.excludes.get(mode, ())
        with open("/proc/self/mountinfo") as stream:
            mounted = images.mounts(stream.read(), self._root.folder)
        lines = images.sooner(images.rules(mode, lists, managed=managed, mounted=mounted))
        with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as stream:
            stream.write("".join(f"{line}\n" for line in lines))

    async def _once(self, errand: Errand, rules: str, tell: Tell) -> Done:
        waiting = asyncio.create_task(self._waits(tell))
        try:
            async with self._line.image(errand.id) as duplex:
                await _ended(waiting)
                return await self._copy(errand, rules, duplex, tell)
        finally:
            await _ended(waiting)

    async def _waits(self, tell: Tell) -> None:
        """Say that others come first; nobody needs to know of a moment."""
        await self._clock.sleep(_MOMENT_S)
        await tell("waits for the head")

    async def _copy(self, errand: Errand, rules: str, duplex: Duplex, tell: Tell) -> Done:
        ours, theirs = socket.socketpair()
        output = Output(is_reversed=errand.mode == "grab" and not errand.write)
        last, code, lost = bytearray(), -1, ""
        words = command(errand, self._root.folder, rules, theirs.fileno(), is_privileged=self._root.is_privileged)
        _LOG.info("agent.image", command=shlex.join(words))
        with contextlib.closing(ours):
            with contextlib.closing(theirs):
                child = await asyncio.create_subprocess_exec(
                    *words,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                    env=_environ(),
                )
            try:
                async with TaskGroup() as tasks:
                    assert child.stdout is not None and child.stderr is not None
                    telling = tasks.create_task(self._progress(output, tell))
                    tasks.create_task(_follow(child.stdout, output.feed))
                    tasks.create_task(_follow(child.stderr, lambda data: _keep(last, data)))
                    carrying = tasks.create_task(_carry(ours, duplex))
                    code = await child.wait()
                    telling.cancel()
                    if _is_good(code, errand):
                        # The head ends its answer when what it received is in place.
                        await carrying
                    else:
                        carrying.cancel()
            except* Lost as group:
                lost = str(group.exceptions[0])
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                await child.wait()
        if lost:
            raise errors.Unavailable(f"the head was lost: {lost}")
        return _judged(code, last.decode(errors="replace"), output, errand)

    async def _progress(self, output: Output, tell: Tell) -> None:
        told, at_s = -1, 0.0
        while True:
            await self._clock.sleep(_TOLD_S)
            now_s = self._clock.monotonic()
            if output.percent != told or now_s - at_s >= _ALIVE_S:
                told, at_s = output.percent, now_s
                await tell(f"{output.percent}%")


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _program(root: Root) -> set[str]:
    """This program, wherever it is installed, as paths below the root."""
    places = {sys.prefix, str(Path(__file__).parents[1])} - {"/usr", "/usr/local"}
    above = root.folder.rstrip("/") + "/"
    return {f"/{place.removeprefix(above)}" for place in places if place.startswith(above)}


def _environ() -> dict[str, str]:
    """Words of rsync in English, and none of its settings from elsewhere."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RSYNC_")} | {"LC_ALL": "C"}


def _keep(last: bytearray, data: bytes) -> None:
    last += data
    del last[:-_LAST]


async def _follow(stream: asyncio.StreamReader, take: Callable[[bytes], None]) -> None:
    while data := await stream.read(_CHUNK):
        take(data)


async def _carry(agent: socket.socket, duplex: Duplex) -> None:
    """Take rsync's two ends from the helper, and carry bytes both ways until the head has said everything."""
    loop = asyncio.get_running_loop()
    given = asyncio.Event()
    loop.add_reader(agent, given.set)
    try:
        await given.wait()
    finally:
        loop.remove_reader(agent)
    _, handles, _, _ = socket.recv_fds(agent, 1, 2)
    if len(handles) != 2:
        return  # rsync ended before it asked for anything, and says why
    reader = asyncio.StreamReader(limit=_CHUNK)
    source, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(handles[0], "rb", 0)
    )
    sink, flow = await loop.connect_write_pipe(FlowControlMixin, os.fdopen(handles[1], "wb", 0))
    writer = asyncio.StreamWriter(sink, flow, None, loop)
    sending = asyncio.create_task(_send(reader, duplex))
    try:
        async for chunk in duplex.chunks:
            with contextlib.suppress(ConnectionError):
                writer.write(chunk)
                await writer.drain()
    finally:
        sending.cancel()
        source.close()
        sink.close()
        # The helper ends with this, and rsync with the helper.
        agent.shutdown(socket.SHUT_RDWR)


async def _send(reader: asyncio.StreamReader, duplex: Duplex) -> None:
    with contextlib.suppress(Lost):
        while data := await reader.read(_CHUNK):
            await duplex.send(data)
        await duplex.end()


def _is_good(code: int, errand: Errand) -> bool:
    return code == 0 or (code == _VANISHED and errand.mode == "grab")


def _judged(code: int, last: str, output: Output, errand: Errand) -> Done:
    lines = [line.strip() for line in last.splitlines() if line.strip()]
    complaints = [line for line in lines if not line.startswith("rsync error:")] or lines
    why = "; ".join(complaints[-3:])[:700]
    text = output.summary(is_written=errand.write)
    if _is_good(code, errand):
        return Done("", text, tuple(output.lines))
    if "No space left on device" in last:
        return Done(f"the disk is full ({why}); free space, then repeat it: {text} so far", text, tuple(output.lines))
    if code in _LOST and not complaints:
        raise errors.Unavailable(f"the connection to the head was lost (rsync ended with {code})")
    return Done(f"rsync ended with {code}: {why or 'it gave no reason'}", text, tuple(output.lines))
