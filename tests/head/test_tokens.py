"""Bearer tokens in the store: digests only, expiry, revocation on every head, last use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.head.tokens import TOKENS, USER, Tokens
from bedplate.store.interface import Put, Store


async def opened(store: Store, clock: ManualClock | None = None) -> Tokens:
    tokens = Tokens(store, clock=clock or ManualClock())
    await tokens.open()
    return tokens


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_the_store_holds_a_digest_and_a_restart_knows_the_token(store: Store) -> None:
    token, text = await (await opened(store)).create(USER, "olga", "laptop", by="root")
    page = await store.list(TOKENS)
    assert text.rsplit("_", 1)[1].encode() not in page.entries[0].value
    again = (await opened(store)).find(text)
    assert again is not None and (again.id, again.subject, again.name, again.by) == (token.id, "olga", "laptop", "root")


async def test_a_changed_letter_makes_it_nobodys(store: Store) -> None:
    tokens = await opened(store)
    _, text = await tokens.create(USER, "olga", "")
    other = text[:-1] + ("0" if text[-1] != "0" else "1")
    assert tokens.find(other) is None
    assert tokens.find("xyz" + text[3:]) is None


async def test_a_token_ends_when_it_was_told_to(store: Store) -> None:
    clock = ManualClock()
    tokens = await opened(store, clock)
    _, text = await tokens.create(USER, "olga", "", lasts=timedelta(days=2))
    clock.jump(timedelta(days=2).total_seconds() - 1)
    assert tokens.find(text) is not None
    clock.jump(1)
    assert tokens.find(text) is None
    assert len(tokens.list()) == 1, "it is still listed, so that people see why it is refused"
    clock.jump(timedelta(days=31).total_seconds())
    await tokens.note()
    assert tokens.list() == [] and (await store.list(TOKENS)).entries == []


async def test_a_revoked_token_is_refused_by_another_head_too(store: Store) -> None:
    one, other = await opened(store), await opened(store)
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(other.run())
        token, text = await one.create(USER, "olga", "")
        await until(lambda: other.find(text) is not None)
        await one.revoke(token.id)
        assert one.find(text) is None
        await until(lambda: other.find(text) is None)
        following.cancel()
    with pytest.raises(errors.NotFound, match=token.id):
        await one.revoke(token.id)


async def test_the_last_use_is_shown_and_kept(store: Store) -> None:
    clock = ManualClock()
    tokens = await opened(store, clock)
    _, text = await tokens.create(USER, "olga", "")
    assert tokens.list()[0].used == ""
    clock.jump(60)
    tokens.find(text)
    assert tokens.list()[0].used == "2026-01-01T00:01:00Z"
    await tokens.note()
    assert (await opened(store)).list()[0].used == "2026-01-01T00:01:00Z"


async def test_noting_a_use_does_not_bring_back_what_another_head_revoked(store: Store) -> None:
    one, other = await opened(store), await opened(store)
    token, text = await one.create(USER, "olga", "")
    await other.open()
    assert other.find(text) is not None
    await one.revoke(token.id)
    await other.note()
    assert (await store.list(TOKENS)).entries == []


async def test_one_damaged_record_locks_nobody_out(store: Store) -> None:
    tokens = await opened(store)
    _, text = await tokens.create(USER, "olga", "")
    await store.commit([Put(f"{TOKENS}broken", b"{")])
    assert (await opened(store)).find(text) is not None
