"""The embedded API server against kube-apiserver with etcd, driven by the same client-go program (`peers/apiload`).

Both sync every write to the same disk. Each step (creates, updates, ...) runs on one server and then on the other, in
several turns, so that a busy moment of the machine meets both; the middle of the turns counts. The server whose turn it
is not stands idle. Idle memory is read a few seconds after the start, before any load; the processor time per
operation tells where the time goes.
"""

from __future__ import annotations

import asyncio
import pathlib
import statistics
from collections.abc import Callable
from typing import Any

from bench import programs, report, servers

__all__ = ["run"]

OPERATIONS = {
    "creates": ("creates", 2.0),
    "updates": ("updates", 2.0),
    "gets": ("gets", 3.0),
    "lists": ("lists of 500 pods", 1.5),
    "lists, undecoded": ("the same, taken as bytes", 0.0),
    "events": ("events to 100 watchers", 2.0),
    "lists, JSON": ("lists, clients that take JSON alone", 0.0),
    "events, JSON": ("events, clients that take JSON alone", 0.0),
}
QUICK = {"creates": 60, "updates": 60, "gets": 120, "lists": 10, "listed": 20, "watchers": 5, "writes": 40}
# What the load generator does, and which size counts the operations. The last two: what clients of custom kinds do.
STEPS = {
    "creates": "creates",
    "updates": "updates",
    "gets": "gets",
    "lists": "lists",
    "events": "writes",
    "lists, JSON": "lists",
    "events, JSON": "writes",
}
FULL = {"creates": 5000, "updates": 5000, "gets": 20000, "lists": 500, "writes": 2000}
TURNS = 3

Found = dict[str, Any]


def drive(program: pathlib.Path, running: servers.Running, step: str, sizes: dict[str, int], turn: int) -> Found:
    """The figures of one step on one server: rates, and its processor time per operation."""
    topic, _, media = step.partition(", ")
    arguments = [f"--{name}={count}" for name, count in sizes.items()]
    arguments += [f"--kubeconfig={running.kubeconfig}", f"--topics={topic}", f"--turn={turn}"]
    before = running.cpu_s()
    figures: Found = programs.call([str(program), *arguments, f"--media={media.lower()}"])
    # Lists are asked for twice, decoded and as bytes.
    count = sizes[STEPS[step]] * (2 if topic == "lists" else 1)
    figures[topic]["cpu_ms"] = (running.cpu_s() - before) * 1000 / count
    return figures if not media else {step: figures[topic]}


def middle(turns: list[Found]) -> Found:
    """Of every figure the middle of the turns."""
    return {
        name: {key: statistics.median(turn[name][key] for turn in turns) for key in figures}
        for name, figures in turns[0].items()
    }


async def run(folder: pathlib.Path, *, is_quick: bool, tell: Callable[[str], None]) -> report.Topic:
    program = programs.build("apiload", tell)
    sizes, turns = (QUICK, 1) if is_quick else (FULL, TURNS)
    figures: tuple[list[Found], list[Found]] = ([], [])
    with servers.embedded(folder / "embedded") as ours:
        async with servers.real(folder / "real", tell) as theirs:
            await asyncio.sleep(0.5 if is_quick else servers.SETTLE_S)
            idle = ours.rss_mb(), theirs.rss_mb()
            for turn in range(turns):
                for side in figures:
                    side.append({})
                for step in STEPS:
                    tell(f"{step}, turn {turn + 1} of {turns}")
                    for running, side in zip((ours, theirs), figures, strict=True):
                        side[-1] |= await asyncio.to_thread(drive, program, running, step, sizes, turn)
            loaded = ours.rss_mb(), theirs.rss_mb()
    mine, other = map(middle, figures)
    topic = _topic(mine, other, turns)
    topic.rows += [
        _least("time to ready, nothing there before", (ours.ready_s, theirs.ready_s), "s", 1.0),
        _least("memory, idle", idle, "MB", 100.0),
        _least("memory, after the load", loaded, "MB", None),
    ]
    return topic


def _least(name: str, figures: tuple[float, float], unit: str, limit: float | None) -> report.Row:
    return report.Row(name, *figures, unit, limit=limit, is_less_better=True)


def _topic(ours: Found, theirs: Found, turns: int) -> report.Topic:
    says = (
        "operations per second of typed client-go clients, 16 at a time; every write synced to disk; "
        f"ConfigMaps of {ours['creates']['bytes']:,} bytes, pods of {ours['lists']['bytes']:,} (as JSON); "
        f"the middle of {turns} turns"
    )
    topic = report.Topic("api server", says, "apiserver+etcd")
    for key, (name, goal) in OPERATIONS.items():
        topic.rows.append(report.Row(name, ours[key]["per_s"], theirs[key]["per_s"], "per s", goal=goal))
    topic.notes = [_times(ours, "bedplate"), _times(theirs, "apiserver+etcd"), *_work(ours, theirs)]
    return topic


def _times(found: Found, who: str) -> str:
    parts = [
        f"{OPERATIONS[name][0]} {figures['p50_ms']:.1f}/{figures['p99_ms']:.1f}"
        for name, figures in found.items()
        if "p50_ms" in figures
    ]
    return f"{who}, middle and 99th percentile in ms: " + ", ".join(parts)


def _work(ours: Found, theirs: Found) -> list[str]:
    def parts(key: str) -> str:
        return ", ".join(f"{step} {ours[step][key]:.2f} / {theirs[step][key]:.2f}" for step in STEPS)

    return [
        f"processor ms of the server per operation (events: per write), bedplate / apiserver+etcd: {parts('cpu_ms')}",
        f"processor ms of the load generator per operation: {parts('client_ms')}",
    ]
