"""The embedded API server against kube-apiserver with etcd, driven by the same client-go program (`peers/apiload`).

Both sync every write to the same disk. They run one after the other, each with the load generator beside it, so that
neither takes time from the other. Idle memory is read a few seconds after the start, before any load; the processor
time of the server per operation tells where the time goes.
"""

from __future__ import annotations

import asyncio
import pathlib
import time
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
}
QUICK = {"creates": 60, "updates": 60, "gets": 120, "lists": 10, "listed": 20, "watchers": 5, "writes": 40}
STEPS = ("creates", "updates", "gets", "lists", "events")
SIZE_OF = {"creates": "creates", "updates": "updates", "gets": "gets", "lists": "lists", "events": "writes"}
FULL = {"creates": 8000, "updates": 8000, "gets": 40000, "lists": 800, "writes": 4000}

Found = dict[str, Any]


def drive(program: pathlib.Path, running: servers.Running, sizes: dict[str, int]) -> Found:
    """All figures of one server: rates, and its processor time per operation."""
    found: Found = {}
    for step in STEPS:
        needed = [f"--{name}={count}" for name, count in sizes.items()]
        before = running.cpu_s()
        found |= programs.call([str(program), f"--kubeconfig={running.kubeconfig}", f"--topics={step}", *needed])
        # Lists are asked for twice, decoded and as bytes.
        count = sizes[SIZE_OF[step]] * (2 if step == "lists" else 1)
        found[step]["cpu_ms"] = (running.cpu_s() - before) * 1000 / count
    return found


async def run(folder: pathlib.Path, *, is_quick: bool, tell: Callable[[str], None]) -> report.Topic:
    program = programs.build("apiload", tell)
    sizes = QUICK if is_quick else FULL
    tell("embedded server under load")
    with servers.embedded(folder / "embedded") as running:
        ours, our_ready, our_idle, our_loaded = _measure(program, running, sizes, is_quick)
    tell("kube-apiserver and etcd under load")
    async with servers.real(folder / "real", tell) as running:
        measured = await asyncio.to_thread(_measure, program, running, sizes, is_quick)
    theirs, their_ready, their_idle, their_loaded = measured
    topic = report.Topic(
        "api server",
        "operations per second of typed client-go clients, 16 at a time; every write synced to disk; "
        f"ConfigMaps of {ours['creates']['bytes']:,} bytes, pods of {ours['lists']['bytes']:,} (as JSON)",
        "apiserver+etcd",
    )
    for key, (name, goal) in OPERATIONS.items():
        topic.rows.append(report.Row(name, ours[key]["per_s"], theirs[key]["per_s"], "per s", goal=goal))
    topic.rows += [
        report.Row("time to ready, nothing there before", our_ready, their_ready, "s", limit=1.0, is_less_better=True),
        report.Row("memory, idle", our_idle, their_idle, "MB", limit=100.0, is_less_better=True),
        report.Row("memory, after the load", our_loaded, their_loaded, "MB", is_less_better=True),
    ]
    topic.notes = [_times(ours, "bedplate"), _times(theirs, "apiserver+etcd"), *_work(ours, theirs)]
    return topic


def _measure(
    program: pathlib.Path, running: servers.Running, sizes: dict[str, int], is_quick: bool
) -> tuple[Found, float, float, float]:
    time.sleep(0.5 if is_quick else servers.SETTLE_S)
    idle = running.rss_mb()
    found = drive(program, running, sizes)
    return found, running.ready_s, idle, running.rss_mb()


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
