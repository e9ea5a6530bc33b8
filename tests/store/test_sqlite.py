"""What only the SQLite backend promises: group commit, durable before visible, history by age, catching up."""

from __future__ import annotations

import asyncio
import pathlib
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.store.watching import take
from tests.waiting import until

from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.store.interface import Compacted, Delete, OutcomeUnknown, Put
from bedplate.store.sqlite import SqliteStore, feed


@pytest.fixture
async def store(tmp_path: pathlib.Path) -> AsyncIterator[SqliteStore]:
    async with SqliteStore(tmp_path / "store.db", history_s=None) as opened:
        yield opened


@contextmanager
def held_writer(store: SqliteStore) -> Iterator[Callable[[], int]]:
    """While inside, the writer thread stands still before it writes; yields a function that counts its writes."""
    gate = threading.Event()
    perform = store._writer._perform
    writes = 0

    def wait_and_perform(job: object) -> dict[int, bytes]:
        nonlocal writes
        gate.wait()
        writes += 1
        return perform(job)  # type: ignore[arg-type]

    store._writer._perform = wait_and_perform  # type: ignore[method-assign]
    try:
        yield lambda: writes
    finally:
        gate.set()


def rows(path: pathlib.Path) -> list[tuple[str, int]]:
    """Keys and revisions of all rows in the file, read beside its owner."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        return [(key, row >> 16) for key, row in connection.execute("SELECT key, id FROM log ORDER BY id")]


async def test_commits_that_wait_for_a_sync_share_the_next_one(store: SqliteStore) -> None:
    with held_writer(store) as writes:
        first = asyncio.create_task(store.commit([Put("/first", b"")]))
        await asyncio.sleep(0.01)
        others = [asyncio.create_task(store.commit([Put(f"/{n}", b"")])) for n in range(50)]
        await asyncio.sleep(0.01)
    revisions = [await first, *[await other for other in others]]
    assert revisions == list(range(2, 53))
    assert writes() == 2


async def test_every_commit_is_synced(store: SqliteStore) -> None:
    """No test can pull the plug, so this looks at the switch: 2 is FULL, which syncs the log in every commit."""
    connection = store._writer._connection
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_nothing_is_visible_before_it_is_durable(store: SqliteStore) -> None:
    await store.commit([Put("/a", b"old")])
    watch = store.watch("/", after=2)
    with held_writer(store):
        writing = asyncio.create_task(store.commit([Put("/a", b"new"), Put("/b", b"new")]))
        reading = asyncio.create_task(take(watch, 2))
        await asyncio.sleep(0.05)
        entry = await store.get("/a")
        assert entry is not None and entry.value == b"old"
        assert [entry.key for entry in (await store.list("/")).entries] == ["/a"]
        assert await store.revision() == 2
        assert not writing.done() and not reading.done()
    assert await writing == 3
    assert [event.key for event in await reading] == ["/a", "/b"]


async def test_watchers_get_a_commit_before_its_committer(store: SqliteStore) -> None:
    order: list[str] = []

    async def read() -> None:
        watch = store.watch("/", after=1)
        while True:
            order.append(f"event {(await anext(watch))[-1].revision}")

    async def write() -> None:
        while len(order) < 10:
            order.append(f"commit {await store.commit([Put('/a', b'')])}")

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    await write()
    reader.cancel()
    assert order == [f"{what} {revision}" for revision in range(2, 7) for what in ("event", "commit")]


async def test_cancelled_before_its_group_began_a_commit_leaves_no_trace(store: SqliteStore) -> None:
    with held_writer(store):
        first = asyncio.create_task(store.commit([Put("/first", b"")]))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(store.commit([Put("/second", b"")]))
        await asyncio.sleep(0.01)
        second.cancel()
    assert await first == 2
    assert await store.commit([Put("/third", b"")]) == 3
    assert await store.get("/second") is None


async def test_cancelled_while_being_written_a_commit_is_complete(store: SqliteStore) -> None:
    with held_writer(store):
        writing = asyncio.create_task(store.commit([Put("/a", b""), Put("/b", b"")]))
        await asyncio.sleep(0.01)
        writing.cancel()
    assert await store.commit([Put("/c", b"")]) == 3
    assert [entry.key for entry in (await store.list("/")).entries] == ["/a", "/b", "/c"]


async def test_failed_sync_stops_writing_and_says_the_outcome_is_unknown(store: SqliteStore) -> None:
    await store.commit([Put("/a", b"1")])

    def fail(job: object) -> dict[int, bytes]:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
        raise error

    perform, store._writer._perform = store._writer._perform, fail  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknown):
        await store.commit([Put("/a", b"2")])
    store._writer._perform = perform  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknown):
        await store.commit([Put("/a", b"3")])
    entry = await store.get("/a")
    assert entry is not None and entry.value == b"1"


async def test_value_of_three_megabytes(store: SqliteStore) -> None:
    value = bytes(range(256)) * (3 * 4096)
    await store.commit([Put("/big", value)])
    assert await store.commit([Put("/big", b"small")]) == 3
    events = await take(store.watch("/", after=1), 2)
    assert events[1].previous is not None and events[1].previous.value == value


async def test_thousands_of_keys_in_one_commit(store: SqliteStore) -> None:
    revision = await store.commit([Put(f"/{n:05}", b"v") for n in range(5000)])
    page = await store.list("/", limit=1000)
    assert (page.revision, page.remaining) == (revision, 4000)
    assert len(await take(store.watch("/", after=1), 5000)) == 5000


async def test_too_many_keys_are_refused(store: SqliteStore) -> None:
    with pytest.raises(errors.Invalid, match="too large"):
        await store.commit([Delete(str(n)) for n in range(70_000)])


async def test_watch_behind_memory_catches_up_from_the_file(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "_KEPT_EVENTS", 10)
    watch = store.watch("/", after=1)
    for n in range(2500):
        await store.commit([Put(f"/{n % 3}", str(n).encode()), Put("other", b"")])
    events = await take(watch, 2500)
    assert [event.entry and int(event.entry.value) for event in events] == list(range(2500))
    assert events[3].previous == events[0].entry
    await store.commit([Put("/live", b"")])
    assert [event.key for event in await take(watch, 1)] == ["/live"]


async def test_batches_from_the_file_never_split_a_commit(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "_KEPT_EVENTS", 10)
    for n in range(100):
        await store.commit([Put(f"/{part}", str(n).encode()) for part in range(33)])
    watch = store.watch("/", after=1)
    sizes: list[int] = []
    while sum(sizes) < 3300:
        sizes.append(len(await take(watch, 1)))
    assert len(sizes) > 1
    assert [size % 33 for size in sizes] == [0] * len(sizes)


async def test_watch_thousands_of_events_behind_in_memory_gets_all(store: SqliteStore) -> None:
    await asyncio.gather(*(store.commit([Put("/a", str(n).encode())]) for n in range(3500)))
    events = await take(store.watch("/", after=1), 3500)
    assert [event.entry and int(event.entry.value) for event in events] == list(range(3500))


async def test_watch_behind_memory_whose_history_is_gone_gets_compacted(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "_KEPT_EVENTS", 10)
    watch = store.watch("/", after=1)
    await store.commit([Put("/a", b"")])
    await take(watch, 1)
    for _ in range(50):
        await store.commit([Put("/a", b"")])
    await store.compact(30)
    with pytest.raises(Compacted):
        await take(watch, 1)


async def test_watch_behind_compaction_but_within_memory_goes_on(store: SqliteStore) -> None:
    watch = store.watch("/", after=1)
    await store.commit([Put("/a", b"")])
    await take(watch, 1)
    for _ in range(5):
        await store.commit([Put("/a", b"")])
    await store.compact(7)
    assert [event.revision for event in await take(watch, 5)] == [3, 4, 5, 6, 7]


async def test_large_events_beyond_memory_wake_a_waiting_watch(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is dropped from memory in the very moment it is published."""
    monkeypatch.setattr(feed, "_KEPT_BYTES", 1000)
    reading = asyncio.create_task(take(store.watch("/", after=1), 1))
    await asyncio.sleep(0)
    await store.commit([Put("/a", b"x" * 5000)])
    assert [event.key for event in await reading] == ["/a"]


async def test_compaction_removes_replaced_and_deleted_rows_only(store: SqliteStore, tmp_path: pathlib.Path) -> None:
    for key in ("/a", "/b", "/a", "/a", "/b"):
        await store.commit([Put(key, b"")])
    await store.commit([Delete("/b")])
    await store.commit([Put("/a", b"")])
    await store.compact(7)
    await until(lambda: rows(tmp_path / "store.db") == [("/a", 5), ("/a", 8)])


async def test_sweeping_goes_on_after_a_restart(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path, history_s=None) as store:
        for _ in range(2000):
            await store.commit([Put("/a", b""), Delete("/b"), Put("/c", b"")])
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE marks SET revision = 2001 WHERE name = 'oldest'")
    connection.close()
    async with SqliteStore(path, history_s=None) as store:
        assert await store.oldest() == 2001
        await until(lambda: rows(path) == [("/a", 2001), ("/c", 2001)])
        assert await store.revision() == 2001


async def test_writers_go_on_while_much_is_swept(store: SqliteStore, tmp_path: pathlib.Path) -> None:
    await asyncio.gather(*(store.commit([Put(f"/{n % 10}", b"x" * 100)]) for n in range(20_000)))
    await store.compact(await store.revision())
    assert len(rows(tmp_path / "store.db")) > 1000, "nothing was left to sweep while writing"
    for n in range(50):
        await store.commit([Put("/x", str(n).encode())])
    await until(lambda: len(rows(tmp_path / "store.db")) == 60)


async def test_history_is_forgotten_by_age(tmp_path: pathlib.Path) -> None:
    clock = ManualClock()
    async with SqliteStore(tmp_path / "store.db", history_s=60, clock=clock) as store:
        await clock.advance(0)
        for _ in range(3):
            await store.commit([Put("/a", b"")])
        await clock.advance(30)
        await store.commit([Put("/a", b"")])
        assert await store.oldest() == 1
        await clock.advance(40)

        async def reached(revision: int) -> None:
            async with asyncio.timeout(60):
                while await store.oldest() != revision:
                    await asyncio.sleep(0.01)

        await reached(4)
        assert await store.get("/a", revision=4) is not None
        await clock.advance(120)
        await reached(5)


async def test_history_of_an_earlier_run_stays_readable_for_its_full_time(tmp_path: pathlib.Path) -> None:
    for _ in range(2):
        clock = ManualClock()
        async with SqliteStore(tmp_path / "store.db", history_s=60, clock=clock) as store:
            await store.commit([Put("/a", b"")])
            await clock.advance(50)
            assert await store.oldest() == 1


async def test_reads_while_writing_see_one_revision(store: SqliteStore) -> None:
    """Both keys always hold the same number; a list that mixed two revisions would show it."""
    stop = asyncio.Event()

    async def write() -> None:
        n = 0
        while not stop.is_set():
            await store.commit([Put("/a", str(n).encode()), Put("/b", str(n).encode())])
            n += 1

    writing = asyncio.create_task(write())
    await until(lambda: store._feed.revision > 1)
    for _ in range(200):
        page = await store.list("/")
        assert len({entry.value for entry in page.entries}) == 1
        assert {entry.revision for entry in page.entries} == {page.revision}
    stop.set()
    await writing


async def test_open_interrupted_leaves_the_file_free(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "store.db"
    opening = asyncio.create_task(SqliteStore(path).__aenter__())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    async with SqliteStore(path) as store:
        assert await store.revision() == 1


async def test_a_read_that_was_overtaken_by_a_write_and_its_sweep_sees_the_write(tmp_path: pathlib.Path) -> None:
    """The row that the read was sent for is gone when its turn comes."""
    path = tmp_path / "store.db"
    async with SqliteStore(path, history_s=None) as store:
        await store.commit([Put("/a", b"old")])
    async with SqliteStore(path, history_s=None) as store:
        gate = threading.Event()
        busy = [asyncio.create_task(store._read(lambda _: gate.wait())) for _ in range(2)]
        await asyncio.sleep(0.01)
        try:
            reading = asyncio.create_task(store.get("/a"))
            await asyncio.sleep(0)
            revision = await store.commit([Put("/a", b"new")])
            await store.compact(revision)
            await until(lambda: rows(path) == [("/a", revision)])
        finally:
            gate.set()
            await asyncio.gather(*busy)
        entry = await reading
        assert entry is not None and entry.value == b"new"


async def test_history_goes_on_being_forgotten_after_a_compaction_that_failed(tmp_path: pathlib.Path) -> None:
    clock = ManualClock()
    async with SqliteStore(tmp_path / "store.db", history_s=60, clock=clock) as store:
        compact, failures = store.compact, 1

        async def fail_once(revision: int) -> None:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise errors.Terminal("the file is damaged in one place")
            await compact(revision)

        store.compact = fail_once  # type: ignore[method-assign]
        await clock.advance(0)
        await store.commit([Put("/a", b"")])
        await clock.advance(10)
        async with asyncio.timeout(60):
            while await store.oldest() == 1:
                await clock.advance(10)
                await asyncio.sleep(0.01)
        assert failures < 0
