"""What addresses cost: our node daemon, plugin and controller against the original's and against host-local.

Every store lies on the disk that is measured and every acknowledged change is synced to it (host-local does not sync).
Each contender is called through its own CNI plugin, as a container runtime calls it: a process a call. They take turns,
step by step, in stores of their own, and every address that was given is checked to be given once.

Start: from the start of the daemon's process until an ADD succeeds, with nothing and with 8,000 addresses held. Single:
ADDs one after the other, then DELs. Burst: 128 pods with 16 interfaces come at once, 32 calls at a time, on a
node that holds nothing, 4,000 and 8,000 addresses of other pods. Reboot: a store with reservations of pods that are
gone; ADDs and DELs come at a fixed pace for the first 90 seconds after the daemon listens. Joins: see `ipamjoins`;
`bedplate ipam` in a large cluster: see `ipampods`.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bedplate.core import errors
from bedplate.kube import client as clients
from bedplate.kube import config
from bench import ipamjoins, ipamload, ipamnodes, ipampods, report, servers

__all__ = ["run"]

AT_ONCE = 32
REBOOT_AT_ONCE = 64
REBOOT_PER_S = 10.0
REBOOT_STAY_S = 2.0
START_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    turns: int = 5
    singles: int = 100
    pods: int = 128
    prior: tuple[int, ...] = (0, 4000, 8000)
    bursts: int = 3
    stale: int = 1000
    reboot_s: float = 90.0
    joins: tuple[int, int] = (5000, 200)
    listed: int = 100_000
    lists: int = 3

    @property
    def all_pods(self) -> int:
        return self.pods + -(-max(self.prior) // ipamnodes.INTERFACES)


QUICK = Sizes(1, 10, 4, (0, 32, 64), 1, 20, 2.0, (30, 5), 600, 1)


@dataclass(slots=True)
class Found:
    """What one contender did."""

    add: list[float] = field(default_factory=list)
    dele: list[float] = field(default_factory=list)
    plugin_cpu: list[float] = field(default_factory=list)
    bursts: dict[int, list[float]] = field(default_factory=dict)
    burst_p99: dict[int, list[float]] = field(default_factory=dict)
    burst_cpu: dict[int, list[float]] = field(default_factory=dict)
    failed: dict[int, int] = field(default_factory=dict)
    rss_mb: float = 0.0
    starts: dict[int, list[float]] = field(default_factory=dict)
    start_cpu: dict[int, list[float]] = field(default_factory=dict)
    reboot_cpu: float = 0.0
    reboot_calls: int = 0
    reboot_failed: int = 0
    reboot_worst: float = 0.0


@dataclass(slots=True)
class Bench:
    """One run."""

    folder: pathlib.Path
    world: ipamnodes.World
    sizes: Sizes
    tell: Callable[[str], None]
    found: dict[str, Found] = field(default_factory=dict)

    async def start(self, contender: ipamnodes.Contender, prior: int, turn: int) -> None:
        """From the start of the daemon to its first ADD. The first turn only fills caches, of files and bytecode."""
        folder, held = self.folder / f"start-{contender.name}", self.world.prior(prior, self.sizes.pods)
        async with contender.running(self.world, folder, held, is_patient=False) as node:
            end = node.started_s + START_DEADLINE_S
            while not (await node.drive([self.world.call("ADD", 0, 0, salt="start")], 1))[0].is_ok:
                if time.perf_counter() > end:
                    raise errors.Unavailable(f"{contender.name} gives no address after its start")
                await asyncio.sleep(0.01)
            seconds, figures = time.perf_counter() - node.started_s, self.found[contender.name]
            if turn and node.usage:
                figures.starts.setdefault(prior, []).append(seconds)
                figures.start_cpu.setdefault(prior, []).append(node.usage.cpu_s())

    async def single(self, all_of: Sequence[ipamnodes.Contender]) -> None:
        """ADDs and DELs one by one; all daemons run, the others idle."""
        async with contextlib.AsyncExitStack() as stack:
            nodes = [
                await stack.enter_async_context(
                    contender.running(self.world, self.folder / f"single-{contender.name}", ())
                )
                for contender in all_of
            ]
            for turn in range(self.sizes.turns):
                for node in nodes:
                    self.tell(f"{node.name}: {self.sizes.singles} single ADDs and DELs, turn {turn + 1}")
                    await self._single(node, turn)

    async def _single(self, node: ipamnodes.Node, turn: int) -> None:
        figures = self.found[node.name]
        pods = range(self.sizes.singles)
        for command, times in (("ADD", figures.add), ("DEL", figures.dele)):
            calls = [self.world.call(command, pod % self.sizes.pods, 0, salt=f"{turn}-{pod}") for pod in pods]
            outcomes = await node.drive(calls, 1)
            _all_ok(node, outcomes)
            times += [1000 * outcome.wall_s for outcome in outcomes]
            figures.plugin_cpu += [1000 * outcome.cpu_s for outcome in outcomes]

    async def burst(self, contender: ipamnodes.Contender, prior: int, turn: int) -> None:
        self.tell(
            f"{contender.name}: {self.sizes.pods} pods x {ipamnodes.INTERFACES} with {prior:,} held, turn {turn + 1}"
        )
        prior_addresses = self.world.prior(prior, self.sizes.pods)
        calls = [
            self.world.call("ADD", pod, interface, salt="burst")
            for pod in range(self.sizes.pods)
            for interface in range(ipamnodes.INTERFACES)
        ]
        figures = self.found[contender.name]
        async with contender.running(self.world, self.folder / f"burst-{contender.name}", prior_addresses) as node:
            cpu = node.usage.cpu_s() if node.usage else 0.0
            outcomes = await node.drive(calls, AT_ONCE)
            _no_twins(node, outcomes, {each.address for each in prior_addresses})
            # A failed call counts as time, not as a call.
            good = [each for each in outcomes if each.is_ok]
            figures.failed[prior] = figures.failed.get(prior, 0) + len(outcomes) - len(good)
            speed = ipamload.rate(outcomes) * len(good) / len(outcomes)
            figures.bursts.setdefault(prior, []).append(speed)
            waits = [1000 * each.wall_s for each in outcomes]
            figures.burst_p99.setdefault(prior, []).append(ipamload.percentile(waits, 0.99))
            if node.usage:
                used = 1000 * (node.usage.cpu_s() - cpu) / len(outcomes)
                figures.burst_cpu.setdefault(prior, []).append(used)
                figures.rss_mb = max(figures.rss_mb, node.usage.rss_mb())

    async def reboot(self, contender: ipamnodes.Contender) -> None:
        sizes = self.sizes
        self.tell(f"{contender.name}: the first {sizes.reboot_s:.0f} s with {sizes.stale:,} stale reservations")
        calls = []
        for number in range(int(sizes.reboot_s * REBOOT_PER_S)):
            at_s = number / REBOOT_PER_S
            pod, salt = number % sizes.pods, f"reboot-{number}"
            calls.append(self.world.call("ADD", pod, 0, salt=salt, at_s=at_s))
            if at_s + REBOOT_STAY_S < sizes.reboot_s:
                calls.append(self.world.call("DEL", pod, 0, salt=salt, at_s=at_s + REBOOT_STAY_S))
        calls.sort(key=lambda call: call.at_s)
        folder = self.folder / f"reboot-{contender.name}"
        async with contender.running(self.world, folder, ipamnodes.stale(sizes.stale), is_patient=False) as node:
            outcomes = await node.drive(calls, REBOOT_AT_ONCE)
            figures = self.found[contender.name]
            figures.reboot_cpu = node.usage.cpu_s() if node.usage else 0.0
        figures.reboot_calls = len(outcomes)
        figures.reboot_failed = sum(not each.is_ok for each in outcomes)
        figures.reboot_worst = 1000 * max(each.wall_s for each in outcomes)


def _all_ok(node: ipamnodes.Node, outcomes: Sequence[ipamload.Outcome]) -> None:
    for each in outcomes:
        if not each.is_ok:
            raise errors.Terminal(f"{node.name}: {each.call.command} failed: {each.printed}")


def _no_twins(node: ipamnodes.Node, outcomes: Sequence[ipamload.Outcome], prior: set[str]) -> None:
    given = [address for each in outcomes if each.is_ok for address in each.addresses()]
    if len(set(given)) != len(given) or prior & set(given):
        raise errors.Terminal(f"{node.name} gave an address twice")


async def run(folder: pathlib.Path, *, is_quick: bool, tell: Callable[[str], None]) -> report.Topic:
    sizes = QUICK if is_quick else Sizes()
    all_of = ipamnodes.contenders(tell)
    joined: dict[str, ipamjoins.Joined] = {}
    async with servers.real(folder / "real", tell) as running:
        loaded = config.load(kubeconfig=running.kubeconfig).with_rate(-1, 1)
        async with clients.Client(loaded) as client:
            world = ipamnodes.World(running.kubeconfig, client)
            await world.prepare(sizes.all_pods)
            bench = Bench(folder, world, sizes, tell, {contender.name: Found() for contender in all_of})
            for prior in (sizes.prior[0], sizes.prior[-1]):
                tell(f"{sizes.turns} starts of each daemon with {prior:,} held")
                for turn in range(sizes.turns + 1):
                    for contender in all_of:
                        if contender.daemon:
                            await bench.start(contender, prior, turn)
            await bench.single(all_of)
            for turn in range(sizes.bursts):
                for prior in sizes.prior:
                    for contender in all_of:
                        if turn < _turns(contender, prior, sizes):
                            await bench.burst(contender, prior, turn)
            for contender in all_of:
                if contender.daemon:
                    await bench.reboot(contender)
            for controller in ipamjoins.controllers():
                tell(f"{controller.name}: {sizes.joins[0]:,} nodes join, {sizes.joins[1]} late, {sizes.joins[1]} beats")
                joined[controller.name] = await ipamjoins.join(controller, world, folder, sizes.joins, 0)
    tell(f"bedplate ipam pools reads {sizes.listed:,} pods, {sizes.lists} times")
    lists = [await ipampods.read(folder, sizes.listed) for _ in range(sizes.lists)]
    topic = _topic(bench, joined)
    _list_rows(topic, lists, sizes)
    return topic


def _turns(contender: ipamnodes.Contender, prior: int, sizes: Sizes) -> int:
    """How often a burst is measured. Where peers need minutes they are measured once, or not at all."""
    if contender.name == "original" and prior:
        return 1
    if contender.name == "host-local":
        # It reads every reservation at every call: a burst on an empty node takes it two minutes.
        return 0 if prior else 1
    return sizes.bursts


def _topic(bench: Bench, joined: dict[str, ipamjoins.Joined]) -> report.Topic:
    sizes = bench.sizes
    topic = report.Topic("ipam", "addresses through CNI plugins, and pools' blocks through a real API server", "peer")
    for peer in ("original", "host-local"):
        if peer in bench.found:
            _node_rows(topic, peer, bench.found["ours"], bench.found[peer], sizes)
    if "original" in bench.found:
        _start_rows(topic, bench.found["ours"], bench.found["original"])
        _reboot_rows(topic, bench.found["ours"], bench.found["original"])
    else:
        _reboot_rows(topic, bench.found["ours"], None)
        topic.notes.append("the original was not found in the folder that BEDPLATE_PEERS names: host-local alone")
    _join_rows(topic, joined["ours"], joined.get("original"), sizes)
    for name, figures in bench.found.items():
        for prior, failed in figures.failed.items():
            if failed:
                topic.notes.append(f"{name}: {failed} calls of the bursts with {prior:,} held failed")
        if figures.burst_cpu:
            costs = ", ".join(
                f"{prior:,} held {statistics.median(cpu):.2f}" for prior, cpu in figures.burst_cpu.items()
            )
            topic.notes.append(f"{name}: processor ms of the daemon per call of the burst: {costs}")
        plugin = statistics.median(figures.plugin_cpu)
        topic.notes.append(f"{name}: processor ms of the plugin per single call: {plugin:.2f}")
    return topic


# The least ratio wanted: at most 0.33 and 0.5 of the original's times, not slower than host-local.
_SINGLE_GOALS = {
    ("original", "ADD", 0.5): 1 / 0.33,
    ("original", "ADD", 0.99): 1 / 0.5,
    ("host-local", "ADD", 0.5): 1.0,
}
_BURST_GOALS = {"original": (6.0, 20.0, 20.0), "host-local": (2.0,)}


def _node_rows(topic: report.Topic, peer: str, mine: Found, other: Found, sizes: Sizes) -> None:
    def less(name: str, ours: float, theirs: float, unit: str, goal: float = 0.0) -> None:
        topic.rows.append(report.Row(f"{peer}: {name}", ours, theirs, unit, goal=goal, is_less_better=True))

    singles = (("ADD", mine.add, other.add), ("DEL", mine.dele, other.dele))
    for name, ours, theirs in singles:
        for what, share in (("middle", 0.5), ("99th percentile", 0.99)):
            goal = _SINGLE_GOALS.get((peer, name, share), 0.0)
            less(f"{name}, {what}", ipamload.percentile(ours, share), ipamload.percentile(theirs, share), "ms", goal)
    for prior, goal in zip(sizes.prior, _BURST_GOALS[peer], strict=False):
        fast, slow = (statistics.median(figures.bursts[prior]) for figures in (mine, other))
        topic.rows.append(report.Row(f"{peer}: burst, {prior:,} held", fast, slow, "per s", goal=goal))
        short, long = (statistics.median(figures.burst_p99[prior]) for figures in (mine, other))
        less(f"burst, {prior:,} held, 99th percentile", short, long, "ms")
    if peer == "original":
        much, more = (statistics.median(mine.bursts[prior]) for prior in sizes.prior[1:])
        name = f"burst, {sizes.prior[2]:,} held, beside ours at {sizes.prior[1]:,}"
        topic.rows.append(report.Row(name, more, much, "per s", goal=0.9))
        less("memory of the daemon after the bursts", mine.rss_mb, other.rss_mb, "MB", 1 / 1.2)


def _start_rows(topic: report.Topic, mine: Found, other: Found) -> None:
    for prior, times in mine.starts.items():
        ours, theirs = statistics.median(times), statistics.median(other.starts[prior])
        name = f"start to the first ADD, {prior:,} held"
        topic.rows.append(report.Row(name, ours, theirs, "s", goal=1.0, is_less_better=True))
        used = (statistics.median(figures.start_cpu[prior]) for figures in (mine, other))
        topic.rows.append(report.Row(f"{name}: processor time", *used, "s", is_less_better=True))


def _reboot_rows(topic: report.Topic, mine: Found, other: Found | None) -> None:
    def row(name: str, ours: float, theirs: float | None, unit: str, limit: float) -> None:
        topic.rows.append(report.Row(f"after a reboot: {name}", ours, theirs, unit, limit=limit, is_less_better=True))

    row("failed calls", mine.reboot_failed, other.reboot_failed if other else None, "calls", 0)
    row("worst call", mine.reboot_worst, other.reboot_worst if other else None, "ms", 100)
    if other is not None:
        used = (mine.reboot_cpu, other.reboot_cpu)
        name = "after a reboot: processor time of the daemon"
        topic.rows.append(report.Row(name, *used, "s", goal=1 / 0.3, is_less_better=True))
    topic.notes.append(f"calls after a reboot: {mine.reboot_calls:,} each")


def _list_rows(topic: report.Topic, lists: Sequence[ipampods.Read], sizes: Sizes) -> None:
    for name, times in (("processor time", [each.cpu_s for each in lists]), ("time", [each.seconds for each in lists])):
        text = f"ipam pools of {sizes.listed:,} pods: {name}"
        topic.rows.append(report.Row(text, statistics.median(times), None, "s", limit=3.0, is_less_better=True))
    topic.notes.append(f"{sizes.listed:,} pods are {lists[0].megabytes:,.0f} MB")


def _join_rows(topic: report.Topic, mine: ipamjoins.Joined, other: ipamjoins.Joined | None, sizes: Sizes) -> None:
    many, few = sizes.joins

    def row(name: str, of: Callable[[ipamjoins.Joined], float], unit: str, goal: float, limit: float | None) -> None:
        theirs = of(other) if other else None
        topic.rows.append(report.Row(name, of(mine), theirs, unit, goal=goal, limit=limit, is_less_better=True))

    row(f"{many:,} nodes join: last node to full status", lambda joined: joined.seconds, "s", 1.0, None)
    row(f"{many:,} nodes join: status writes", lambda joined: joined.writes, "writes", 0.0, 20)
    row(f"{many:,} nodes join: to one watcher", lambda joined: joined.megabytes, "MB", 0.0, None)
    row(f"{many:,} nodes join: processor time", lambda joined: joined.cpu_s, "s", 0.0, None)
    row(f"{few} late joins: processor time", lambda joined: joined.late_cpu_s, "s", 1 / 0.2, None)
    row(f"{few} late joins: status writes", lambda joined: joined.late_writes, "writes", 0.0, None)
    row(f"{few} heartbeats: processor time", lambda joined: joined.beat_cpu_s, "s", 1 / 0.05, None)
    row("memory of the controller, peak", lambda joined: joined.peak_mb, "MB", 0.0, None)
