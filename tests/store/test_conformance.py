"""What every store promises, run on every backend. Revisions are compared relative to where a test began, because an
etcd is shared by many tests."""

from __future__ import annotations

import asyncio

import pytest
from tests.store.conftest import Backend, compact
from tests.store.watching import take, take_until

from bedplate.core import errors
from bedplate.store.interface import Compacted, CompareFailed, Delete, Entry, Event, FutureRevision, Put, Store


async def keys_of(store: Store, prefix: str, **options: int | str) -> list[str]:
    return [entry.key for entry in (await store.list(prefix, **options)).entries]  # type: ignore[arg-type]


class TestCommit:
    async def test_first_revision_is_above_zero_so_that_zero_can_mean_absent(self, store: Store) -> None:
        assert await store.revision() >= 1

    async def test_each_commit_gets_the_next_revision(self, store: Store) -> None:
        start = await store.revision()
        assert [await store.commit([Put("/a", b"x")]) for _ in range(3)] == [start + 1, start + 2, start + 3]
        assert await store.revision() == start + 3

    async def test_all_keys_of_a_commit_share_its_revision(self, store: Store) -> None:
        revision = await store.commit([Put("/a", b"1"), Put("/b", b"2"), Put("/c", b"3")])
        assert {entry.revision for entry in (await store.list("/")).entries} == {revision}

    async def test_update_keeps_created_and_moves_revision(self, store: Store) -> None:
        created = await store.commit([Put("/a", b"1")])
        updated = await store.commit([Put("/a", b"2")])
        assert await store.get("/a") == Entry("/a", b"2", updated, created)

    async def test_recreated_key_begins_a_new_life(self, store: Store) -> None:
        await store.commit([Put("/a", b"1")])
        await store.commit([Delete("/a")])
        again = await store.commit([Put("/a", b"2", 0)])
        assert await store.get("/a") == Entry("/a", b"2", again, again)

    async def test_deleted_key_is_absent(self, store: Store) -> None:
        await store.commit([Put("/a", b"1")])
        await store.commit([Delete("/a")])
        assert await store.get("/a") is None
        assert await keys_of(store, "/") == []

    async def test_deleting_a_missing_key_changes_nothing(self, store: Store) -> None:
        start = await store.commit([Put("/a", b"1")])
        assert await store.commit([Delete("/missing")]) == start
        assert await store.revision() == start

    async def test_an_empty_commit_changes_nothing(self, store: Store) -> None:
        start = await store.revision()
        assert await store.commit([]) == start

    async def test_mixed_commit_puts_and_deletes_together(self, store: Store) -> None:
        await store.commit([Put("/old", b"1")])
        revision = await store.commit([Put("/new", b"2"), Delete("/old"), Delete("/missing")])
        assert await keys_of(store, "/") == ["/new"]
        assert await store.revision() == revision

    async def test_empty_value_is_a_value(self, store: Store) -> None:
        revision = await store.commit([Put("/a", b"")])
        assert await store.get("/a") == Entry("/a", b"", revision, revision)

    async def test_values_are_bytes_of_any_kind(self, store: Store) -> None:
        value = bytes(range(256)) * 10
        await store.commit([Put("/a", value)])
        entry = await store.get("/a")
        assert entry is not None and entry.value == value

    async def test_key_twice_in_a_commit_is_refused_whole(self, store: Store) -> None:
        start = await store.revision()
        with pytest.raises(errors.Invalid, match="twice"):
            await store.commit([Put("/a", b"1"), Delete("/a")])
        assert await store.revision() == start

    @pytest.mark.parametrize("key", ["", "\ud800"])
    async def test_unusable_key_is_refused(self, store: Store, key: str) -> None:
        with pytest.raises(errors.Invalid):
            await store.commit([Put(key, b"1")])

    async def test_many_keys_in_one_commit(self, store: Store) -> None:
        revision = await store.commit([Put(f"/k/{n:03}", b"v") for n in range(120)])
        assert len(await keys_of(store, "/k/")) == 120
        assert await store.revision() == revision

    async def test_large_value(self, store: Store) -> None:
        value = b"0123456789abcdef" * 65536
        revision = await store.commit([Put("/big", value)])
        assert await store.get("/big") == Entry("/big", value, revision, revision)
        assert (await take(store.watch("/", after=revision - 1), 1))[0].entry == Entry(
            "/big", value, revision, revision
        )


class TestExpectations:
    async def test_create_only_succeeds_once(self, store: Store) -> None:
        first = await store.commit([Put("/a", b"1", 0)])
        with pytest.raises(CompareFailed) as caught:
            await store.commit([Put("/a", b"2", 0)])
        assert caught.value.current == Entry("/a", b"1", first, first)
        assert (caught.value.key, caught.value.expected) == ("/a", 0)

    async def test_update_at_the_expected_revision_succeeds(self, store: Store) -> None:
        first = await store.commit([Put("/a", b"1")])
        second = await store.commit([Put("/a", b"2", first)])
        assert await store.get("/a") == Entry("/a", b"2", second, first)

    async def test_update_at_another_revision_fails_and_writes_nothing(self, store: Store) -> None:
        first = await store.commit([Put("/a", b"1")])
        second = await store.commit([Put("/a", b"2")])
        with pytest.raises(CompareFailed) as caught:
            await store.commit([Put("/a", b"3", first)])
        assert caught.value.current == Entry("/a", b"2", second, first)
        assert await store.revision() == second

    async def test_update_of_a_missing_key_fails_with_nothing_in_the_way(self, store: Store) -> None:
        first = await store.commit([Put("/a", b"1")])
        await store.commit([Delete("/a")])
        with pytest.raises(CompareFailed) as caught:
            await store.commit([Put("/a", b"2", first)])
        assert caught.value.current is None

    async def test_delete_at_another_revision_fails(self, store: Store) -> None:
        first = await store.commit([Put("/a", b"1")])
        second = await store.commit([Put("/a", b"2")])
        with pytest.raises(CompareFailed):
            await store.commit([Delete("/a", first)])
        assert await store.commit([Delete("/a", second)]) == second + 1

    async def test_delete_that_expects_absence(self, store: Store) -> None:
        start = await store.commit([Put("/a", b"1")])
        assert await store.commit([Delete("/missing", 0)]) == start
        with pytest.raises(CompareFailed):
            await store.commit([Delete("/a", 0)])

    async def test_one_failed_expectation_stops_the_whole_commit(self, store: Store) -> None:
        first = await store.commit([Put("/a", b"1"), Put("/b", b"1")])
        with pytest.raises(CompareFailed) as caught:
            await store.commit([Put("/a", b"2", first), Delete("/b", first - 1), Put("/c", b"2", 0)])
        assert caught.value.key == "/b"
        assert [(entry.key, entry.value) for entry in (await store.list("/")).entries] == [("/a", b"1"), ("/b", b"1")]

    async def test_of_many_racing_creators_one_wins(self, store: Store) -> None:
        results = await asyncio.gather(
            *(store.commit([Put("/lock", str(n).encode(), 0)]) for n in range(30)), return_exceptions=True
        )
        winners = [n for n, result in enumerate(results) if isinstance(result, int)]
        assert len(winners) == 1
        assert all(isinstance(result, CompareFailed) for n, result in enumerate(results) if n not in winners)
        entry = await store.get("/lock")
        assert entry is not None and entry.value == str(winners[0]).encode()

    async def test_concurrent_counters_lose_no_increment(self, store: Store) -> None:
        await store.commit([Put("/n", b"0")])

        async def add() -> None:
            done = 0
            while done < 5:
                entry = await store.get("/n")
                assert entry is not None
                try:
                    await store.commit([Put("/n", str(int(entry.value) + 1).encode(), entry.revision)])
                except CompareFailed:
                    continue
                done += 1

        await asyncio.gather(*(add() for _ in range(8)))
        entry = await store.get("/n")
        assert entry is not None and entry.value == b"40"


class TestReads:
    async def test_get_of_a_missing_key_is_none(self, store: Store) -> None:
        assert await store.get("/missing") is None

    async def test_get_as_of_every_revision(self, store: Store) -> None:
        start = await store.revision()
        first = await store.commit([Put("/a", b"1")])
        await store.commit([Put("/a", b"2")])
        await store.commit([Delete("/a")])
        values = []
        for revision in range(start, await store.revision() + 1):
            entry = await store.get("/a", revision=revision)
            values.append(entry and entry.value)
        assert values == [None, b"1", b"2", None]
        assert await store.get("/a", revision=first) == Entry("/a", b"1", first, first)

    async def test_list_says_the_revision_it_shows(self, store: Store) -> None:
        revision = await store.commit([Put("/a", b"1")])
        assert (await store.list("/")).revision == revision
        assert (await store.list("/none/")).revision == revision
        assert (await store.list("/", revision=revision)).revision == revision

    async def test_list_is_in_key_order_whatever_the_order_of_writing(self, store: Store) -> None:
        for key in ("/b", "/a/z", "/a", "/a-", "/c", "/a/b"):
            await store.commit([Put(key, b"")])
        assert await keys_of(store, "/") == ["/a", "/a-", "/a/b", "/a/z", "/b", "/c"]

    async def test_prefix_ends_where_the_next_sibling_begins(self, store: Store) -> None:
        await store.commit([Put(key, b"") for key in ("/pods", "/pods/", "/pods/a", "/pods0", "/podt", "/pod")])
        assert await keys_of(store, "/pods/") == ["/pods/", "/pods/a"]
        assert await keys_of(store, "/pods") == ["/pods", "/pods/", "/pods/a", "/pods0"]

    async def test_prefix_that_ends_in_the_last_character(self, store: Store) -> None:
        last = "\U0010ffff"
        await store.commit([Put(key, b"") for key in ("a", f"a{last}", f"a{last}{last}", f"a{last}b", "b")])
        assert await keys_of(store, f"a{last}") == [f"a{last}", f"a{last}b", f"a{last}{last}"]
        assert await keys_of(store, last) == []

    async def test_empty_prefix_lists_everything(self, store: Store) -> None:
        await store.commit([Put("/a", b""), Put("zz", b""), Put("\U0010ffff", b"")])
        assert await keys_of(store, "") == ["/a", "zz", "\U0010ffff"]

    async def test_unicode_keys_sort_by_code_point(self, store: Store) -> None:
        names = ["/z", "/é", "/\ud7ff", "/\ue000", "/\uffff", "/\U00010000", "/\U0001f600", "/日本"]
        await store.commit([Put(name, name.encode()) for name in names])
        assert await keys_of(store, "/") == sorted(names)
        assert await keys_of(store, "/\ud7ff") == ["/\ud7ff"]

    async def test_percent_underscore_and_quotes_are_ordinary(self, store: Store) -> None:
        names = ["/%", "/_", "/'", '/"', "/*", "/\\", "/a%b"]
        await store.commit([Put(name, b"") for name in names])
        assert await keys_of(store, "/%") == ["/%"]
        assert await keys_of(store, "/_") == ["/_"]
        assert await keys_of(store, "/") == sorted(names)

    async def test_pages_cover_the_list_once(self, store: Store) -> None:
        names = [f"/k/{n:02}" for n in range(25)]
        await store.commit([Put(name, b"") for name in names])
        await store.commit([Put("/l", b"")])
        seen: list[str] = []
        counts = []
        page = await store.list("/k/", limit=10)
        while True:
            seen += [entry.key for entry in page.entries]
            counts.append((len(page.entries), page.more, page.remaining))
            if not page.more:
                break
            page = await store.list("/k/", limit=10, after=seen[-1], revision=page.revision)
        assert seen == names
        assert counts == [(10, True, 15), (10, True, 5), (5, False, 0)]

    async def test_page_that_ends_exactly_at_the_end_has_no_more(self, store: Store) -> None:
        await store.commit([Put(f"/k/{n}", b"") for n in range(4)])
        page = await store.list("/k/", limit=4)
        assert (len(page.entries), page.more, page.remaining) == (4, False, 0)

    async def test_pages_of_an_old_revision_ignore_later_changes(self, store: Store) -> None:
        old = await store.commit([Put(f"/k/{n}", b"old") for n in range(9)])
        await store.commit([Delete("/k/4"), Put("/k/5", b"new"), Put("/k/55", b"new")])
        await store.commit([Put("/k/4", b"again")])
        seen: list[Entry] = []
        for _ in range(3):
            page = await store.list("/k/", limit=3, revision=old, after=seen[-1].key if seen else "")
            seen += page.entries
        assert [(entry.key, entry.value, entry.revision) for entry in seen] == [
            (f"/k/{n}", b"old", old) for n in range(9)
        ]

    async def test_after_a_key_that_does_not_exist(self, store: Store) -> None:
        await store.commit([Put(key, b"") for key in ("/k/a", "/k/c", "/k/e")])
        assert await keys_of(store, "/k/", after="/k/b") == ["/k/c", "/k/e"]
        assert await keys_of(store, "/k/", after="/") == ["/k/a", "/k/c", "/k/e"]
        assert await keys_of(store, "/k/", after="/z") == []

    async def test_deleted_keys_do_not_fill_a_page(self, store: Store) -> None:
        await store.commit([Put(f"/k/{n:02}", b"") for n in range(30)])
        await store.commit([Delete(f"/k/{n:02}") for n in range(20)])
        page = await store.list("/k/", limit=5)
        assert [entry.key for entry in page.entries] == [f"/k/{n}" for n in range(20, 25)]
        assert page.remaining == 5

    async def test_future_revision_is_refused(self, store: Store) -> None:
        current = await store.commit([Put("/a", b"")])
        with pytest.raises(FutureRevision) as caught:
            await store.get("/a", revision=current + 100)
        assert caught.value.revision == current + 100
        with pytest.raises(FutureRevision):
            await store.list("/", revision=current + 100)


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
            reading = asyncio.create_task(anext(watch))  # type: ignore[arg-type]
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
            reading = asyncio.create_task(anext(store.watch("/", after=await store.revision())))  # type: ignore[arg-type]
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
