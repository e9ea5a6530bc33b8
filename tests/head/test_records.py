"""Commits of many objects, on stores that take few at a time; and heads that stop in the middle of one."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence

import pytest
from tests.head.committing import commit_session, undo

from bedplate.core import errors
from bedplate.head import records
from bedplate.head.entities import SCHEMA
from bedplate.head.service import Head
from bedplate.head.vault import Vault
from bedplate.store.interface import Op, Put, Store


async def many(head: Head, count: int = 300) -> None:
    session = head.session()
    for number in range(count):
        session.add(("category",), f"c{number:03d}")
    await commit_session(head, session, "alice")


async def settled(head: Head) -> None:
    """The objects of a large commit are recorded after it was answered."""
    await head._ledger.close()


async def mark(store: Store) -> int:
    latest = await store.get(records.LATEST)
    return int(latest.value) if latest is not None else 0


async def test_a_commit_of_many_objects_is_one_revision_and_is_recorded_whole(
    head: Head, store: Store, vault: Vault
) -> None:
    await many(head)
    await settled(head)
    assert head.revision == await mark(store) == 1
    assert len((await store.list(records.OBJECTS)).entries) == 300
    async with Head(store, SCHEMA, vault) as other:
        assert other.tree == head.tree
    session = head.session()
    for number in range(300):
        session.remove(("category", f"c{number:03d}"))
    await commit_session(head, session, "alice")
    await settled(head)
    assert (await store.list(records.OBJECTS)).entries == []
    assert (await undo(head, 2, "alice")) is not None
    assert len(head.tree.mode("category")) == 300


async def test_a_store_is_given_as_many_objects_in_one_commit_as_it_takes(head: Head, store: Store) -> None:
    before = await store.revision()
    await many(head, 1000)
    await settled(head)
    # Two ops of each commit are the revision and the mark.
    batches = 0 if store.most_ops > 1000 else math.ceil(1000 / (store.most_ops - 2))
    assert await store.revision() == before + 1 + batches
    assert await mark(store) == 1


async def test_nobody_waits_until_the_objects_of_a_large_commit_are_recorded(store: Store, vault: Vault) -> None:
    async with Head(store, SCHEMA, vault) as head:
        await many(head, 1500)
        assert await mark(store) == 0, "the revision is written, and that is enough"
        async with Head(store, SCHEMA, vault) as other:
            assert other.tree == head.tree
        session = head.session()
        session.set(("category", "c007"), "notes", "meanwhile")
        await commit_session(head, session, "bob")
        await settled(head)
        assert await mark(store) == head.revision == 2
        assert len((await store.list(records.OBJECTS)).entries) == 1500
    async with Head(store, SCHEMA, vault) as again:
        assert again.tree == head.tree


class Stops:
    """A store that takes few ops at a time and answers only so many commits, then is gone."""

    most_ops = 62

    def __init__(self, store: Store, commits: int) -> None:
        self._store = store
        self.left = commits

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def commit(self, ops: Sequence[Op]) -> int:
        if not self.left:
            raise errors.Unavailable("gone")
        self.left -= 1
        return await self._store.commit(ops)


@pytest.mark.parametrize("commits", [1, 2, 3, 5])
async def test_what_a_head_left_half_recorded_the_next_one_completes(store: Store, vault: Vault, commits: int) -> None:
    async with Head(store, SCHEMA, vault) as head:
        await many(head, 10)
    async with Head(Stops(store, commits), SCHEMA, vault) as head:  # type: ignore[arg-type]
        session = head.session()
        for number in range(300):
            name = f"c{number:03d}"
            if number < 5:
                session.remove(("category", name))
            elif number < 10:
                session.set(("category", name), "notes", "x")
            else:
                session.add(("category",), name)
        await commit_session(head, session, "alice")
        expected = session.tree
    async with Head(store, SCHEMA, vault) as head:
        assert head.revision == 2
        assert head.tree == expected
        assert await mark(store) == 1
        again = head.session()
        again.set(("category", "c007"), "notes", "y")
        again.add(("category",), "c000")
        await commit_session(head, again, "bob")
        await settled(head)
        assert await mark(store) == head.revision == 3
        async with Head(store, SCHEMA, vault) as other:
            assert other.tree == head.tree
        assert len((await store.list(records.OBJECTS)).entries) == 296
        assert await head.tree_at(2) == expected


async def test_records_newer_than_the_mark_do_not_stop_the_log_from_being_read(store: Store, vault: Vault) -> None:
    async with Head(store, SCHEMA, vault) as head:
        await many(head, 10)
    async with Head(Stops(store, 1), SCHEMA, vault) as head:  # type: ignore[arg-type]
        session = head.session()
        session.set(("category", "c000"), "notes", "x")
        for number in range(100):
            session.add(("category",), f"d{number:03d}")
        await commit_session(head, session, "alice")
    async with Head(Stops(store, 2), SCHEMA, vault) as head:  # type: ignore[arg-type]
        session = head.session()
        session.remove(("category", "c000"))
        await commit_session(head, session, "bob")
    assert await store.get(f"{records.OBJECTS}category/c000") is None
    assert await mark(store) == 1
    async with Head(store, SCHEMA, vault) as head:
        assert head.revision == 3
        assert len(head.tree.mode("category")) == 109


async def test_a_slow_head_does_not_write_old_objects_over_newer_ones(store: Store, vault: Vault) -> None:
    slow = Stops(store, 1)
    async with Head(slow, SCHEMA, vault) as head, Head(store, SCHEMA, vault) as other:  # type: ignore[arg-type]
        await many(head)
        await settled(head)
        await other.catch_up()
        session = other.session()
        session.set(("category", "c000"), "notes", "newer")
        await commit_session(other, session, "bob")
        slow.left = 1
        with contextlib.suppress(errors.Unavailable):
            await head._ledger._snapshot.settle(head.tree, head.revision)
        async with Head(store, SCHEMA, vault) as third:
            assert third.tree == other.tree
            assert third.tree.get(("category", "c000")).values == {"notes": "newer"}


async def test_a_hand_that_skips_a_revision_is_noticed(store: Store, vault: Vault, head: Head) -> None:
    await many(head, 1)
    first = await store.get(records.revision_key(1))
    assert first is not None
    await store.commit([Put(records.revision_key(3), first.value.replace(b'"number":1', b'"number":3'))])
    with pytest.raises(errors.Unavailable, match="revision 2 is missing"):
        await head.catch_up()
