"""How fast the store is: SQLite against a real etcd, in the same run, on the same disk, through the same interface.

Measured: durable commits per second of one key and 1,000 bytes (both backends sync every commit to disk before they
acknowledge it) with 1, 16 and 64 writers in one process, and how long one commit takes; the time from the start of a
commit to a watcher's receipt of it while nothing else happens; and the events per second that 100 watchers in the
writing process receive together. The figures for etcd include its client, which shares the process with the writers,
as the store's user would see them. A bare sync of 4 KiB is shown for scale.

    python bench/store.py [--seconds 5] [--folder FOLDER] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from tests.store import etcd_cluster

from bedplate.store.etcd import EtcdOptions, EtcdStore
from bedplate.store.interface import Put, Store
from bedplate.store.sqlite import SqliteStore

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
    found: dict[str, Figures] = {}
    async with store:
        await commits(store, 16, 0.5)
        for writers in (1, 16, 64):
            found[f"{writers} writers"] = await commits(store, writers, seconds)
        found["commit to watcher"] = await to_watcher(store)
        found["fan-out"] = await fan_out(store, seconds)
    return found


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


@contextlib.contextmanager
def etcd_or_none(folder: pathlib.Path) -> Iterator[etcd_cluster.Cluster | None]:
    try:
        cluster = etcd_cluster.Cluster(folder)
    except etcd_cluster.Missing as missing:
        print(f"etcd is left out: {missing}")
        yield None
        return
    with cluster:
        yield cluster


def show(sqlite: dict[str, Figures], etcd: dict[str, Figures] | None) -> None:
    print(f"{'':<28}{'SQLite':>22}{'etcd':>22}{'ratio':>9}")
    for name, figures in sqlite.items():
        for unit, value in figures.items():
            peer = etcd[name][unit] if etcd else None
            label = f"{name}, {unit.replace('_', ' ')}"
            better = (value / peer if unit == "per_s" else peer / value) if peer else None
            print(
                f"{label:<28}{value:>22,.2f}"
                + (f"{peer:>22,.2f}{better:>8.1f}x" if peer and better else f"{'-':>22}{'-':>9}")
            )
    print("ratio: how many times better SQLite is (rates: more is better, times: less is better)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each figure")
    parser.add_argument("--folder", help="on the disk to measure (default: the folder for temporary files)")
    parser.add_argument("--json", type=pathlib.Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bedplate-bench-", dir=arguments.folder) as name:
        folder = pathlib.Path(name)
        print(f"one 4 KiB write with sync on this disk: {bare_sync(folder):.2f} ms")
        with etcd_or_none(folder / "etcd") as cluster:
            sqlite = asyncio.run(measure(SqliteStore(folder / "store.db"), arguments.seconds))
            etcd = None
            if cluster is not None:
                store = EtcdStore(EtcdOptions(cluster.endpoints, timeout_s=60))
                etcd = asyncio.run(measure(store, arguments.seconds))
    show(sqlite, etcd)
    if arguments.json:
        arguments.json.write_text(json.dumps({"sqlite": sqlite, "etcd": etcd}, indent=2) + "\n")


if __name__ == "__main__":
    main()
