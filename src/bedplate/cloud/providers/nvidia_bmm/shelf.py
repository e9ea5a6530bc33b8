"""Things that change rarely (types, sites, machines), read once and kept for long.

In: a function that reads one. Out: the thing; one reading at a time per key. When it cannot be read again the old one
goes on being used: a type's name does not change because the cloud is down.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from bedplate.cloud.errors import CloudError
from bedplate.cloud.instancecache import SingleFlight
from bedplate.core import clock

__all__ = ["Shelf"]

T = TypeVar("T")


class Shelf(Generic[T]):
    """Values by key, each good for `keep_s`."""

    def __init__(self, read: Callable[[str], Awaitable[T]], *, keep_s: float, time: clock.Clock) -> None:
        self._read = read
        self._keep_s = keep_s
        self._time = time
        self._kept: dict[str, tuple[float, T]] = {}
        self._flights = SingleFlight()

    async def get(self, key: str) -> T:
        """The thing; raises what reading it raises, when there is no old one."""
        kept = self._kept.get(key)
        if kept is not None and self._time.monotonic() < kept[0]:
            return kept[1]
        try:
            return await self._flights.run(key, lambda: self._fetch(key))
        except CloudError:
            if kept is None:
                raise
            return kept[1]

    async def _fetch(self, key: str) -> T:
        value = await self._read(key)
        self._kept[key] = (self._time.monotonic() + self._keep_s, value)
        return value
