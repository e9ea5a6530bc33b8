"""Reading watches in tests: by number of events, with a deadline so that a missing event fails instead of hanging."""

from __future__ import annotations

import asyncio

from tests.waiting import DEADLINE_S

from bedplate.store.interface import Event, Watch


async def take(watch: Watch, count: int) -> list[Event]:
    """The next events, at least `count` of them; fails if they do not come."""
    found: list[Event] = []
    try:
        async with asyncio.timeout(DEADLINE_S):
            while len(found) < count:
                batch = await anext(watch)
                revisions = [event.revision for event in batch]
                assert revisions == sorted(revisions), "events out of order within a batch"
                if batch and found:
                    assert batch[0].revision > found[-1].revision, "a commit was split, repeated or reordered"
                found += batch
    except TimeoutError:
        raise AssertionError(f"only {len(found)} of {count} events came: {found[-3:]}") from None
    return found


async def take_until(watch: Watch, revision: int) -> list[Event]:
    """All events up to one at `revision` or later."""
    found: list[Event] = []
    while not found or found[-1].revision < revision:
        found += await take(watch, 1)
    return found
