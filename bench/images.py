"""What an image update costs beside plain rsync: one changed file in a large tree.

A head, the agent of a sandbox as a process, and a copy of the image for each side. In turns, the file is changed in the
image, and both copies are brought up to date: ours by `imageupdate` as people ask for it, from the request until the
head knows that it is done (rsync at both ends, over the agent's connection with TLS); the other by `rsync` on the same
disk with nothing between. The median of the turns counts, and processor time beside it, for that of a busy machine
tells more. The agent of a sandbox sets no owners and attributes: rsync is measured with these options, as one uses it
for a tree (`-aHAX`), and with those of the sandbox.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bedplate.agent import settings
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
_LOOK_S = 0.005
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
            pids = [child.pid for child in children]
            tell("the first copy of each side")
            first, first_peer, *_ = await _turn(client, tree, root, copy, "first", _usage(daemon.pid))
            turns = []
            for number in range(sizes.changes):
                tell(f"one changed file, turn {number + 1} of {sizes.changes}")
                turns.append(await _turn(client, tree, root, copy, f"change {number}", _usage(daemon.pid, *pids)))
    own_s, peer_s, same_s, own_cpu_s, peer_cpu_s = (
        sorted(column)[len(turns) // 2] for column in zip(*turns, strict=True)
    )
    topic.rows += [
        report.Row("one changed file", own_s, peer_s, "s", goal=_goal(is_quick), is_less_better=True),
        report.Row("one changed file, rsync without owners and attributes", own_s, same_s, "s", is_less_better=True),
        report.Row("processor time for one changed file, all processes", own_cpu_s, peer_cpu_s, "s",
                   is_less_better=True),
        report.Row("the first copy", first, first_peer, "s", is_less_better=True),
    ]  # fmt: skip
    topic.notes.append(
        "ours counts from the request until the head knows that it is done, with the options of a sandbox"
        f" ({' '.join(_SANDBOX)}); rsync: {' '.join(_PLAIN)}, same disk; medians of {sizes.changes} turns, load"
        f" {os.getloadavg()[0]:.1f}"
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


async def _turn(
    client: HeadClient,
    tree: pathlib.Path,
    root: pathlib.Path,
    copy: pathlib.Path,
    text: str,
    usage: Callable[[], float],
) -> tuple[float, float, float, float, float]:
    """Change the file, bring both copies up to date, and look whether they are: seconds of ours, of rsync, and of rsync
    with our options; processor time of the first two."""
    file = "usr/share/bench/changed"
    (tree / file).write_text(text)
    before, begin = usage(), time.monotonic()
    await _update(client)
    own_s, own_cpu_s = time.monotonic() - begin, usage() - before
    before = _children_s()
    peer_s = await asyncio.to_thread(_rsync, tree, copy, _PLAIN)
    peer_cpu_s = _children_s() - before
    for side in (root, copy):
        if (side / file).read_text() != text:
            raise errors.Terminal(f"{side / file} is not what the image has")
    (copy / file).write_text("to be changed once more")
    same_s = await asyncio.to_thread(_rsync, tree, copy, _SANDBOX)
    return own_s, peer_s, same_s, own_cpu_s, peer_cpu_s


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def _update(client: HeadClient) -> None:
    (asked,) = await client.ask_errand([NODE], "imageupdate", transfer=Transfer(write=True))
    deadline = time.monotonic() + DEADLINE_S
    while (errand := await _errand(client, asked.id)).state in ("waiting", "accepted"):
        if time.monotonic() > deadline:
            raise errors.Unavailable(f"the image update is not over: {errand.text}")
        await asyncio.sleep(_LOOK_S)
    if errand.state != "done":
        raise errors.Unavailable(f"the image update failed: {errand.state}: {errand.text}")


async def _errand(client: HeadClient, id_: str) -> ErrandState:
    return next(errand for errand in await client.errands([NODE]) if errand.id == id_)


def _rsync(tree: pathlib.Path, copy: pathlib.Path, options: Sequence[str]) -> float:
    command = ["rsync", *options, "--delete-delay", f"{tree}/", f"{copy}/"]
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if done.returncode:
        raise errors.Unavailable(f"rsync failed: {done.stderr[-300:]}")
    return time.monotonic() - begin
