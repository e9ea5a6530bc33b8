"""When changes of nodes lead to work on a pool."""

from __future__ import annotations

import asyncio
import itertools

from hypothesis import given
from hypothesis import strategies as st

from bedplate.core.clock import ManualClock
from bedplate.ipam.controller.pacing import FLOOD, Flood, Pace, Pacer, Waiting, due_at

PACE = Pace(quiet_s=0.1, patience_s=0.5, flood_quiet_s=0.2, flood_patience_s=2.0, flood_memory_s=1.0, apart_s=1.0)


class Timeline:
    """A pacer on a clock that stands still, and when it released what."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.released: list[tuple[float, str]] = []
        self.pacer = Pacer("test", self._release, pace=PACE, time=self.clock)
        self.start = self.clock.monotonic()

    def _release(self, key: str) -> None:
        self.released.append((round(self.clock.monotonic() - self.start, 3), key))

    async def play(self, changes: list[tuple[float, str]], then_s: float = 5.0) -> list[tuple[float, str]]:
        task = asyncio.create_task(self.pacer.run())
        now = 0.0
        for at, key in changes:
            await self.clock.advance(at - now)
            now = at
            self.pacer.touch(key)
        await self.clock.advance(then_s)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return self.released


async def test_a_single_change_is_served_after_a_short_quiet() -> None:
    assert await Timeline().play([(0.0, "p")]) == [(0.1, "p")]


async def test_a_trickle_is_served_in_time_although_it_never_pauses() -> None:
    changes = [(number * 0.05, "p") for number in range(80)]
    released = await Timeline().play(changes)
    assert [at for at, _ in released][:3] == [0.5, 1.5, 2.5]


async def test_a_trickle_that_pauses_is_served_once_a_second() -> None:
    changes = [(group * 0.25, "p") for group in range(20) for _ in range(4)]
    released = await Timeline().play(changes)
    assert [at for at, _ in released][:3] == [0.1, 1.1, 2.1]
    assert released[-1][0] <= 4.75 + PACE.apart_s


async def test_a_second_change_after_a_while_does_not_wait() -> None:
    assert await Timeline().play([(0.0, "p"), (1.1, "p")]) == [(0.1, "p"), (1.2, "p")]


async def test_a_flood_is_served_when_it_ends_and_seldom_while_it_lasts() -> None:
    changes = [(number * 0.002, "p") for number in range(3000)]
    released = [at for at, _ in await Timeline().play(changes)]
    assert released[-1] <= 5.998 + PACE.flood_quiet_s + 0.001
    assert len(released) <= 4


async def test_short_pauses_of_a_flood_do_not_end_it() -> None:
    changes = [(burst * 0.15 + number * 0.0001, "p") for burst in range(20) for number in range(40)]
    released = [at for at, _ in await Timeline().play(changes)]
    assert len(released) <= 3


async def test_pools_are_paced_apart() -> None:
    changes = [(0.0, "p"), (0.05, "q"), (0.08, "p")]
    assert await Timeline().play(changes) == [(0.15, "q"), (0.18, "p")]


async def test_after_a_quiet_second_a_single_change_is_quick_again() -> None:
    flood = [(number * 0.001, "p") for number in range(FLOOD * 2)]
    released = await Timeline().play([*flood, (3.0, "p")])
    assert released[-1] == (3.1, "p")


async def test_a_flood_that_lasts_is_served_more_and_more_seldom_but_not_forgotten() -> None:
    changes = [(number * 0.01, "p") for number in range(10_000)]
    released = [at for at, _ in await Timeline().play(changes, then_s=20)]
    spans = [later - sooner for sooner, later in itertools.pairwise(released)]
    assert len(released) <= 20 and max(spans) <= PACE.longest_s + 0.1
    assert released[-1] <= 99.99 + PACE.flood_quiet_s + 0.001


FLOODS = st.one_of(st.none(), st.builds(Flood, st.floats(0, 100), st.integers(1, 50)))


@given(st.floats(0, 100), st.floats(0, 10), st.integers(1, 1000), FLOODS)
def test_nothing_waits_longer_than_patience_nor_less_than_quiet(
    first: float, span: float, changes: int, flood: Flood | None
) -> None:
    waiting = Waiting(first, first + span, changes)
    due = due_at(waiting, flood, PACE)
    patience = PACE.longest_s if waiting.is_flood(flood, PACE) else PACE.patience_s
    assert due <= first + patience
    assert due >= min(first + PACE.patience_s, waiting.last + PACE.quiet_s)
