"""Run by the crash tests in a process of its own: writes to an SQLite store as fast as it can until it is killed.

In: the path of the store, the number of this run. Out: on standard output, a line for every commit that was
acknowledged: `three WRITER NUMBER REVISION` for three keys written together, `move FROM REVISION` for a token moved.
"""

from __future__ import annotations

import asyncio
import os
import sys

from bedplate.store.interface import Delete, Put, Store
from bedplate.store.sqlite import SqliteStore

WRITERS = 8


def tell(line: str) -> None:
    os.write(1, f"{line}\n".encode())


async def write_threes(store: Store, run: str, writer: int) -> None:
    number = 0
    while True:
        name = f"/three/{run}/{writer}/{number}"
        value = f"{run}/{writer}/{number}".encode() * (1 + number % 50)
        revision = await store.commit([Put(f"{name}/{part}", value, 0) for part in "abc"])
        tell(f"three {run}/{writer}/{number} {revision}")
        number += 1


async def move_token(store: Store) -> None:
    """One token wanders from place to place; a half commit would lose or double it."""
    page = await store.list("/token/")
    place = int(page.entries[0].key.rsplit("/", 1)[1]) if page.entries else 0
    revision = page.entries[0].revision if page.entries else await store.commit([Put("/token/0", b"", 0)])
    while True:
        revision = await store.commit([Delete(f"/token/{place}", revision), Put(f"/token/{place + 1}", b"", 0)])
        tell(f"move {place} {revision}")
        place += 1
        if place % 20 == 0:
            await store.compact(revision - 10)


async def main(path: str, run: str) -> None:
    async with SqliteStore(path, history_s=None) as store, asyncio.TaskGroup() as group:
        tell("open")
        for writer in range(WRITERS):
            group.create_task(write_threes(store, run, writer))
        group.create_task(move_token(store))


asyncio.run(main(sys.argv[1], sys.argv[2]))
