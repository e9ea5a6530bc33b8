"""What every store promises about commits and reads, run on every backend. Revisions are compared relative to where a
test began, because an etcd is shared by many tests."""

from __future__ import annotations

import asyncio

import pytest
from tests.store.conftest import keys_of
from tests.store.watching import take

from bedplate.core import errors
from bedplate.store.interface import CompareFailed, Delete, Entry, FutureRevision, Put, Store


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
        with pytest.raises(errors.Invalid):
            await store.get(key)

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
        await store.commit([Put(key, b"") for key in ("/j", "/k/a", "/k/c", "/k/e", "/l")])
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
