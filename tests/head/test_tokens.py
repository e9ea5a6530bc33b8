"""Bearer tokens: what is kept of them, their ends, and when they were last used."""

from __future__ import annotations

import asyncio
import pathlib
from datetime import timedelta

import pytest
from tests.waiting import until

from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.head.access import USER
from bedplate.head.policy import NODE
from bedplate.head.tokens import TOKENS, Tokens
from bedplate.store.interface import Page, Put, Store
from bedplate.store.sqlite import SqliteStore


async def opened(store: Store, clock: ManualClock | None = None) -> Tokens:
    tokens = Tokens(store, clock=clock or ManualClock())
    await tokens.open()
    return tokens


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


async def test_the_uses_of_thousands_of_tokens_share_a_few_commits_and_are_written_now_and_then(
    tmp_path: pathlib.Path,
) -> None:
    """Every node asks all the time, with a token of its own."""
    clock = ManualClock()
    async with SqliteStore(tmp_path / "x.db", history_s=None) as store:
        tokens = await opened(store, clock)
        texts = [(await tokens.create(NODE, f"node{number}", ""))[1] for number in range(250)]
        written = []
        for _ in range(12):
            clock.jump(60)
            for text in texts:
                assert tokens.find(text) is not None
            before = await store.revision()
            await tokens.note()
            written.append(await store.revision() - before)
            assert {token.used for token in tokens.list()} == {f"2026-01-01T00:{len(written):02}:00Z"}
        assert written == [3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0]


async def test_a_use_that_another_head_noted_first_is_noted_the_next_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    one = await opened(store, clock)
    _, text = await one.create(USER, "olga", "")
    clock.jump(60)
    one.find(text)
    listed = store.list

    async def late(prefix: str) -> Page:
        page = await listed(prefix)
        (entry,) = page.entries
        await store.commit([Put(entry.key, entry.value)])
        return page

    with monkeypatch.context() as patched:
        patched.setattr(store, "list", late)
        await one.note()
    assert (await opened(store)).list()[0].used == ""
    await one.note()
    assert (await opened(store)).list()[0].used == "2026-01-01T00:01:00Z"


async def test_a_record_that_is_damaged_meanwhile_stops_nothing(store: Store) -> None:
    clock = ManualClock()
    tokens = await opened(store, clock)
    texts = [(await tokens.create(USER, name, ""))[1] for name in ("anna", "olga")]
    clock.jump(60)
    for text in texts:
        tokens.find(text)
    await store.commit([Put(TOKENS + tokens.list()[0].id, b"{")])
    await tokens.note()
    assert [token.used for token in (await opened(store)).list()] == ["2026-01-01T00:01:00Z"]
