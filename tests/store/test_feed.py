"""The recent events of the SQLite store: what wakes a watch, what moves it on, what it is spared."""

from __future__ import annotations

import asyncio

import pytest

from bedplate.core import errors
from bedplate.store.interface import Batch, Compacted, Entry, Event
from bedplate.store.sqlite.feed import Feed, Watch


def event(key: str, revision: int) -> Event:
    return Event(key, revision, Entry(key, b"", revision, revision), None)


async def no_history(prefix: str, after: int) -> tuple[Batch, int]:
    raise AssertionError("memory should have been enough")


async def start(watch: Watch) -> asyncio.Task[Batch]:
    reading = asyncio.create_task(asyncio.wait_for(watch.__anext__(), 30))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return reading


async def test_commit_of_others_right_after_ours_does_not_hide_it() -> None:
    feed = Feed(10, 1, no_history)
    reading = await start(Watch(feed, "/a", 10))
    feed.publish([[event("/a", 11)]])
    feed.publish([[event("/b", 12)]])
    assert await reading == [event("/a", 11)]


async def test_commits_of_others_do_not_wake_a_watch_but_move_it_on() -> None:
    feed = Feed(10, 1, no_history)
    watch = Watch(feed, "/a", 10)
    reading = await start(watch)
    for revision in range(11, 20_000):
        feed.publish([[event("/b", revision)]])
    await asyncio.sleep(0)
    assert not reading.done()
    feed.publish([[event("/a", 20_000)]])
    assert await reading == [event("/a", 20_000)]


async def test_closing_ends_waiting_and_later_reads() -> None:
    feed = Feed(10, 1, no_history)
    watch = Watch(feed, "/a", 10)
    reading = await start(watch)
    feed.close(errors.Unavailable("closed"))
    with pytest.raises(errors.Unavailable):
        await reading
    with pytest.raises(errors.Unavailable):
        await watch.__anext__()


async def test_new_watch_below_the_oldest_is_refused_though_memory_has_it() -> None:
    feed = Feed(10, 1, no_history)
    feed.publish([[event("/a", 11)], [event("/a", 12)]])
    feed.oldest = 12
    with pytest.raises(Compacted):
        await Watch(feed, "/", 11).__anext__()


async def test_cancelled_reads_leave_nothing_behind() -> None:
    feed = Feed(10, 1, no_history)
    for _ in range(5):
        reading = await start(Watch(feed, "/a", 10))
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    assert not feed.waiting
