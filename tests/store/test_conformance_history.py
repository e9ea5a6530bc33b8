"""What every store promises about its history, watches and restarts, run on every backend. Revisions are compared
relative to where a test began, because an etcd is shared by many tests."""

from __future__ import annotations

import asyncio

import pytest
from tests.store.conftest import Backend, compact, keys_of
from tests.store.watching import take, take_until

from bedplate.core import errors
from bedplate.store.interface import Compacted, CompareFailed, Delete, Entry, Event, FutureRevision, Put, Store


class TestCompaction:
    async def test_state_at_the_compacted_revision_stays(self, store: Store) -> None:
        await store.commit([Put("/a", b"1"), Put("/b", b"1")])
        kept = await store.commit([Put("/a", b"2")])
        await store.commit([Put("/a", b"3"), Delete("/b")])
        await compact(store, kept)
        page = await store.list("/", revision=kept)
        assert [(entry.key, entry.value) for entry in page.entries] == [("/a", b"2"), ("/b", b"1")]
        assert await store.oldest() == kept

    async def test_older_revisions_are_refused(self, store: Store) -> None:
        old = await store.commit([Put("/a", b"1")])
        kept = await store.commit([Put("/a", b"2")])
        await compact(store, kept)
        for attempt in (
            store.get("/a", revision=old),
            store.list("/", revision=old),
            anext(store.watch("/", after=old)),
        ):
            with pytest.raises(Compacted) as caught:
                await attempt
            assert (caught.value.revision, caught.value.oldest) == (old, kept)

    async def test_watch_from_before_the_oldest_is_refused_even_if_only_creations_followed(self, store: Store) -> None:
        old = await store.commit([Put("/a", b"")])
        kept = await store.commit([Put("/b", b"")])
        await compact(store, kept)
        with pytest.raises(Compacted):
            await take(store.watch("/", after=old), 1)

    async def test_watch_after_the_compacted_revision_gets_all_that_follows(self, store: Store) -> None:
        kept = await store.commit([Put("/a", b"1")])
        await store.commit([Put("/a", b"2")])
        await store.commit([Delete("/a")])
        await compact(store, kept)
        events = await take(store.watch("/", after=kept), 2)
        assert [(event.entry and event.entry.value, event.previous and event.previous.value) for event in events] == [
            (b"2", b"1"),
            (None, b"2"),
        ]

    async def test_compacting_backwards_changes_nothing(self, store: Store) -> None:
        old = await store.commit([Put("/a", b"1")])
        kept = await store.commit([Put("/a", b"2")])
        await compact(store, kept)
        await compact(store, kept)
        await compact(store, old)
        assert await store.oldest() == kept

    async def test_compacting_the_future_is_refused(self, store: Store) -> None:
        current = await store.commit([Put("/a", b"1")])
        with pytest.raises(FutureRevision):
            await compact(store, current + 1)
        assert await store.get("/a", revision=current) is not None

    async def test_deletion_at_the_compacted_revision_stays_a_deletion(self, store: Store) -> None:
        await store.commit([Put("/a", b"1"), Put("/b", b"1")])
        kept = await store.commit([Delete("/a")])
        await compact(store, kept)
        assert await keys_of(store, "/", revision=kept) == ["/b"]
        assert await store.get("/a", revision=kept) is None
        assert await store.commit([Put("/a", b"2", 0)]) == kept + 1

    async def test_open_watch_survives_compaction_of_what_it_has_seen(self, store: Store) -> None:
        watch = store.watch("/", after=await store.revision())
        await store.commit([Put("/a", b"1")])
        await take(watch, 1)
        kept = await store.commit([Put("/a", b"2")])
        await take(watch, 1)
        await compact(store, kept)
        await store.commit([Put("/a", b"3")])
        assert [event.entry and event.entry.value for event in await take(watch, 1)] == [b"3"]

    async def test_compaction_while_writing_and_watching_loses_no_event(self, store: Store) -> None:
        start = await store.revision()
        watch = store.watch("/", after=start)
        seen: list[Event] = []

        async def write() -> None:
            for n in range(200):
                await store.commit([Put(f"/{n % 7}", str(n).encode())])
                if n % 20 == 19 and seen:
                    await compact(store, seen[-1].revision)

        async def read() -> None:
            while len(seen) < 200:
                seen.extend(await take(watch, 1))

        async with asyncio.timeout(120):
            await asyncio.gather(write(), read())
        assert [event.entry and int(event.entry.value) for event in seen] == list(range(200))
        assert [event.revision for event in seen] == list(range(start + 1, start + 201))


class TestWatch:
    async def test_events_carry_entry_and_previous(self, store: Store) -> None:
        start = await store.revision()
        await store.commit([Put("/a", b"1")])
        await store.commit([Put("/a", b"2")])
        await store.commit([Delete("/a")])
        one, two = Entry("/a", b"1", start + 1, start + 1), Entry("/a", b"2", start + 2, start + 1)
        assert await take(store.watch("/", after=start), 3) == [
            Event("/a", start + 1, one, None),
            Event("/a", start + 2, two, one),
            Event("/a", start + 3, None, two),
        ]

    async def test_watch_from_each_past_revision(self, store: Store) -> None:
        start = await store.revision()
        for n in range(10):
            await store.commit([Put(f"/{n}", b"")])
        for skipped in range(10):
            events = await take(store.watch("/", after=start + skipped), 10 - skipped)
            assert [event.key for event in events] == [f"/{n}" for n in range(skipped, 10)]

    async def test_watch_from_now_sees_only_what_follows(self, store: Store) -> None:
        await store.commit([Put("/a", b"1")])
        watch = store.watch("/", after=await store.revision())
        await store.commit([Put("/b", b"2")])
        assert [event.key for event in await take(watch, 1)] == ["/b"]

    async def test_watch_from_the_future_waits_for_it(self, store: Store) -> None:
        start = await store.revision()
        watch = store.watch("/", after=start + 3)
        for n in range(5):
            await store.commit([Put(f"/{n}", b"")])
        assert [event.key for event in await take(watch, 2)] == ["/3", "/4"]

    async def test_history_flows_into_live_events_without_seam(self, store: Store) -> None:
        start = await store.revision()
        for n in range(50):
            await store.commit([Put(f"/{n}", b"")])
        watch = store.watch("/", after=start)

        async def write() -> None:
            for n in range(50, 100):
                await store.commit([Put(f"/{n}", b"")])

        writing = asyncio.create_task(write())
        events = await take(watch, 100)
        await writing
        assert [event.key for event in events] == [f"/{n}" for n in range(100)]

    async def test_prefix_selects_events(self, store: Store) -> None:
        start = await store.revision()
        await store.commit([Put("/pods/a", b""), Put("/pods0", b""), Put("/nodes/a", b"")])
        await store.commit([Put("/nodes/b", b"")])
        await store.commit([Put("/pods/b", b"")])
        assert [event.key for event in await take(store.watch("/pods/", after=start), 2)] == ["/pods/a", "/pods/b"]
        assert [event.key for event in await take(store.watch("/nodes/", after=start), 2)] == ["/nodes/a", "/nodes/b"]

    async def test_a_batch_never_splits_a_commit(self, store: Store) -> None:
        start = await store.revision()
        for n in range(20):
            await store.commit([Put(f"/{n}/{part:02}", b"x" * 1000) for part in range(50)])
        watch = store.watch("/", after=start)
        seen = 0
        async with asyncio.timeout(60):
            while seen < 1000:
                batch = await anext(watch)
                assert len(batch) % 50 == 0
                seen += len(batch)

    async def test_events_of_a_commit_come_in_its_order(self, store: Store) -> None:
        await store.commit([Put("/c", b"")])
        start = await store.revision()
        await store.commit([Put("/z", b""), Delete("/c"), Put("/a", b"")])
        assert [event.key for event in await take(store.watch("/", after=start), 3)] == ["/z", "/c", "/a"]

    async def test_rewriting_the_same_value_is_an_event(self, store: Store) -> None:
        start = await store.commit([Put("/a", b"1")])
        await store.commit([Put("/a", b"1")])
        assert len(await take(store.watch("/", after=start), 1)) == 1

    async def test_watcher_sees_a_commit_no_later_than_a_read_that_follows(self, store: Store) -> None:
        watch = store.watch("/", after=await store.revision())
        for n in range(20):
            revision = await store.commit([Put("/a", str(n).encode())])
            events = await take(watch, 1)
            assert events[-1].revision == revision
            assert (await store.list("/")).revision >= revision

    async def test_two_hundred_watchers_see_the_same(self, store: Store) -> None:
        start = await store.revision()
        watches = [store.watch("/" if n % 2 else "/a", after=start) for n in range(200)]
        reading = [asyncio.create_task(take(watch, 10)) for watch in watches]
        await asyncio.sleep(0)
        for n in range(10):
            await store.commit([Put(f"/a{n}", b"")])
        results = await asyncio.gather(*reading)
        assert {tuple(event.revision for event in events) for events in results} == {
            tuple(range(start + 1, start + 11))
        }

    async def test_slow_watcher_gets_everything_or_compacted(self, store: Store) -> None:
        """It must never see a gap, however far it falls behind."""
        start = await store.revision()
        watch = store.watch("/", after=start)
        await store.commit([Put("/0", b"")])
        seen = await take(watch, 1)
        for n in range(1, 301):
            await store.commit([Put(f"/{n % 50}", b"x" * 20_000)])
        try:
            while len(seen) < 301:
                seen += await take(watch, 1)
        except Compacted:
            pass
        assert [event.revision for event in seen] == list(range(start + 1, start + 1 + len(seen)))

    async def test_cancelled_read_loses_nothing(self, store: Store) -> None:
        start = await store.revision()
        watch = store.watch("/", after=start)
        seen: list[Event] = []
        for n in range(30):
            reading = asyncio.create_task(anext(watch))
            await asyncio.sleep(0)
            writing = asyncio.create_task(store.commit([Put("/a", str(n).encode())]))
            if n % 3:
                await writing
            reading.cancel()
            try:
                seen += await reading
            except asyncio.CancelledError:
                pass
            await writing
        seen += await take_until(watch, start + 30) if not seen or seen[-1].revision < start + 30 else []
        assert [event.entry and int(event.entry.value) for event in seen] == list(range(30))


class TestLife:
    async def test_data_survive_reopening(self, backend: Backend) -> None:
        async with backend.open() as store:
            created = await store.commit([Put("/a", b"1"), Put("/gone", b"1")])
            revision = await store.commit([Put("/a", b"2"), Delete("/gone")])
        async with backend.open() as store:
            assert await store.revision() == revision
            assert await store.get("/a") == Entry("/a", b"2", revision, created)
            assert await keys_of(store, "/", revision=created) == ["/a", "/gone"]
            assert [event.key for event in await take(store.watch("/", after=created), 2)] == ["/a", "/gone"]
            with pytest.raises(CompareFailed):
                await store.commit([Put("/a", b"3", created)])

    async def test_revision_never_falls_back_after_compaction_and_reopening(self, backend: Backend) -> None:
        async with backend.open() as store:
            await store.commit([Put("/a", b"1")])
            revision = await store.commit([Delete("/a")])
            await store.compact(revision)
        async with backend.open() as store:
            assert await store.revision() == revision
            assert await store.commit([Put("/a", b"2", 0)]) == revision + 1

    async def test_watch_of_a_closed_store_ends_with_an_error(self, backend: Backend) -> None:
        async with backend.open() as store:
            reading = asyncio.create_task(anext(store.watch("/", after=await store.revision())))
            await asyncio.sleep(0.05)
        with pytest.raises(errors.Unavailable):
            async with asyncio.timeout(60):
                await reading

    async def test_commit_on_a_closed_store_is_refused(self, backend: Backend) -> None:
        async with backend.open() as store:
            pass
        with pytest.raises(errors.Unavailable):
            await store.commit([Put("/a", b"1")])

    async def test_commits_in_flight_when_closing_are_finished(self, backend: Backend) -> None:
        async with backend.open() as store:
            writing = [asyncio.create_task(store.commit([Put(f"/{n}", b"")])) for n in range(20)]
            await asyncio.sleep(0)
        results = await asyncio.gather(*writing, return_exceptions=True)
        async with backend.open() as store:
            kept = set(await keys_of(store, "/"))
        for n, result in enumerate(results):
            assert isinstance(result, int | errors.Unavailable)
            if isinstance(result, int):
                assert f"/{n}" in kept
