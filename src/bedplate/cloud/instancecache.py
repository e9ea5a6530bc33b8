"""What a cloud said of its instances, kept for a short while.

In: a `Source` (the provider's three ways to ask: one instance by key, all of them, those of one name). Out: instances.
Used by every provider that asks an API; generic over what the provider keeps of an instance. The rules:

- One request at a time per key: callers that ask the same in the meantime wait for that answer.
- An answer is good for `ttl_s`. Errors and absences are never kept: the next question goes to the cloud.
- When five different instances have been asked for within a TTL, all are read with one list instead of one call each.
- Absence from a list proves nothing: the instance is then asked for itself, and only the source's own
  `InstanceNotFound` leaves this module. The cache itself never raises it.
- `fresh=True` asks the cloud about this very instance: neither kept answers nor a question already under way will do.
- A list that cannot be had for a reason that does not concern the single calls (refused, undecodable) is not tried
  again for a TTL, and instances are read one by one; when the cloud is down or wants peace, the error is passed on.

Call budget for N instances, when a list page holds P of them: at most 4 + N/P (+ one restart of the list) per TTL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from bedplate.cloud import errors
from bedplate.cloud.http import errors as http_errors
from bedplate.cloud.metrics import InstanceCacheMetrics
from bedplate.core import clock
from bedplate.core.logging import get_logger

__all__ = ["IncompleteList", "InstanceCache", "SingleFlight", "Source"]

T = TypeVar("T")
R = TypeVar("R")
log = get_logger("cloud.instancecache")
# So many different instances asked for within a TTL are worth a list.
LIST_FROM = 5
# Names searched for and not found that `was_absent` remembers.
REMEMBERED_NAMES = 10_000
# A list would fail like the single calls after it, or make things worse: do not replace it by many of these.
_COMMON_FATE = (
    http_errors.Transport,
    http_errors.Unavailable,
    http_errors.RateLimited,
    http_errors.Unauthorized,
)


class IncompleteList(errors.CloudError):
    """All pages were read, but some instances may be on none of them: `instances` is correct but not complete."""

    def __init__(self, message: str, instances: Sequence[Any]) -> None:
        super().__init__(message)
        self.instances = instances


class Source(Protocol[T]):
    """How a provider asks its cloud. All may raise what the HTTP client raises."""

    async def get(self, key: str) -> T:
        """That instance. Raises `InstanceNotFound` only after the provider's own checks."""
        ...

    async def list(self) -> Sequence[T]:
        """All instances: complete, or an error. `IncompleteList` still saves single calls, but proves no absence."""
        ...

    async def search(self, name: str) -> Sequence[T]:
        """All instances of that name: complete, or an error."""
        ...

    def key(self, instance: T) -> str: ...

    def name(self, instance: T) -> str: ...


@dataclass(slots=True)
class _Kept(Generic[R]):
    """`at`: when it was asked for, which says what is newer; `until`: how long the answer is good."""

    value: R
    at: float
    until: float


class _Abandoned(Exception):
    """The caller that asked the cloud was cancelled: another one must ask."""


class SingleFlight:
    """One execution per key at a time; those who come meanwhile share its outcome."""

    def __init__(self) -> None:
        self._flights: dict[Hashable, asyncio.Future[Any]] = {}

    async def run(self, key: Hashable, work: Callable[[], Awaitable[R]]) -> R:
        while (flight := self._flights.get(key)) is not None:
            try:
                # Shielded: a waiter that is cancelled must not cancel the others' answer.
                return await asyncio.shield(flight)
            except _Abandoned:
                continue
        flight = self._flights[key] = asyncio.get_running_loop().create_future()
        try:
            result = await work()
        except Exception as err:
            flight.set_exception(err)
            raise
        except BaseException:
            flight.set_exception(_Abandoned())
            raise
        else:
            flight.set_result(result)
            return result
        finally:
            del self._flights[key]
            # Seen here: it must not be logged as "exception was never retrieved" when no caller waited.
            if not flight.cancelled():
                flight.exception()


class InstanceCache(Generic[T]):
    """The instances of one provider."""

    def __init__(
        self,
        source: Source[T],
        *,
        provider: str,
        ttl_s: float,
        time: clock.Clock,
        metrics: InstanceCacheMetrics,
    ) -> None:
        self._source = source
        self._provider = provider
        self._ttl_s = ttl_s
        self._time = time
        self._metrics = metrics
        self._instances: dict[str, _Kept[T]] = {}
        self._named: dict[str, _Kept[tuple[T, ...]]] = {}
        self._unfound_names: dict[str, float] = {}
        self._asked: dict[str, float] = {}
        self._listed_at, self._listed_names = float("-inf"), frozenset[str]()
        self._no_list_before = self._list_good_until = float("-inf")
        self._flights = SingleFlight()

    async def get(self, key: str, *, fresh: bool = False) -> T:
        """That instance. Raises `InstanceNotFound` only when the source did for this very key."""
        if fresh:
            self._metrics.missed(self._provider)
            return await self._ask(key)
        if (kept := self._good(self._instances, key)) is not None:
            self._metrics.hit(self._provider)
            return kept.value
        self._metrics.missed(self._provider)
        await self._list_if_worth_it(f"key {key}")
        if (kept := self._good(self._instances, key)) is not None:
            return kept.value
        return await self._flights.run(("get", key), lambda: self._ask(key))

    async def find(self, name: str) -> tuple[T, ...]:
        """All instances of that name; empty when a search for this very name found none."""
        if (kept := self._good(self._named, name)) is not None:
            self._metrics.hit(self._provider)
            return kept.value
        self._metrics.missed(self._provider)
        await self._list_if_worth_it(f"name {name}")
        if (kept := self._good(self._named, name)) is not None:
            return kept.value
        return await self._flights.run(("find", name), lambda: self._search(name))

    async def all(self) -> Sequence[T]:
        """Every instance, from a list that is read now and is complete; each once."""
        return await self._flights.run("list", self._list)

    def was_absent(self, name: str, within_s: float) -> bool:
        """Whether a complete list or search, at most that old, held no instance of this name. Asks nobody."""
        absences, presences = [self._unfound_names.get(name, float("-inf"))], [float("-inf")]
        if name in self._named:
            presences.append(self._named[name].at)
        (presences if name in self._listed_names else absences).append(self._listed_at)
        # The latest word counts.
        return max(absences) >= self._time.monotonic() - within_s and max(absences) > max(presences)

    def _good(self, among: Mapping[str, _Kept[R]], key: str) -> _Kept[R] | None:
        kept = among.get(key)
        return kept if kept is not None and self._time.monotonic() < kept.until else None

    def _kept(self, value: R, begun_at: float) -> _Kept[R]:
        # Good from the end of the answer on: a long list over a slow line would else be outdated when it is there.
        return _Kept(value, begun_at, self._time.monotonic() + self._ttl_s)

    async def _ask(self, key: str) -> T:
        begun_at = self._time.monotonic()
        try:
            instance = await self._source.get(key)
        except errors.InstanceNotFound:
            self._instances.pop(key, None)
            raise
        self._instances[key] = self._kept(instance, begun_at)
        return instance

    async def _search(self, name: str) -> tuple[T, ...]:
        begun_at = self._time.monotonic()
        instances = tuple(await self._source.search(name))
        for instance in instances:
            self._instances[self._source.key(instance)] = self._kept(instance, begun_at)
        self._unfound_names.pop(name, None)
        if instances:
            self._named[name] = self._kept(instances, begun_at)
            return instances
        self._named.pop(name, None)
        self._unfound_names[name] = begun_at
        while len(self._unfound_names) > REMEMBERED_NAMES:
            del self._unfound_names[next(iter(self._unfound_names))]
        return instances

    async def _list_if_worth_it(self, asked: str) -> None:
        """Read all instances when enough different ones are wanted and no list is younger than the TTL."""
        now = self._time.monotonic()
        if self._count_asked(asked) < LIST_FROM or now < self._no_list_before:
            return
        # With a TTL of zero nothing is kept, and a list would help nobody.
        if now < self._list_good_until or self._ttl_s <= 0:
            return
        try:
            await self._flights.run("list", self._list)
        except IncompleteList:
            return
        except _COMMON_FATE:
            raise
        except errors.CloudError as err:
            self._no_list_before = self._time.monotonic() + self._ttl_s
            log.warning("cloud.list_unusable", provider=self._provider, reason=str(err), next="one by one")

    def _count_asked(self, asked: str) -> int:
        """Note the question; how many different ones there were within a TTL."""
        # Kept in the order of asking, so that the outdated ones stand in front.
        self._asked.pop(asked, None)
        self._asked[asked] = self._time.monotonic()
        oldest = self._time.monotonic() - self._ttl_s
        while self._asked[first := next(iter(self._asked))] <= oldest and first != asked:
            del self._asked[first]
        return len(self._asked)

    async def _list(self) -> Sequence[T]:
        begun_at = self._time.monotonic()
        try:
            instances = await self._source.list()
        except IncompleteList as err:
            self._take(err.instances, begun_at)
            raise
        self._take(instances, begun_at)
        # An instance that two pages hold is one, not two of one name.
        unique = tuple({self._source.key(instance): instance for instance in instances}.values())
        by_name = _grouped((self._source.name(instance), instance) for instance in unique)
        self._listed_at, self._listed_names = begun_at, frozenset(by_name)
        searched = {name: kept for name, kept in self._named.items() if kept.at > begun_at}
        self._named = {name: self._kept(namesakes, begun_at) for name, namesakes in by_name.items()} | searched
        return unique

    def _take(self, instances: Sequence[T], begun_at: float) -> None:
        self._list_good_until = self._time.monotonic() + self._ttl_s
        # A single answer asked for after the list was begun is newer than it.
        newer = {key: kept for key, kept in self._instances.items() if kept.at > begun_at}
        listed = {self._source.key(instance): self._kept(instance, begun_at) for instance in instances}
        self._instances = listed | newer


def _grouped(pairs: Iterable[tuple[str, T]]) -> dict[str, tuple[T, ...]]:
    groups: dict[str, tuple[T, ...]] = {}
    for name, instance in pairs:
        groups[name] = (*groups.get(name, ()), instance)
    return groups
