"""How fast the store is: SQLite against a real etcd, in the same run, on the same disk, through the same interface.

Measured: durable commits per second of one key and 1,000 bytes (both backends sync every commit to disk before they
acknowledge it) with 1, 16 and 64 writers in one process, and how long one commit takes; the time from the start of a
commit to a watcher's receipt of it while nothing else happens; and the events per second that 100 watchers in the
writing process receive together. The figures for etcd include its client, which shares the process with the writers,
as the store's user would see them. A bare sync of 4 KiB is shown for scale.

    python -m bench store
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import statistics
import time
from collections.abc import Callable

from tests.store import etcd_cluster

from bedplate.store.etcd import EtcdOptions, EtcdStore
from bedplate.store.interface import Put, Store
from bedplate.store.sqlite import SqliteStore
from bench import report

__all__ = ["run"]

VALUE = b"x" * 1000
WATCHERS = 100
Figures = dict[str, float]


async def commits(store: Store, writers: int, seconds: float) -> Figures:
    took: list[float] = []
    begin = time.perf_counter()

    async def write(writer: int) -> None:
        number = 0
        while (start := time.perf_counter()) < begin + seconds:
            await store.commit([Put(f"/bench/{writer:02}/{number % 1000:04}", VALUE)])
            took.append(time.perf_counter() - start)
            number += 1

    await asyncio.gather(*(write(writer) for writer in range(writers)))
    elapsed = time.perf_counter() - begin
    cuts = statistics.quantiles(took, n=100)
    return {"per_s": len(took) / elapsed, "p50_ms": cuts[49] * 1000, "p99_ms": cuts[98] * 1000}


async def to_watcher(store: Store, rounds: int = 200) -> Figures:
    watch = store.watch("/bench/", after=await store.revision())
    took = []
    for _ in range(rounds):
        start = time.perf_counter()
        writing = asyncio.create_task(store.commit([Put("/bench/seen", VALUE)]))
        while not await anext(watch):
            pass
        took.append(time.perf_counter() - start)
        await writing
        await asyncio.sleep(0.002)
    await watch.aclose()
    return {"p50_ms": statistics.median(took) * 1000}


async def fan_out(store: Store, seconds: float) -> Figures:
    start = await store.revision()

    async def read() -> int:
        received = 0
        async for batch in store.watch("/bench/", after=start):
            received += len(batch)
            if batch and batch[-1].key == "/bench/last":
                break
        return received

    readers = [asyncio.create_task(read()) for _ in range(WATCHERS)]
    await asyncio.sleep(0.5)
    begin = time.perf_counter()
    stop = begin + seconds

    async def write(writer: int) -> None:
        while time.perf_counter() < stop:
            await store.commit([Put(f"/bench/fan/{writer}", VALUE)])

    await asyncio.gather(*(write(writer) for writer in range(16)))
    await store.commit([Put("/bench/last", VALUE)])
    received = sum(await asyncio.gather(*readers))
    return {"per_s": received / (time.perf_counter() - begin)}


async def measure(store: Store, seconds: float) -> dict[str, Figures]:
    figures: dict[str, Figures] = {}
    async with store:
        await commits(store, 16, 0.5)
        for writers in (1, 16, 64):
            figures[f"{writers} writers"] = await commits(store, writers, seconds)
        figures["commit to watcher"] = await to_watcher(store)
        figures["fan-out"] = await fan_out(store, seconds)
    return figures


def bare_sync(folder: pathlib.Path) -> float:
    """Milliseconds for one 4 KiB write and its sync."""
    descriptor = os.open(folder / "sync", os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        os.write(descriptor, bytes(1 << 20))
        os.fsync(descriptor)
        begin = time.perf_counter()
        for block in range(200):
            os.pwrite(descriptor, bytes(4096), block * 4096)
            os.fdatasync(descriptor)
        return (time.perf_counter() - begin) * 5
    finally:
        os.close(descriptor)


async def run(folder: pathlib.Path, *, is_quick: bool, tell: Callable[[str], None]) -> report.Topic:
    seconds = 0.2 if is_quick else 5.0
    sync_ms = bare_sync(folder)
    tell("SQLite")
    sqlite = await measure(SqliteStore(folder / "store.db"), seconds)
    etcd: dict[str, Figures] = {}
    topic = report.Topic(
        "store", "durable commits of 1,000 bytes through the store's interface, in one process", "etcd"
    )
    try:
        with etcd_cluster.Cluster(folder / "etcd") as cluster:
            tell("etcd")
            etcd = await measure(EtcdStore(EtcdOptions(cluster.endpoints, timeout_s=60)), seconds)
    except etcd_cluster.Missing as missing:
        topic.notes.append(f"etcd is left out: {missing}")
    for name, figures in sqlite.items():
        for unit, value in figures.items():
            peer = etcd[name][unit] if etcd else None
            of = {"per_s": "", "p50_ms": ", middle", "p99_ms": ", 99th percentile"}[unit]
            is_time = unit != "per_s"
            topic.rows.append(report.Row(name + of, value, peer, "ms" if is_time else "per s", is_less_better=is_time))
    topic.notes.append(f"one 4 KiB write with its sync takes {sync_ms:.2f} ms on this disk")
    return topic
