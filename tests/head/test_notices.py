"""Notices beside the tree: order, bounds, restarts, two heads."""

from __future__ import annotations

import asyncio

import pytest
from tests.waiting import DEADLINE_S, until

from bedplate.core.clock import ManualClock
from bedplate.head.notices import NOTICES, News, Notices
from bedplate.store.interface import OutcomeUnknown, Store


@pytest.fixture
async def notices(store: Store) -> Notices:
    async with Notices(store, clock=ManualClock(), kept=5, share=5) as opened:
        return opened


async def test_the_newest_come_first_and_old_ones_go(notices: Notices, store: Store) -> None:
    for number in range(8):
        await notices.add("node001" if number % 2 else "node002", f"n{number}")
    assert [one.text for one in notices.latest()] == ["n7", "n6", "n5", "n4", "n3"]
    assert [one.text for one in notices.latest(1, host="node002")] == ["n6"]
    assert [one.id for one in notices.latest(2, before=7)] == [6, 5]
    assert [one.id for one in notices.since(6)] == [7, 8]
    assert len((await store.list(NOTICES)).entries) == 5
    assert notices.latest(1)[0].time == "2026-01-01T00:00:00.000Z"


async def test_they_outlive_a_restart_and_numbers_go_on(notices: Notices, store: Store) -> None:
    await notices.add_all([News("node001", "a"), News("node001", "b", "warning", 4)])
    async with Notices(store) as again:
        assert [(one.id, one.text, one.severity, one.revision) for one in again.latest()] == [
            (2, "b", "warning", 4),
            (1, "a", "notice", 0),
        ]
        assert (await again.add("node002", "c")).id == 3


async def test_one_host_does_not_push_out_what_others_told(store: Store) -> None:
    async with Notices(store, kept=10, share=4) as notices, Notices(store, kept=10, share=4) as other:
        await notices.add("node001", "the one that matters", "warning")
        for _ in range(10):
            await notices.add_all([News("noisy", str(number)) for number in range(3)])
        assert [one.host for one in notices.latest()] == ["noisy"] * 4 + ["node001"]
        assert len((await store.list(NOTICES)).entries) == 5
        await other.catch_up()
        assert other.latest() == notices.latest()
    async with Notices(store, kept=10, share=2) as again:
        assert [one.host for one in again.latest()] == ["noisy"] * 2 + ["node001"]
        await again.add("node001", "next")
        assert len((await store.list(NOTICES)).entries) == 4


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain text, 20 °C", "plain text, 20 °C"),
        ("two\nlines\tand\r\nmore\u2028still", "two lines and more still"),
        ("\x1b[31mred\x07 \x9b2J", "?[31mred? ?2J"),
        ("\u202eevil\u2066\u200b", "?evil??"),
        ("x" * 900, "x" * 499 + "…"),
    ],
)
async def test_a_notice_is_one_line_that_can_be_printed(notices: Notices, text: str, line: str) -> None:
    notice = await notices.add(text, text)
    assert (notice.host, notice.text) == (line, line)


async def test_two_heads_take_turns_and_see_each_other(store: Store) -> None:
    async with Notices(store) as notices, Notices(store) as other:
        follow = asyncio.create_task(notices.follow())
        try:
            await asyncio.gather(
                *(
                    one.add(name, f"{name} {number}")
                    for number in range(10)
                    for one, name in ((notices, "a"), (other, "b"))
                )
            )
            await until(lambda: notices.last >= 20)
        finally:
            follow.cancel()
            await asyncio.gather(follow, return_exceptions=True)
        await other.catch_up()
        told = [one.text for one in other.latest()]
        assert sorted(told) == sorted(f"{name} {number}" for name in "ab" for number in range(10))
        assert [one.id for one in other.latest()] == list(range(20, 0, -1))


async def test_a_stream_gives_each_once_in_order(notices: Notices) -> None:
    await notices.add("node001", "before")
    seen: list[str] = []

    async def read() -> None:
        async for notice in notices.stream(0):
            seen.append(notice.text)
            if len(seen) == 4:
                return

    reading = asyncio.create_task(read())
    await notices.add_all([News("node001", str(number)) for number in range(3)])
    async with asyncio.timeout(DEADLINE_S):
        await reading
    assert seen == ["before", "0", "1", "2"]


async def test_a_commit_of_unknown_outcome_is_not_told_twice(
    notices: Notices, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = store.commit

    async def lost(ops: object) -> int:
        await commit(ops)  # type: ignore[arg-type]
        monkeypatch.undo()
        raise OutcomeUnknown("the answer was lost")

    monkeypatch.setattr(store, "commit", lost)
    assert (await notices.add("node001", "once")).id == 1
    assert [one.text for one in notices.latest()] == ["once"]
    assert (await notices.add("node001", "then")).id == 2
