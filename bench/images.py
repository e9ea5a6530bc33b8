"""What an image update costs beside plain rsync: one changed file in a large tree.

A head, the agent of a sandbox as a process, and a copy of the image for each side. In turns, the file is changed in the
image, and both copies are brought up to date: ours by `imageupdate` as people ask for it, from the request until the
head knows that it is done (rsync at both ends, over the agent's connection with TLS); the other by `rsync` on the same
disk with nothing between, with the options of the agent: owners and attributes are root's to set. Who is first changes
with every turn. The median of the turns counts, and processor time beside it, for that of a busy machine tells more.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import resource
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from bedplate.agent import images, settings
from bedplate.api.headapi import ErrandState, ImageAction, Transfer
from bedplate.client import HeadClient
from bedplate.core import errors, logging
from bedplate.head.folder import creation
from bench import agents, headload, report

__all__ = ["run"]

NODE = "node001"
IMAGE = "default-image"
FOLDERS = 200
DEADLINE_S = 1800.0
_PLAIN = ("-aHAX", "--numeric-ids")
_SANDBOX = ("-rlptH", "--chmod=u+rwX")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    files: int = 20_000
    bytes: int = 100_000
    changes: int = 11


QUICK = Sizes(files=40, bytes=100, changes=1)


async def run(folder: pathlib.Path, *, is_quick: bool, tell: Callable[[str], None]) -> report.Topic:
    logging.configure(logging.LogOptions(is_quiet=True))
    if shutil.which("rsync") is None:
        raise errors.Unavailable("rsync is not installed", hint="make setup")
    sizes = QUICK if is_quick else Sizes()
    size = f"{sizes.files * sizes.bytes / 1e9:.2g} GB" if not is_quick else f"{sizes.files * sizes.bytes:,} bytes"
    topic = report.Topic("images", f"an image of {size} in {sizes.files:,} files", "rsync")
    tree, root, copy = folder / "images" / IMAGE, folder / NODE, folder / "copy"
    tell(f"writing {size} in {sizes.files:,} files")
    await asyncio.to_thread(_grow, tree, sizes)
    data, certificates = folder / "head", folder / "certificates"
    await creation.make(data, name="bench", nodes=1)
    agents.certify(data, certificates, [NODE])
    async with headload.serving(data, "--images", str(tree.parent)) as daemon, daemon.client() as client:
        await client.act_on_image(IMAGE, ImageAction(action="adopt"))
        _settle(root, daemon, certificates / f"{NODE}.pem")
        with agents.running([root]) as children:
            usage = _usage(daemon.pid, *(child.pid for child in children))
            async with _listening(client) as notices:
                sides = _Sides(client, notices, tree, root, copy, usage)
                tell("the first copy of each side")
                first, first_peer, *_ = await sides.turn("first", is_first=True)
                turns = []
                for number in range(sizes.changes):
                    tell(f"one changed file, turn {number + 1} of {sizes.changes}")
                    turns.append(await sides.turn(f"change {number}", is_first=bool(number % 2)))
    own_s, peer_s, own_cpu_s, peer_cpu_s = (sorted(column)[len(turns) // 2] for column in zip(*turns, strict=True))
    goal, name = _goal(is_quick), "processor time for one changed file, all processes"
    topic.rows += [
        report.Row("one changed file", own_s, peer_s, "s", goal=goal, is_less_better=True),
        report.Row(name, own_cpu_s, peer_cpu_s, "s", goal=goal, is_less_better=True),
        report.Row("the first copy", first, first_peer, "s", is_less_better=True),
    ]
    topic.notes.append(
        "ours counts from the request until the head tells that it is done; rsync: same disk, with the same options"
        f" ({' '.join((*_options(), images.NANOSECONDS))}); medians of {sizes.changes} turns,"
        f" load {os.getloadavg()[0]:.1f}"
    )
    return topic


def _goal(is_quick: bool) -> float:
    """At most 1.2 times as long; tiny sizes are not judged."""
    return 0.0 if is_quick else 1 / 1.2


def _grow(tree: pathlib.Path, sizes: Sizes) -> None:
    """Files of the same size in folders of the same length, no two alike."""
    block = os.urandom(sizes.bytes)
    for number in range(sizes.files):
        path = tree / f"usr/share/bench/{number % FOLDERS:03d}/{number:06d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(number.to_bytes(8, "big") + block[8:])


def _settle(root: pathlib.Path, daemon: headload.Daemon, certificate: pathlib.Path) -> None:
    """The settings of the sandbox's agent."""
    place = settings.place(str(root))
    os.makedirs(os.path.dirname(place))
    settings.write(place, NODE, [daemon.url], str(daemon.data / "ca.crt"), str(certificate))
    with open(place, "a") as stream:
        stream.write('packages = "none"\nservices = "supervisor"\n')


def _usage(*pids: int) -> Callable[[], float]:
    """Processor time of processes and of their children that have ended."""

    def measure() -> float:
        total = 0
        for pid in pids:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))
        return total / os.sysconf("SC_CLK_TCK")

    return measure


class _Sides:
    """Ours and rsync, a copy of the image each."""

    def __init__(
        self,
        client: HeadClient,
        notices: asyncio.Queue[None],
        tree: pathlib.Path,
        root: pathlib.Path,
        copy: pathlib.Path,
        usage: Callable[[], float],
    ) -> None:
        self._client = client
        self._notices = notices
        self._tree, self._root, self._copy = tree, root, copy
        self._usage = usage

    async def turn(self, text: str, *, is_first: bool) -> tuple[float, float, float, float]:
        """Change the file, bring both copies up to date (ours as the first or the second), and look whether they are:
        seconds of ours and of rsync, processor time of both."""
        file = "usr/share/bench/changed"
        (self._tree / file).write_text(text)
        measured: dict[bool, tuple[float, float]] = {}
        for is_own in (is_first, not is_first):
            measured[is_own] = await (self._ours() if is_own else asyncio.to_thread(self._theirs))
        for side in (self._root, self._copy):
            if (side / file).read_text() != text:
                raise errors.Terminal(f"{side / file} is not what the image has")
        return measured[True][0], measured[False][0], measured[True][1], measured[False][1]

    async def _ours(self) -> tuple[float, float]:
        before, begin = self._usage(), time.monotonic()
        (asked,) = await self._client.ask_errand([NODE], "imageupdate", transfer=Transfer(write=True))
        async with asyncio.timeout(DEADLINE_S):
            while (errand := await self._errand(asked.id)).state in ("waiting", "accepted"):
                await self._notices.get()
        if errand.state != "done":
            raise errors.Unavailable(f"the image update failed: {errand.state}: {errand.text}")
        return time.monotonic() - begin, self._usage() - before

    async def _errand(self, id_: str) -> ErrandState:
        return next(errand for errand in await self._client.errands([NODE]) if errand.id == id_)

    def _theirs(self) -> tuple[float, float]:
        before, begin = _children_s(), time.monotonic()
        command = ["rsync", *_options(), images.NANOSECONDS, "--delete-delay", f"{self._tree}/", f"{self._copy}/"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        if done.returncode:
            raise errors.Unavailable(f"rsync failed: {done.stderr[-300:]}")
        return time.monotonic() - begin, _children_s() - before


@contextlib.asynccontextmanager
async def _listening(client: HeadClient) -> AsyncIterator[asyncio.Queue[None]]:
    """Something for each notice of the head: who waits for the end of an errand need not ask again and again."""
    notices, is_up = asyncio.Queue[None](), asyncio.Event()

    async def follow() -> None:
        async for _ in client.events(types=["notice"], on_link=lambda up, words: is_up.set()):
            notices.put_nowait(None)

    task = asyncio.create_task(follow())
    try:
        await is_up.wait()
        yield notices
    finally:
        task.cancel()
        await asyncio.wait([task])


def _options() -> tuple[str, ...]:
    """Those of the agent: it is what this process is, root or not."""
    return _PLAIN if os.geteuid() == 0 else _SANDBOX


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
