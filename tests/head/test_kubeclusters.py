"""Waiting for the API server of a cluster that is being made."""

from __future__ import annotations

from typing import Any

import pytest

from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.head.kubeclusters import until_served


class Cluster:
    """A client of an API server that comes up at that second; `refusal` is what it answers then."""

    def __init__(self, clock: ManualClock, at_s: float, refusal: errors.BedplateError | None = None) -> None:
        self._clock = clock
        self._at_s = clock.monotonic() + at_s
        self._refusal = refusal
        self.asked = 0

    async def request(self, method: str, path: str, **about: Any) -> None:
        self.asked += 1
        if self._clock.monotonic() < self._at_s:
            raise errors.Unavailable("connection refused")
        if self._refusal is not None:
            raise self._refusal


class Sleeper(ManualClock):
    """Time passes while somebody sleeps."""

    async def sleep(self, seconds: float) -> None:
        await self.advance(seconds)


@pytest.mark.parametrize("at_s", [0.0, 3.0, 30.0, 600.0])
async def test_an_api_server_that_comes_up_late_is_found_soon_and_not_asked_all_the_time(at_s: float) -> None:
    clock = Sleeper()
    begin_s, cluster = clock.monotonic(), Cluster(clock, at_s)
    told: list[str] = []
    await until_served(cluster, clock, told.append)  # type: ignore[arg-type]
    assert at_s <= clock.monotonic() - begin_s < at_s + 3.0
    assert len(told) == cluster.asked - 1 < at_s / 2 + 5
    assert set(told) <= {"connection refused"}


async def test_one_that_refuses_answers() -> None:
    clock = Sleeper()
    await until_served(Cluster(clock, 0, errors.Denied("no")), clock)  # type: ignore[arg-type]
