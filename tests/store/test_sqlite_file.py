"""Files that are in use, foreign, damaged or cannot grow: a clear error, nothing lost, nothing changed."""

from __future__ import annotations

import asyncio
import os
import pathlib
import sqlite3
import stat
import subprocess
import sys
import textwrap

import pytest

from bedplate.core import errors
from bedplate.store.interface import Delete, Put, StoreFull
from bedplate.store.sqlite import Damaged, InUse, SqliteStore, queries, read_entries


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith(".lock")}


async def refused(path: pathlib.Path, match: str) -> None:
    before = contents(path.parent)
    with pytest.raises(Damaged, match=match) as caught:
        async with SqliteStore(path):
            pass
    assert str(path) in str(caught.value)
    assert caught.value.hint
    assert contents(path.parent) == before


async def test_second_opener_is_told_who_holds_the_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        with pytest.raises(InUse, match=f"process {os.getpid()}"):
            async with SqliteStore(path):
                pass
        assert await store.commit([Put("/a", b"")]) == 2
    async with SqliteStore(path) as store:
        assert await store.revision() == 2


async def test_file_is_for_its_owner_only(tmp_path: pathlib.Path) -> None:
    async with SqliteStore(tmp_path / "deep" / "store.db") as store:
        await store.commit([Put("/secret", b"")])
        for path in (tmp_path / "deep").iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


async def test_text_file_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "store.db").write_text("precious notes\n" * 100)
    await refused(tmp_path / "store.db", "not a database")


async def test_short_file_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "store.db").write_text("x")
    await refused(tmp_path / "store.db", "not a database")


async def test_database_of_another_program_is_refused(tmp_path: pathlib.Path) -> None:
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute("CREATE TABLE log (id INTEGER PRIMARY KEY)")
    connection.close()
    await refused(tmp_path / "store.db", "another program")


async def test_format_of_another_version_is_refused(tmp_path: pathlib.Path) -> None:
    async with SqliteStore(tmp_path / "store.db"):
        pass
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    await refused(tmp_path / "store.db", "format 99")


async def test_log_without_its_database_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "store.db-wal").write_bytes(b"the log of a lost database")
    await refused(tmp_path / "store.db", "missing, but its log")


async def test_damaged_pages_are_refused_and_left_alone(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        await asyncio.gather(*(store.commit([Put(f"/{n}", b"x" * 1000)]) for n in range(500)))
    data = bytearray(path.read_bytes())
    data[8192:] = b"\xa5" * (len(data) - 8192)
    path.write_bytes(data)
    with pytest.raises(Damaged, match="damaged"):
        async with SqliteStore(path):
            pass
    assert path.read_bytes()[8192:] == data[8192:]


async def test_path_that_cannot_be_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.Terminal, match="cannot be opened"):
        async with SqliteStore(tmp_path / "file" / "store.db"):
            pass


async def test_half_made_database_of_a_crash_is_made_anew(tmp_path: pathlib.Path) -> None:
    (tmp_path / "store.db.new").write_bytes(b"half")
    (tmp_path / "store.db").write_bytes(b"")
    async with SqliteStore(tmp_path / "store.db") as store:
        assert await store.commit([Put("/a", b"")]) == 2
    assert not (tmp_path / "store.db.new").exists()


async def fill(store: SqliteStore, size: int) -> int:
    """Commit pairs of keys until there is no space; how many were acknowledged."""
    number = 0
    while True:
        try:
            await store.commit([Put(f"/{number:06}/a", b"x" * size), Put(f"/{number:06}/b", b"x" * size)])
        except StoreFull:
            return number
        number += 1


async def check_after_full(store: SqliteStore, acked: int, path: pathlib.Path) -> None:
    """Everything acknowledged can be read, nothing else is there, and many refusals change nothing."""
    for _ in range(3):
        with pytest.raises(StoreFull, match=str(path)):
            await store.commit([Put("/more", b"x" * 200_000)])
    names = [entry.key for entry in (await store.list("/")).entries]
    assert names == [f"/{number:06}/{part}" for number in range(acked) for part in "ab"]
    assert await store.revision() == acked + 1


async def test_full_database_refuses_whole_commits_and_recovers(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path, history_s=None) as store:
        store._writer._connection.execute("PRAGMA max_page_count = 100")
        acked = await fill(store, 3000)
        assert acked > 10
        await check_after_full(store, acked, path)
        store._writer._connection.execute("PRAGMA max_page_count = 100000")
        assert await store.commit([Put("/more", b"x" * 200_000)]) == acked + 2
    async with SqliteStore(path, history_s=None) as store:
        assert await store.revision() == acked + 2


async def test_commit_that_fills_the_database_half_way_leaves_nothing(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path, history_s=None) as store:
        store._writer._connection.execute("PRAGMA max_page_count = 60")
        with pytest.raises(StoreFull):
            await store.commit([Put(f"/{number}", b"x" * 3000) for number in range(300)])
        assert await store.commit([Put("/small", b"")]) == 2
    async with SqliteStore(path, history_s=None) as store:
        assert [entry.key for entry in (await store.list("/")).entries] == ["/small"]


async def test_commit_too_large_for_the_rest_does_not_take_others_down(tmp_path: pathlib.Path) -> None:
    async with SqliteStore(tmp_path / "store.db", history_s=None) as store:
        store._writer._connection.execute("PRAGMA max_page_count = 100")
        results = await asyncio.gather(
            store.commit([Put("/a", b"small")]),
            store.commit([Put("/b", b"x" * 2_000_000)]),
            store.commit([Put("/c", b"small")]),
            return_exceptions=True,
        )
        assert results[0] == 2 and results[2] == 3
        assert isinstance(results[1], StoreFull)
        assert [entry.key for entry in (await store.list("/")).entries] == ["/a", "/c"]


def test_file_size_limit_refuses_whole_commits_and_recovers(tmp_path: pathlib.Path) -> None:
    """The limit holds for a whole process, so this runs in one of its own."""
    script = """
        import asyncio, pathlib, resource, sys
        from tests.store.test_sqlite_file import check_after_full, fill
        from bedplate.store.interface import Put
        from bedplate.store.sqlite import SqliteStore

        async def main(path):
            async with SqliteStore(path, history_s=None) as store:
                resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
                acked = await fill(store, 3000)
                assert acked > 10, acked
                await check_after_full(store, acked, path)
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                assert await store.commit([Put("/more", b"x" * 200_000)]) == acked + 2
            async with SqliteStore(path, history_s=None) as store:
                assert await store.revision() == acked + 2

        asyncio.run(main(pathlib.Path(sys.argv[1])))
    """
    root = pathlib.Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "store.db")],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
async def test_full_disk_refuses_whole_commits_and_recovers(tmp_path: pathlib.Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.strip()}")
    try:
        ballast = disk / "ballast"
        ballast.write_bytes(b"x" * 1_500_000)
        path = disk / "store.db"
        async with SqliteStore(path, history_s=None) as store:
            acked = await fill(store, 3000)
            assert acked > 10
            await check_after_full(store, acked, path)
            ballast.unlink()
            assert await store.commit([Put("/more", b"x" * 200_000)]) == acked + 2
        async with SqliteStore(path, history_s=None) as store:
            assert await store.revision() == acked + 2
        for leftover in range(1000):
            try:
                (disk / f"fill{leftover}").write_bytes(b"x" * 100_000)
            except OSError:
                break
        with pytest.raises(StoreFull):
            async with SqliteStore(disk / "second.db"):
                pass
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("is_missing", [True, False], ids=["missing", "empty"])
async def test_a_store_that_must_exist_is_not_made(tmp_path: pathlib.Path, is_missing: bool) -> None:
    path = tmp_path / "deep" / "store.db"
    if not is_missing:
        path.parent.mkdir()
        path.write_bytes(b"")
    with pytest.raises(Damaged, match="is missing" if is_missing else "is empty"):
        async with SqliteStore(path, must_exist=True):
            raise AssertionError
    assert list(tmp_path.rglob("*")) == ([] if is_missing else [path.parent, path])


@pytest.mark.parametrize("is_replaced", [False, True], ids=["deleted", "replaced"])
async def test_a_file_that_goes_away_while_it_is_open_is_noticed_before_anything_is_lost(
    tmp_path: pathlib.Path, is_replaced: bool
) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        await store.commit([Put("a", b"1")])
        await store.check()
        path.rename(tmp_path / "elsewhere.db")
        if is_replaced:
            path.write_bytes(b"something else")
        with pytest.raises(errors.Unavailable, match="replaced" if is_replaced else "deleted"):
            await store.commit([Put("a", b"2")])
        with pytest.raises(errors.Unavailable, match="nothing is written any more"):
            await store.check()
        (tmp_path / "elsewhere.db").replace(path)
        await store.commit([Put("a", b"3")])
        await store.check()
    async with SqliteStore(path) as store:
        entry = await store.get("a")
        assert entry is not None and entry.value == b"3", "the same file is back, and so is the store"


async def test_a_file_that_comes_back_as_another_one_is_not_written_to(tmp_path: pathlib.Path) -> None:
    path, elsewhere = tmp_path / "store.db", tmp_path / "elsewhere.db"
    async with SqliteStore(path) as store:
        await store.commit([Put("a", b"1")])
        path.rename(elsewhere)
        with pytest.raises(errors.Unavailable, match="deleted or moved"):
            await store.check()
        os.utime(elsewhere)  # another program has written to it
        elsewhere.rename(path)
        with pytest.raises(errors.Unavailable, match="changed while it was away"):
            await store.commit([Put("a", b"2")])
        with pytest.raises(errors.Unavailable, match="changed while it was away"):
            await store.check()


async def test_a_file_that_is_replaced_while_it_is_being_opened_is_noticed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, elsewhere, load = tmp_path / "store.db", tmp_path / "elsewhere.db", queries.load
    for name in (path, elsewhere):
        async with SqliteStore(name) as store:
            await store.commit([Put("a", name.name.encode())])

    def replace(connection: sqlite3.Connection) -> queries.Loaded:
        loaded = load(connection)
        elsewhere.replace(path)
        return loaded

    monkeypatch.setattr(queries, "load", replace)
    async with SqliteStore(path) as store:
        with pytest.raises(errors.Unavailable, match="replaced"):
            await store.commit([Put("a", b"2")])


async def test_a_log_that_goes_away_is_noticed_and_what_it_held_is_not_lost(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        await store.commit([Put("a", b"1")])
        (tmp_path / "store.db-wal").unlink()
        with pytest.raises(errors.Unavailable, match=r"store\.db-wal was deleted"):
            await store.commit([Put("a", b"2")])
    async with SqliteStore(path) as store:
        entry = await store.get("a")
        assert entry is not None and entry.value == b"1"


async def test_a_file_that_goes_away_is_noticed_without_a_commit(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        path.unlink()
        with pytest.raises(errors.Unavailable, match="deleted"):
            await store.check()


async def test_entries_are_read_of_an_open_and_of_a_closed_database_and_nothing_is_written(
    tmp_path: pathlib.Path,
) -> None:
    path = tmp_path / "a ?#%.db"
    async with SqliteStore(path) as store:
        await store.commit([Put("/a/1", b"1"), Put("/a/2", b"2"), Put("/b", b"3")])
        await store.commit([Delete("/a/2"), Put("/a/3", b"4")])
        opened = read_entries(path, "/a/")
    before = sorted(tmp_path.iterdir())
    assert read_entries(path, "/a/") == opened
    assert [(entry.key, entry.value) for entry in opened] == [("/a/1", b"1"), ("/a/3", b"4")]
    assert sorted(tmp_path.iterdir()) == before
    with pytest.raises(Damaged, match="is missing"):
        read_entries(tmp_path / "none", "/")
