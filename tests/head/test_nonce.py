"""A commit that is asked for again: one revision, whoever is asked."""

from __future__ import annotations

import asyncio

import pytest
from tests.head.committing import commit, undo

from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.head.entities import SCHEMA
from bedplate.head.objects import Obj
from bedplate.head.service import Head, Stale
from bedplate.head.session import Edit
from bedplate.head.vault import Vault
from bedplate.store.interface import Store


def made(name: str) -> list[Edit]:
    return [Edit("category", name, None, Obj("Category", name))]


async def test_the_same_nonce_gives_the_same_revision(head: Head) -> None:
    first = await commit(head, made("a"), "anna", nonce="n")
    again = await commit(head, made("a"), "anna", nonce="n")
    assert first is not None
    assert again is not None
    assert first.number == again.number == head.revision == 1
    with pytest.raises(Stale):
        await commit(head, made("a"), "anna", nonce="other")
    with pytest.raises(Stale):
        await commit(head, made("a"), "bert", nonce="n")


async def test_a_nonce_is_of_one_user_even_where_names_hold_slashes(head: Head) -> None:
    await commit(head, made("a"), "anna", nonce="b/n")
    with pytest.raises(errors.Conflict, match="another user"):
        await commit(head, made("a"), "anna/b", nonce="n")


async def test_another_head_that_is_behind_answers_with_it_too(head: Head, store: Store, vault: Vault) -> None:
    async with Head(store, SCHEMA, vault, clock=ManualClock()) as other:
        await commit(head, made("a"), "anna", nonce="n")
        assert other.revision == 0, "it has not heard of it"
        again = await commit(other, made("a"), "anna", nonce="n")
        assert again is not None
        assert (again.number, other.revision) == (1, 1)


async def test_a_head_that_was_started_again_remembers(head: Head, store: Store, vault: Vault) -> None:
    for name in "abc":
        await commit(head, made(name), "anna", nonce=f"n-{name}")
    async with Head(store, SCHEMA, vault) as again:
        for number, name in enumerate("abc", 1):
            found = await commit(again, made(name), "anna", nonce=f"n-{name}")
            assert found is not None
            assert found.number == number
        for _ in range(2):
            revision = await commit(again, made("d"), "anna", nonce="n-d")
            assert revision is not None
            assert revision.number == again.revision == 4


async def test_an_undo_with_a_nonce_is_done_once(head: Head) -> None:
    await commit(head, made("a"), "anna")
    first = await undo(head, 1, "anna", nonce="u")
    again = await undo(head, 1, "anna", nonce="u")
    assert first is not None
    assert again is not None
    assert first.number == again.number == 2


async def test_of_two_heads_asked_at_once_one_commits(head: Head, store: Store, vault: Vault) -> None:
    async with Head(store, SCHEMA, vault) as other:
        for name in ("a", "b", "c", "d"):
            found = await asyncio.gather(
                *(commit(one, made(name), "anna", nonce=f"n-{name}") for one in (head, other) for _ in range(3))
            )
            assert len({one.number for one in found if one is not None}) == 1
            assert None not in found
        await head.catch_up()
        assert head.revision == 4
