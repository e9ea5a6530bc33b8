"""What the head costs: 1,000 and 10,000 nodes in 20 categories with 20 overlays.

There is no peer to compare with: the original is commercial and not available. So the figures at 1,000 nodes have
limits, and those at 10,000 stand beside those at 1,000, where ten times the nodes may cost at most ten times as much. A
running shell is a `Shell` over a daemon in a process of its own; times are those a user waits. Resolution is asked of
the tree directly, and so is a commit of every node; a start is the opening of a folder with many revisions. Cold: the
processor time of one `cmsh -c` as a process, without a daemon. A shell keeps what it made of its last list: the first
list is without that, the one after an edit with most of it. Events: clients of the event stream while commits are
made over REST by several writers; time runs until the last one has the last revision.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace

from bedplate.api import headapi
from bedplate.client import HeadClient
from bedplate.core import errors, logging, memory
from bedplate.head.entities import SCHEMA
from bedplate.head.folder import datafolder
from bedplate.head.policy import Identity
from bedplate.head.resolve import resolve
from bedplate.sim.agents import Devices
from bedplate.ui.cmsh.shell import Shell
from bedplate.ui.remote import RemoteBackend
from bench import headload, report, servers

__all__ = ["run"]

WRITERS = 8
# What takes a millisecond is asked more often.
MANY_TURNS = 10
LIMIT_MS = 300.0
COLD_LIMIT_MS = 350.0
LIMITS_MS = {"commit of all nodes": 300.0, "plan of a role on all nodes": 1000.0, "start with many revisions": 1000.0}
"""What the larger site may take, whatever the smaller one does."""
# What may grow with the nodes, and what must not; both with a share for caches and noise.
LINEAR, NONE = 0.08, 0.67
TENFOLD = 0.1
_LISTS = ("device list", "cold cmsh -c, device list, processor time", "edit of one node and device list")
"""What people wait for: a command, and a list in a shell that has shown it; ten times the nodes, ten times at most."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    few: int = 1000
    many: int = 10_000
    turns: int = 15
    cold: int = 5
    readers: int = 100
    commits: int = 1000
    idle_s: float = 20.0
    revisions: int = 5000


QUICK = Sizes(few=20, many=60, turns=2, cold=1, readers=4, commits=12, idle_s=0.5, revisions=10)


@dataclass(slots=True)
class Found:
    """Figures of one size, in seconds, by name."""

    nodes: int
    seconds: dict[str, float] = field(default_factory=dict)
    rss_mb: float = 0.0
    idle_cpu_share: float = 0.0


async def run(folder: pathlib.Path, *, is_quick: bool, tell: Callable[[str], None]) -> report.Topic:
    logging.configure(logging.LogOptions(is_quiet=True))
    sizes = QUICK if is_quick else Sizes()
    figures = [await _measure(folder / f"head-{count}", count, sizes, tell) for count in (sizes.few, sizes.many)]
    topic = report.Topic("head", f"{sizes.few:,} and {sizes.many:,} nodes with 20 overlays", f"{sizes.few:,} nodes")
    _rows(topic, *figures)
    await _events(topic, folder / f"head-{sizes.few}", sizes, tell)
    topic.notes.append("the original is commercial and not available; the second column is ours at the smaller size")
    return topic


async def _measure(data: pathlib.Path, count: int, sizes: Sizes, tell: Callable[[str], None]) -> Found:
    figures = Found(count)
    tell(f"{count:,} nodes: filling a data folder")
    await headload.fill(data, count)
    tell(f"{count:,} nodes: {sizes.revisions:,} revisions, a commit of all nodes, a start")
    await _folder_figures(data, figures, sizes)
    tell(f"{count:,} nodes: cold cmsh -c, {sizes.cold} times")
    for name, line in (("device list", "device list"), ("show", f"device use {headload.node(3)}; show")):
        cpu = [await asyncio.to_thread(headload.cold_cpu_s, data, line) for _ in range(sizes.cold)]
        figures.seconds[f"cold cmsh -c, {name}, processor time"] = statistics.median(cpu)
    async with headload.serving(data) as daemon:
        tell(f"{count:,} nodes: a running shell, {sizes.turns} turns")
        async with _shell(daemon) as seat:
            await _shell_figures(seat, figures, sizes.turns)
        async with daemon.client() as client:
            await _rest_figures(client, figures, sizes.turns)
            tell(f"{count:,} nodes: as many simulated devices, idle for {sizes.idle_s:.0f} s")
            await _devices(client, daemon, figures, sizes)
        figures.rss_mb = servers.rss_mb(daemon.pid)
    return figures


async def _folder_figures(data: pathlib.Path, figures: Found, sizes: Sizes) -> None:
    """What a head in this process takes, over its own store."""
    author = Identity.local("bench")
    async with datafolder.open_head(data) as opened:
        head = opened.head
        memory.keep()

        async def commit(turn: int, keys: Iterable[str]) -> None:
            session = head.session()
            for key in keys:
                session.set(("device", key), "notes", f"{turn} of {len(head.tree.mode('device'))}")
            edits = session.edits()
            begin = time.perf_counter()
            await head.commit_as(author, edits)
            taken.append(time.perf_counter() - begin)

        taken: list[float] = []
        for turn in range(head.revision, sizes.revisions):
            await commit(turn, [headload.node(turn % figures.nodes)])
        taken.clear()
        for turn in range(min(sizes.turns, 5)):
            await commit(turn, map(headload.node, range(figures.nodes)))
        figures.seconds["commit of all nodes"] = statistics.median(taken)

    async def start(turn: int) -> None:
        async with datafolder.open_head(data):
            pass

    figures.seconds["start with many revisions"] = await _timed(min(sizes.turns, 5), start)


@dataclass(slots=True)
class Seat:
    """An interactive shell."""

    shell: Shell
    backend: RemoteBackend
    said: list[str]

    async def type(self, line: str) -> None:
        self.said.clear()
        code = await self.shell.run_line(line)
        # 3: there is something to do, which is what `plan` was asked for.
        if code not in (0, 3):
            raise errors.Terminal(f"{line!r} ended with {code}: {''.join(self.said)[-500:]}")


@contextlib.asynccontextmanager
async def _shell(daemon: headload.Daemon) -> AsyncIterator[Seat]:
    lines: list[str] = []
    async with daemon.client() as client, RemoteBackend(client, SCHEMA) as backend:
        memory.keep()  # as cmsh does
        yield Seat(Shell(backend, lines.append, lines.append), backend, lines)


async def _timed(turns: int, work: Callable[[int], Awaitable[object]]) -> float:
    taken = []
    for turn in range(turns):
        begin = time.perf_counter()
        await work(turn)
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


async def _shell_figures(seat: Seat, figures: Found, turns: int) -> None:
    seconds, tree = figures.seconds, seat.backend.tree

    async def resolve_one(turn: int) -> None:
        resolve(tree, headload.node(turn % figures.nodes))

    async def resolve_all(turn: int) -> None:
        for name in tree.mode("device"):
            resolve(tree, name)

    async def commit(turn: int) -> None:
        await seat.type(f"device use {headload.node(turn % figures.nodes)}; set notes turn-{turn}; commit")

    async def plan(turn: int) -> None:
        await seat.type("plan")

    async def explain(turn: int) -> None:
        await seat.type(f"device; explain {headload.node(turn % figures.nodes)}")

    async def listing(turn: int) -> None:
        await seat.type("device; list")

    async def first_listing(turn: int) -> None:
        seat.shell.desk.listed = {}
        await seat.type("device; list")

    async def edited_listing(turn: int) -> None:
        await seat.type(f"device; set {headload.node(turn % figures.nodes)} notes listed-{turn}; list")

    seconds["first device list"] = await _timed(turns, first_listing)
    seconds["device list"] = await _timed(turns, listing)
    seconds["edit of one node and device list"] = await _timed(turns, edited_listing)
    await seat.type("refresh")
    seconds["resolution of one node"] = await _timed(MANY_TURNS * turns, resolve_one)
    seconds["resolution of all nodes"] = await _timed(min(turns, 5), resolve_all)
    seconds["explain of one node"] = await _timed(MANY_TURNS * turns, explain)
    seconds["set and commit of one node"] = await _timed(turns, commit)
    role = "configurationoverlay; use few; roles; use firewall; openports; add ACCEPT net 8443 tcp fw"
    await seat.type(role)
    seconds["plan of a role on 5 nodes"] = await _timed(MANY_TURNS * turns, plan)
    await seat.type("refresh")
    await seat.type("configurationoverlay; use o3; roles; use kubelet; set maxpods 99")
    seconds["plan of a role on a twentieth of the nodes"] = await _timed(min(turns, 5), plan)
    await seat.type("refresh")
    await seat.type("configurationoverlay; foreach o[1-19] (roles; use kubelet; set maxpods 98)")
    seconds["plan of a role on all nodes"] = await _timed(min(turns, 5), plan)
    await seat.type("revert")


async def _rest_figures(client: HeadClient, figures: Found, turns: int) -> None:
    async def listing(turn: int) -> None:
        items = await client.list("device", page=5000)
        assert len(items) == figures.nodes + 1

    figures.seconds["REST list of all nodes"] = await _timed(min(turns, 7), listing)


async def _devices(client: HeadClient, daemon: headload.Daemon, figures: Found, sizes: Sizes) -> None:
    """Simulated devices of all nodes: until each holds its state, then what nothing costs the daemon."""
    devices = Devices(client)
    begin = time.perf_counter()
    running = asyncio.create_task(devices.run())
    try:
        ready = asyncio.create_task(devices.ready.wait())
        await asyncio.wait({ready, running}, return_when=asyncio.FIRST_COMPLETED)
        figures.seconds["all simulated devices hold their state"] = time.perf_counter() - begin
        before = servers.cpu_s(daemon.pid)
        await asyncio.sleep(sizes.idle_s)
        figures.idle_cpu_share = 100 * (servers.cpu_s(daemon.pid) - before) / sizes.idle_s
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _rows(topic: report.Topic, few: Found, many: Found) -> None:
    for name, seconds in few.seconds.items():
        limit = COLD_LIMIT_MS if name.startswith("cold") else LIMITS_MS.get(name, LIMIT_MS)
        limit = limit if name != _UNLIMITED else None
        topic.rows.append(report.Row(name, 1000 * seconds, None, "ms", limit=limit, is_less_better=True))
    for name, seconds in many.seconds.items():
        goal = NONE if name in _INDEPENDENT else 0.0 if name == _UNLIMITED else TENFOLD if name in _LISTS else LINEAR
        mine, other = 1000 * seconds, 1000 * few.seconds[name]
        row = report.Row(f"{name}, {many.nodes:,}", mine, other, "ms", goal=goal, is_less_better=True)
        topic.rows.append(replace(row, limit=LIMITS_MS.get(name)))
    topic.rows.append(
        report.Row("memory of the daemon", many.rss_mb, few.rss_mb, "MB", goal=LINEAR, is_less_better=True)
    )
    name = "processor share of the daemon, devices idle"
    topic.rows.append(report.Row(name, many.idle_cpu_share, few.idle_cpu_share, "%", is_less_better=True))


_UNLIMITED = "all simulated devices hold their state"
_INDEPENDENT = {"plan of a role on 5 nodes", "resolution of one node", "explain of one node"}


async def _events(topic: report.Topic, data: pathlib.Path, sizes: Sizes, tell: Callable[[str], None]) -> None:
    tell(f"{sizes.commits:,} commits with {sizes.readers} event streams")
    async with headload.serving(data) as daemon, daemon.client() as client:
        alone_s = await _commits(client, sizes.commits, "alone")
        async with headload.readers(daemon, sizes.readers, sizes.commits) as delivered_all:
            before = servers.cpu_s(daemon.pid)
            begin = time.perf_counter()
            with_s = await _commits(client, sizes.commits, "watched")
            await delivered_all()
            all_s = time.perf_counter() - begin
            cpu_s = servers.cpu_s(daemon.pid) - before
    watched, alone = sizes.commits / with_s, sizes.commits / alone_s
    name = f"commits over REST, {sizes.readers} event streams, beside none"
    topic.rows.append(report.Row(name, watched, alone, "per s"))
    delivered = sizes.commits * sizes.readers
    topic.rows.append(report.Row(f"{delivered:,} events delivered", delivered / all_s, None, "per s"))
    topic.rows.append(report.Row("last event after the last commit", all_s - with_s, None, "s", is_less_better=True))
    topic.rows.append(report.Row("processor time of the daemon for them", cpu_s, None, "s", is_less_better=True))


async def _commits(client: HeadClient, count: int, word: str) -> float:
    """That many commits, each of one node, by several writers; the seconds they took."""
    keys = [headload.node(number) for number in range(20)]
    devices = {key: await client.get("device", key) for key in keys}
    numbers = iter(range(count))

    async def write() -> None:
        for number in numbers:
            device = devices[keys[number % len(keys)]]
            body = {"type": device.type, "values": {**device.values, "notes": f"{word}-{number}"}}
            edit = headapi.Edit(mode="device", key=device.key, base=device.revision, object=body)
            await client.commit([edit], force=True)

    begin = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(WRITERS):
            tasks.create_task(write())
    return time.perf_counter() - begin
