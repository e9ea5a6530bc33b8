"""kill -9 while writing and compacting: every acknowledged commit is there, once and whole, and no half one is."""

from __future__ import annotations

import collections
import os
import pathlib
import random
import select
import shutil
import subprocess
import sys
import time

import pytest

from bedplate.store.interface import Entry, Put
from bedplate.store.sqlite import SqliteStore

CHILD = pathlib.Path(__file__).with_name("crash_child.py")


def run_and_kill(path: pathlib.Path, run: int, acks: int, delay_s: float) -> list[str]:
    """Let a child write until `acks` commits were acknowledged, then a moment longer; all it said before its death."""
    child = subprocess.Popen([sys.executable, str(CHILD), str(path), str(run)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    said = bytearray()
    try:
        deadline = time.monotonic() + 120
        while said.count(b"\n") <= acks and time.monotonic() < deadline:
            if select.select([child.stdout], [], [], 1.0)[0]:
                chunk = os.read(child.stdout.fileno(), 65536)
                assert chunk, "the child ended by itself"
                said += chunk
        time.sleep(delay_s)
    finally:
        child.kill()
    said += child.stdout.read()
    child.stdout.close()
    child.wait()
    lines = said.decode().splitlines()
    assert lines[0] == "open"
    return lines[1:]


async def check(path: pathlib.Path, acked: list[str]) -> None:
    async with SqliteStore(path, history_s=None) as store:
        threes: dict[str, dict[str, Entry]] = collections.defaultdict(dict)
        for entry in (await store.list("/three/")).entries:
            name, part = entry.key.removeprefix("/three/").rsplit("/", 1)
            threes[name][part] = entry
        for name, parts in threes.items():
            assert sorted(parts) == ["a", "b", "c"], f"half a commit: {name} has {sorted(parts)}"
            assert len({(entry.revision, entry.created, entry.value) for entry in parts.values()}) == 1
        tokens = (await store.list("/token/")).entries
        assert len(tokens) == 1, f"a move was torn: {tokens}"
        for line in acked:
            match line.split():
                case ["three", name, revision]:
                    assert threes[name]["a"].revision == int(revision), f"{name} was acknowledged at {revision}"
                case ["move", place, revision]:
                    assert int(tokens[0].key.rsplit("/", 1)[1]) > int(place)
                    assert await store.revision() >= int(revision)
        assert await store.commit([Put("/after", b"")]) == await store.revision()


async def kill_often(path: pathlib.Path, kills: int) -> None:
    rng = random.Random(kills)
    acked: list[str] = []
    for run in range(kills):
        acked += run_and_kill(path, run, rng.choice([0, 1, 20, 300]), rng.random() * 0.05)
        await check(path, acked)
    assert len(acked) > kills


async def test_killed_writers_lose_nothing_acknowledged(tmp_path: pathlib.Path) -> None:
    await kill_often(tmp_path / "store.db", 20)


@pytest.mark.soak
async def test_hundreds_of_kills_lose_nothing_acknowledged(tmp_path: pathlib.Path) -> None:
    await kill_often(tmp_path / "store.db", 400)


async def test_log_cut_anywhere_is_a_shorter_history_of_whole_commits(tmp_path: pathlib.Path) -> None:
    """What a power cut leaves is the log up to some byte. Each cut must open, at a revision that was once current."""
    source = tmp_path / "source"
    source.mkdir()
    async with SqliteStore(source / "store.db", history_s=None) as store:
        for number in range(40):
            await store.commit([Put(f"/{number}/{part}", b"x" * 500 * (number % 5)) for part in range(3)])
        for name in ("store.db", "store.db-wal"):
            shutil.copy(source / name, tmp_path / name)
    log = (tmp_path / "store.db-wal").read_bytes()
    reached = set()
    for cut in sorted(random.Random(1).sample(range(len(log)), 60)):
        folder = tmp_path / str(cut)
        folder.mkdir()
        shutil.copy(tmp_path / "store.db", folder)
        (folder / "store.db-wal").write_bytes(log[:cut])
        async with SqliteStore(folder / "store.db", history_s=None) as store:
            revision = await store.revision()
            names = sorted(entry.key for entry in (await store.list("/")).entries)
        assert names == sorted(f"/{number}/{part}" for number in range(revision - 1) for part in range(3))
        reached.add(revision)
    assert len(reached) > 5
