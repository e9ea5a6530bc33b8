"""One node at a time over the whole site: who has a turn, who waits, what a failure stops, and what survives a head."""

from __future__ import annotations

import asyncio
import functools
import pathlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.ui.rest.serving import KEY
from tests.waiting import until

from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.head.entities import SCHEMA
from bedplate.head.notices import Notices
from bedplate.head.service import Alone, Head
from bedplate.head.turns import Turn, Turns, asked, ended, lapsed
from bedplate.head.vault import Vault
from bedplate.store.interface import Store
from bedplate.store.sqlite import SqliteStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
GROUP = "etcd:kube-default"


# What is decided


def test_one_has_it_and_the_others_wait() -> None:
    one = asked(Turn(), "a", NOW, MINUTE)
    assert one is not None and (one.holder, one.until) == ("a", "2026-01-01T00:01:00.000Z")
    assert asked(one, "b", NOW, MINUTE) is None
    longer = asked(one, "a", NOW + MINUTE / 2, MINUTE)
    assert longer is not None and (longer.since, longer.until) == (one.since, "2026-01-01T00:01:30.000Z")
    assert ended(one, "b", NOW, has_failed=True) == one, "nobody ends another's turn"
    assert ended(one, "a", NOW, has_failed=False) == Turn()


def test_a_failure_stops_all_but_the_one_that_failed() -> None:
    one = asked(Turn(), "a", NOW, MINUTE)
    assert one is not None
    failed = ended(one, "a", NOW, has_failed=True, why="unit not found")
    assert (failed.holder, failed.failed, failed.why) == ("", "a", "unit not found")
    assert asked(failed, "b", NOW, MINUTE) is None
    again = asked(failed, "a", NOW, MINUTE)
    assert again is not None and asked(again, "b", NOW, MINUTE) is None
    assert ended(again, "a", NOW, has_failed=False) == Turn()


def test_what_is_not_given_back_in_time_has_failed() -> None:
    one = asked(Turn(), "a", NOW, MINUTE)
    assert one is not None
    assert lapsed(one, NOW + MINUTE / 2) == one
    late = lapsed(one, NOW + MINUTE)
    assert (late.holder, late.failed) == ("", "a") and "in time" in late.why
    assert lapsed(late, NOW + 9 * MINUTE) == late
    assert lapsed(Turn(), NOW) == Turn()


@given(
    some.lists(
        some.tuples(some.sampled_from(["ask", "end", "fail", "wait"]), some.sampled_from(["a", "b", "c"])), max_size=40
    )
)
def test_whatever_nodes_do_never_do_two_have_it_and_a_failure_is_never_passed_over(
    moves: list[tuple[str, str]],
) -> None:
    turn, now = Turn(), NOW
    for what, node in moves:
        before = turn
        if what == "wait":
            now += MINUTE / 2
            turn = lapsed(turn, now)
        elif what == "ask":
            given_ = asked(turn, node, now, MINUTE)
            assert given_ is None or before.holder in ("", node)
            assert given_ is None or before.failed in ("", node)
            turn = given_ or turn
        else:
            turn = ended(turn, node, now, has_failed=what == "fail")
        if before.failed and not turn.failed:
            assert before.holder == before.failed == node, "only its own success ends a failure"


# What is kept


class Site:
    def __init__(self, store: Store, head: Head, notices: Notices, clock: ManualClock) -> None:
        self.store, self.head, self.notices, self.clock = store, head, notices, clock
        self.turns = self.another()

    def another(self) -> Turns:
        return Turns(self.store, self.head, self.notices, clock=self.clock)

    def told(self) -> list[str]:
        return [one.text for one in self.notices.latest()]

    def is_waiting(self, node: str) -> bool:
        return node in self.turns.states()[0].waiting

    async def take(self, node: str, wait_s: float = 0.0, lasts_s: float = 60.0) -> bool:
        return (await self.turns.take(node, GROUP, wait_s=wait_s, lasts_s=lasts_s)).is_granted


@pytest.fixture
async def site(tmp_path: pathlib.Path) -> AsyncIterator[Site]:
    clock = ManualClock()
    async with (
        SqliteStore(tmp_path / "x.db", clock=clock, history_s=None) as store,
        Head(store, SCHEMA, Vault(KEY), clock=clock, standing=Alone("basecm10", "")) as head,
        Notices(store, clock=clock) as notices,
    ):
        yield Site(store, head, notices, clock)


async def spin(clock: ManualClock, *tasks: asyncio.Task[object]) -> None:
    """Let tasks work with the store while time moves on in small steps."""
    for _ in range(4000):
        if all(task.done() for task in tasks):
            return
        await asyncio.sleep(0.005)
        await clock.advance(0.02)
    raise AssertionError("they did not end")


async def test_those_who_wait_get_it_one_after_the_other_in_the_order_they_came(site: Site) -> None:
    assert await site.take("a")
    got: list[str] = []

    async def work(node: str) -> None:
        assert await site.take(node, wait_s=90.0)
        got.append(node)
        assert [state.node for state in site.turns.states()] == [node]
        await asyncio.sleep(0.01)
        await site.turns.end(node, GROUP, has_failed=False)

    tasks = []
    for node in ("c", "b", "d"):
        tasks.append(asyncio.create_task(work(node)))
        await until(functools.partial(site.is_waiting, node))
    assert site.turns.states()[0].waiting == ["c", "b", "d"]
    assert not await site.take("e")
    await site.turns.end("a", GROUP, has_failed=False)
    assert not await site.take("e"), "who comes later does not pass those who wait"
    await spin(site.clock, *tasks)
    for task in tasks:
        task.result()
    assert got == ["c", "b", "d"]
    assert site.turns.states() == []
    assert site.told() == []


async def test_a_failure_stops_the_others_until_the_node_is_well_or_somebody_says_so(site: Site) -> None:
    assert await site.take("a")
    await site.turns.end("a", GROUP, has_failed=True, why="unit not found")
    assert site.told()[0] == (
        f"Turn {GROUP} failed on a: unit not found; others wait until it is well again, or turns release {GROUP}"
    )
    refused = await site.turns.take("b", GROUP, wait_s=0, lasts_s=60)
    assert (refused.is_granted, refused.failed, refused.why) == (False, "a", "unit not found")
    assert site.turns.braked_by("a") == [GROUP] and site.turns.braked_by("b") == []
    await site.turns.recovered("b")
    assert not await site.take("b")
    await site.turns.recovered("a")
    assert await site.take("b")
    assert site.told()[0] == f"Turns of {GROUP} go on: a is well again"
    await site.turns.end("b", GROUP, has_failed=True)
    released = await site.turns.release(GROUP, "anna")
    assert released.failed == "" and await site.take("c")
    assert "anna released them" in site.told()[0]
    await site.turns.end("c", GROUP, has_failed=False)
    with pytest.raises(errors.NotFound):
        await site.turns.release(GROUP, "anna")
    assert await site.take("a")
    await site.turns.end("a", GROUP, has_failed=True)
    assert await site.take("a"), "the one that failed may try again"
    await site.turns.end("a", GROUP, has_failed=False)
    assert await site.take("b")


async def test_a_turn_that_is_not_given_back_is_taken_back_in_time(site: Site) -> None:
    running = asyncio.create_task(site.turns.run())
    assert await site.take("a", lasts_s=30)
    for _ in range(4000):
        await asyncio.sleep(0.005)
        await site.clock.advance(0.5)
        if site.told():
            break
    assert "did not give the turn back in time" in site.told()[0]
    assert not await site.take("b")
    state = await site.turns.end("a", GROUP, has_failed=False)
    assert state.failed == "a", "too late: it is no longer its turn"
    running.cancel()


async def test_a_head_that_takes_over_knows_who_has_it_and_who_failed(site: Site) -> None:
    assert await site.take("a")
    other = site.another()
    await other.book.open()
    assert not (await other.take("b", GROUP, wait_s=0, lasts_s=60)).is_granted
    await other.end("a", GROUP, has_failed=True, why="x")
    assert not await site.take("b")
    # The first one has not heard of it; the store has the last word.
    assert (await site.turns.end("a", GROUP, has_failed=False)).failed == "a"
    assert not await site.take("b")


async def test_who_may_no_longer_ask_does_not_wait_on(site: Site) -> None:
    assert await site.take("a")

    def check() -> None:
        raise errors.Denied("revoked")

    waiting = asyncio.create_task(site.turns.take("b", GROUP, wait_s=60, lasts_s=60, check=check))
    await spin(site.clock, waiting)
    with pytest.raises(errors.Denied):
        waiting.result()
    assert site.turns.states()[0].waiting == []
