"""What a cloud controller manager costs: ours against Go managers, on one real API server and one simulated Oxide API.

Joining: the manager runs and is idle, then the nodes are created with the uninitialised taint; time runs from the first
create until the last node is free of it and has its addresses. Counted on the way: calls at the simulated cloud, writes
at the API server (its own metrics), the manager's processor time and peak memory, and the processor time of the API
server with etcd and of all processes until then. The fast settings have three turns, every second one in the opposite
order, and the turn of the median time counts. Steady: the manager is started on initialised nodes;
after its first look at all of them (the first pass), nodes report their status as 5,000 kubelets would (each every 5
minutes) and the manager's processor time is read; the share of a core adds one refresh of all nodes every 5 minutes.
Strained: nodes join while the cloud refuses or is slow; counted are its calls until all nodes are initialised, for 40
seconds at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bedplate.api import core, names
from bedplate.api.resources import NODES
from bedplate.core import errors
from bedplate.kube import client as clients
from bedplate.kube import config
from bedplate.runtime.cache import Cache
from bedplate.runtime.reflector import Reflector
from bench import managers, report, servers, simulated

__all__ = ["run"]

JOIN_FULL, JOIN_QUICK = 1000, 20
STEADY_FULL, STEADY_QUICK = 5000, 20
REFRESH_S = 300.0
STEADY_WINDOW_S, QUICK_WINDOW_S = 60.0, 2.0
SETTLE_S = 4.0
QUIET_S = 5.0
DEADLINE_S = 900.0
TURNS = 3
FAST = "16 workers, 5,000 QPS"
STRAINED_FULL, STRAINED_QUICK = 200, 5
STRAIN_WINDOW_S, STRAIN_QUICK_S = 40.0, 2.0
CALM: dict[str, object] = {"latency_s": 0.0, "rate_limit": None}
TROUBLES: dict[str, dict[str, object]] = {
    "429 above 10 a second": {"rate_limit": [10.0, 30]},
    "a second per response": {"latency_s": 1.0},
}
WRITERS = 24
_WRITE_VERBS = ("POST", "PUT", "PATCH", "APPLY", "DELETE")
_METRIC = re.compile(r"^apiserver_request_total\{([^}]*)\} (\S+)", re.MULTILINE)


@dataclass(slots=True)
class Joined:
    """One manager's way from joining nodes to initialised ones."""

    seconds: float = 0.0
    calls: int = 0
    writes: int = 0
    event_writes: int = 0
    cpu_s: float = 0.0
    peak_mb: float = 0.0
    server_cpu_s: float = 0.0
    """Of the API server and etcd, until the last node was initialised."""
    all_cpu_s: float = 0.0
    """Of these, the manager, the simulated cloud and the benchmark itself."""


@dataclass(slots=True)
class Steady:
    """One manager beside initialised nodes."""

    first_pass_s: float = 0.0
    refresh_calls: int = 0
    refresh_cpu_s: float = 0.0
    idle_share: float = 0.0
    rss_mb: float = 0.0

    @property
    def core_percent(self) -> float:
        return 100 * (self.idle_share + self.refresh_cpu_s / REFRESH_S)


@dataclass(slots=True)
class Strained:
    """What one manager asked of a cloud in trouble while nodes joined, and how many of them got through."""

    calls: int = 0
    refused: int = 0
    nodes: int = 0


@dataclass(slots=True)
class Bench:
    """The world the managers share."""

    folder: pathlib.Path
    server: servers.Running
    client: clients.Client
    cloud: simulated.Cloud
    tell: Callable[[str], None]
    nodes: Cache[core.Node] = field(default_factory=Cache)

    async def writes(self) -> tuple[int, int]:
        """Writes the API server has seen so far, refused ones included: of nodes, and of events."""
        text = (await self.client.request("GET", "/metrics")).body.decode()
        nodes = events = 0
        for labels, count in _METRIC.findall(text):
            pairs = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            if pairs.get("verb") not in _WRITE_VERBS:
                continue
            # The API server itself writes too: leases, the addresses of its own Service.
            nodes += int(float(count)) if pairs.get("resource") == "nodes" else 0
            events += int(float(count)) if pairs.get("resource") == "events" else 0
        return nodes, events

    async def create(self, count: int) -> None:
        numbers = iter(range(count))

        async def write() -> None:
            for number in numbers:
                await self.client.create(NODES.raw(), node(number))

        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(write())

    async def clear(self) -> None:
        await self.client.request("DELETE", "/api/v1/nodes")
        await self.until(lambda: len(self.nodes) == 0, "the nodes to go")

    async def until(self, condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
        end = time.monotonic() + deadline_s
        while not condition():
            if time.monotonic() > end:
                raise errors.Unavailable(f"{what}: not reached within {deadline_s:.0f} s")
            await asyncio.sleep(0.02)

    async def until_asked(self) -> None:
        """Until the cloud is asked."""
        end = time.monotonic() + DEADLINE_S
        while await self.cloud.calls() == 0:
            if time.monotonic() > end:
                raise errors.Unavailable("the manager does not refresh its nodes")
            await asyncio.sleep(0.5)

    async def until_quiet(self) -> float:
        """Until the cloud has not been asked for a while; when it was asked last."""
        seen, at = await self.cloud.calls(), time.monotonic()
        while time.monotonic() < at + QUIET_S:
            await asyncio.sleep(0.2)
            now = await self.cloud.calls()
            if now != seen:
                seen, at = now, time.monotonic()
        return at

    def is_initialised(self, count: int) -> bool:
        """All nodes are there, without the taint and with the address that the cloud gives them."""
        return len(self.nodes) == count and all(
            all(taint.key != names.TAINT_UNINITIALIZED for taint in node.spec.taints)
            and any(address.type == "InternalIP" for address in node.status.addresses)
            for node in self.nodes
        )

    def cpu_s(self, manager: managers.Usage) -> tuple[float, float]:
        """Processor time used so far: by the API server with etcd, and by everything that takes part."""
        server_s = self.server.cpu_s()
        return server_s, server_s + manager.cpu_s() + servers.cpu_s(self.cloud.pid) + time.process_time()


def node(number: int) -> dict[str, Any]:
    """A node as an external-provider kubelet registers it."""
    name = simulated.name(number)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {names.LABEL_HOSTNAME: name}},
        "spec": {"taints": [{"key": names.TAINT_UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]},
        "status": {
            "addresses": [{"type": "Hostname", "address": name}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


async def join(bench: Bench, contender: managers.Contender, setting: str, count: int) -> Joined:
    bench.tell(f"{contender.name}: {count:,} nodes join, {setting}")
    slug = re.sub("[^a-z0-9]+", "-", setting.lower())
    log = bench.folder / f"{contender.name}-{slug}.log"
    with managers.running(contender.command(bench.server.kubeconfig, setting), bench.cloud.environ, log) as manager:
        await asyncio.sleep(SETTLE_S)
        await bench.cloud.reset()
        before, cpu, used = await bench.writes(), manager.cpu_s(), bench.cpu_s(manager)
        begin = time.perf_counter()
        await bench.create(count)
        await bench.until(lambda: bench.is_initialised(count), f"{contender.name} to initialise {count} nodes")
        joined = Joined(seconds=time.perf_counter() - begin)
        joined.server_cpu_s, joined.all_cpu_s = (
            now - then for now, then in zip(bench.cpu_s(manager), used, strict=True)
        )
        await bench.until_quiet()
        after = await bench.writes()
        joined.calls = await bench.cloud.calls()
        joined.writes, joined.event_writes = after[0] - before[0] - count, after[1] - before[1]
        joined.cpu_s, joined.peak_mb = manager.cpu_s() - cpu, manager.peak_mb()
    await bench.clear()
    return joined


async def join_in_turns(
    bench: Bench, contenders: list[managers.Contender], setting: str, count: int
) -> dict[tuple[str, str], Joined]:
    """The median turn of each contender. Every second turn is in the opposite order, so that nobody is always first."""
    turns: dict[str, list[Joined]] = {contender.name: [] for contender in contenders}
    for turn in range(1 if setting == managers.DEFAULTS else TURNS):
        for contender in contenders if turn % 2 == 0 else reversed(contenders):
            turns[contender.name].append(await join(bench, contender, setting, count))
    return {(name, setting): median(each) for name, each in turns.items()}


def median(turns: list[Joined]) -> Joined:
    """The turn in the middle, by its time."""
    return sorted(turns, key=lambda turn: turn.seconds)[len(turns) // 2]


async def stay(bench: Bench, contender: managers.Contender, count: int, window_s: float) -> Steady:
    """Processor time and memory beside nodes that another run of the same manager has initialised."""
    bench.tell(f"{contender.name}: {count:,} nodes, steady")
    log = bench.folder / f"{contender.name}-steady.log"
    await bench.create(count)
    with managers.running(contender.command(bench.server.kubeconfig, FAST), bench.cloud.environ, log):
        await bench.until(lambda: bench.is_initialised(count), f"{contender.name} to initialise {count} nodes")
        await bench.until_quiet()
    steady_state = Steady()
    period = f"--node-status-update-frequency={int(REFRESH_S / 5)}s"
    with managers.running(
        contender.command(bench.server.kubeconfig, FAST, period), bench.cloud.environ, log
    ) as manager:
        begin = time.monotonic()
        steady_state.first_pass_s = await bench.until_quiet() - begin
        # The second refresh is the usual one: the first has to learn everything.
        await bench.cloud.reset()
        before = manager.cpu_s()
        await bench.until_asked()
        await bench.until_quiet()
        steady_state.refresh_cpu_s, steady_state.refresh_calls = manager.cpu_s() - before, await bench.cloud.calls()
    with managers.running(contender.command(bench.server.kubeconfig, FAST), bench.cloud.environ, log) as manager:
        await bench.until_quiet()
        before, started = manager.cpu_s(), time.monotonic()
        await report_status(bench, count, window_s)
        steady_state.idle_share = (manager.cpu_s() - before) / (time.monotonic() - started)
        steady_state.rss_mb = manager.rss_mb()
    await bench.clear()
    return steady_state


async def strain(bench: Bench, contender: managers.Contender, trouble: str, count: int, window_s: float) -> Strained:
    """Nodes join while the cloud refuses, or answers slowly."""
    bench.tell(f"{contender.name}: {count:,} nodes join, {trouble}")
    log = bench.folder / f"{contender.name}-strained.log"
    with managers.running(contender.command(bench.server.kubeconfig, FAST), bench.cloud.environ, log):
        await asyncio.sleep(SETTLE_S)
        await bench.cloud.behave(TROUBLES[trouble])
        await bench.cloud.reset()
        await bench.create(count)
        with contextlib.suppress(errors.Unavailable):
            await bench.until(lambda: bench.is_initialised(count), "all nodes", window_s)
        initialised = sum(all(taint.key != names.TAINT_UNINITIALIZED for taint in n.spec.taints) for n in bench.nodes)
        strained = Strained(await bench.cloud.calls(), await bench.cloud.refusals(), initialised)
    await bench.cloud.behave(CALM)
    await bench.clear()
    return strained


async def report_status(bench: Bench, count: int, window_s: float) -> None:
    """Status updates of `count` kubelets, each every five minutes."""
    pause_s = REFRESH_S / count
    begin = time.monotonic()
    number = 0
    while time.monotonic() < begin + window_s:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": stamp}
        patch = {"status": {"conditions": [condition]}}
        await bench.client.patch(NODES.raw(), simulated.name(number % count), patch, subresource="status")
        number += 1
        await asyncio.sleep(max(0.0, begin + number * pause_s - time.monotonic()))


async def run(folder: pathlib.Path, *, is_quick: bool, tell: Callable[[str], None]) -> report.Topic:
    all_of = managers.contenders(tell)
    joining, steady = (JOIN_QUICK, STEADY_QUICK) if is_quick else (JOIN_FULL, STEADY_FULL)
    settings = list(managers.SETTINGS)[:1] if is_quick else list(managers.SETTINGS)
    joined: dict[tuple[str, str], Joined] = {}
    stayed: dict[str, Steady] = {}
    strained: dict[tuple[str, str], Strained] = {}
    async with servers.real(folder / "real", tell) as running:
        with simulated.oxide(folder, max(joining, steady)) as cloud:
            loaded = config.load(kubeconfig=running.kubeconfig).with_rate(-1, 1)
            async with clients.Client(loaded) as client:
                bench = Bench(folder, running, client, cloud, tell)
                watching = asyncio.create_task(Reflector(client, NODES, bench.nodes).run())
                try:
                    for setting in settings:
                        joined |= await join_in_turns(bench, all_of, setting, joining)
                    for contender in all_of:
                        window_s = QUICK_WINDOW_S if is_quick else STEADY_WINDOW_S
                        stayed[contender.name] = await stay(bench, contender, steady, window_s)
                    size, window_s = (STRAINED_QUICK, STRAIN_QUICK_S) if is_quick else (STRAINED_FULL, STRAIN_WINDOW_S)
                    for trouble in TROUBLES:
                        for contender in all_of:
                            name = contender.name
                            strained[name, trouble] = await strain(bench, contender, trouble, size, window_s)
                finally:
                    watching.cancel()
                    await asyncio.gather(watching, return_exceptions=True)
    topic = _topic([contender.name for contender in all_of], settings, joined, stayed, (joining, steady))
    _strained_rows(topic, [contender.name for contender in all_of[1:]], strained)
    return topic


# The least ratio wanted against the original: at most 0.35 and 0.8 of its time.
_GOALS = {"defaults": 1 / 0.35, "16 workers, 500 QPS": 1 / 0.8, "16 workers, 5,000 QPS": 1 / 0.8}


def _topic(
    contenders: list[str],
    settings: list[str],
    joined: dict[tuple[str, str], Joined],
    stayed: dict[str, Steady],
    counts: tuple[int, int],
) -> report.Topic:
    joining, steady = counts
    topic = report.Topic("ccm", f"{joining:,} nodes join, then {steady:,} steady, simulated Oxide API", "Go manager")

    def row(name: str, ours: float, peer: float, unit: str, goal: float = 0.0, limit: float | None = None) -> None:
        topic.rows.append(report.Row(name, ours, peer, unit, goal=goal, limit=limit, is_less_better=True))

    for peer in contenders[1:]:
        has_goals = peer == "original" or "original" not in contenders
        for setting in settings:
            mine, other = joined["ours", setting], joined[peer, setting]
            row(f"{peer}: {setting}: time", mine.seconds, other.seconds, "s", _GOALS[setting] if has_goals else 0.0)
            row(f"{peer}: {setting}: processor time, server", mine.server_cpu_s, other.server_cpu_s, "s")
            row(f"{peer}: {setting}: processor time, all", mine.all_cpu_s, other.all_cpu_s, "s")
        mine, other = joined["ours", settings[0]], joined[peer, settings[0]]
        row(f"{peer}: cloud calls", mine.calls, other.calls, "calls", limit=1.1 * joining + 20)
        row(f"{peer}: writes a node", mine.writes / joining, other.writes / joining, "writes", limit=2.0)
        row(f"{peer}: event writes a node", mine.event_writes / joining, other.event_writes / joining, "writes")
        row(f"{peer}: processor time", mine.cpu_s, other.cpu_s, "s", 1.0 if has_goals else 0.0)
        row(f"{peer}: peak memory", mine.peak_mb, other.peak_mb, "MB")
        still, beside = stayed["ours"], stayed[peer]
        first_pass = (still.first_pass_s, beside.first_pass_s)
        row(f"{peer}: first pass over {steady:,}", *first_pass, "s", 1.0 if has_goals else 0.0)
        row(f"{peer}: steady: core", still.core_percent, beside.core_percent, "%", limit=3.0)
        row(f"{peer}: steady: memory", still.rss_mb, beside.rss_mb, "MB", limit=150.0)
        budget = steady / 50 + steady / 10 + 20
        row(f"{peer}: steady: calls a refresh", still.refresh_calls, beside.refresh_calls, "calls", limit=budget)
    if "original" not in contenders:
        topic.notes.append("the original Oxide manager was not found in the folder that BEDPLATE_PEERS names")
    return topic


def _strained_rows(topic: report.Topic, peers: list[str], strained: dict[tuple[str, str], Strained]) -> None:
    """A cloud in trouble is asked less than the original asks it, for no fewer nodes."""

    def row(name: str, ours: int, theirs: int, unit: str, *, goal: float = 0.0, is_less_better: bool = True) -> None:
        topic.rows.append(report.Row(name, ours, theirs, unit, goal=goal, is_less_better=is_less_better))

    for peer in peers:
        goal = 1.0 if peer == "original" else 0.0
        for trouble in TROUBLES:
            mine, other = strained["ours", trouble], strained[peer, trouble]
            row(f"{peer}: {trouble}: calls", mine.calls, other.calls, "calls", goal=goal)
            if other.refused:
                row(f"{peer}: {trouble}: refused", mine.refused, other.refused, "calls", goal=goal)
            row(f"{peer}: {trouble}: nodes", mine.nodes, other.nodes, "nodes", is_less_better=False)
