"""Keeps a cache equal to the server: list, watch, and what to do when either fails.

In: a client's `list` and `watch_batches`. Out: calls on a `Cache`. The states are values, and `following` is the whole
of the state machine:

    Listing ── listed ──▶ Watching ── ended by the server ──▶ Watching (from the last version)
       ▲  │                  │  │
       │  └─ failed ─▶ Waiting  └─ failed ─▶ Waiting ─▶ Watching (from the last version)
       ├──────── expired (410) ─────┤
       └──── Waiting ◀─ refused ────┘

A relist after 410 replaces the cache in one step. Waits grow with jitter and are reset by progress, so a server that
accepts a watch and drops it at once is not hammered. An error never empties the cache: absence must be listed.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from bedplate.api import identity
from bedplate.api.resources import ResourceRef
from bedplate.core import backoff, clock, errors, logging
from bedplate.kube import errors as kube_errors
from bedplate.kube.codec import ListResult, WatchEvent
from bedplate.runtime.cache import Cache

__all__ = [
    "Ended",
    "Expired",
    "Failed",
    "Listed",
    "Listing",
    "Reflector",
    "Refused",
    "Source",
    "Waiting",
    "Watching",
    "following",
]

T = TypeVar("T")
# `list` is a verb inside the classes below, so its types are named out here.
Batch = list[WatchEvent[Any]]
log = logging.get_logger("runtime.reflector")
# A watch that lived this long was healthy: its end does not call for a wait.
_HEALTHY_WATCH_S = 5.0
# Answers of a server in trouble, which say nothing against the version that the watch was to begin from.
_IN_TROUBLE = (kube_errors.TooManyRequests, kube_errors.InternalError, kube_errors.ServiceUnavailable)


class Source(Protocol):
    """The part of `kube.Client` a reflector needs."""

    async def list(
        self, ref: ResourceRef[T], namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> ListResult[T]: ...

    def watch_batches(
        self,
        ref: ResourceRef[T],
        namespace: str | None = None,
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncGenerator[Batch, None]: ...


# States


class Listing(msgspec.Struct, frozen=True):
    """The cache is to be filled, or filled again, from a complete list."""


class Watching(msgspec.Struct, frozen=True):
    """The cache is complete as of `version`; changes after it are being streamed."""

    version: str


class Waiting(msgspec.Struct, frozen=True):
    """Something failed; after the backoff, go on in `then`."""

    then: Listing | Watching


State = Listing | Watching | Waiting

# What can happen in a state


class Listed(msgspec.Struct, frozen=True):
    version: str


class Ended(msgspec.Struct, frozen=True):
    """The server closed the watch as it does every few minutes; `version` is the last one seen."""

    version: str
    was_healthy: bool


class Expired(msgspec.Struct, frozen=True):
    """The server no longer has the history from our version on."""


class Failed(msgspec.Struct, frozen=True):
    """No answer, or a wrong one; `version` is the last one seen (empty while listing)."""

    version: str


class Refused(msgspec.Struct, frozen=True):
    """The server will not watch from our version, and would not next time: begin with a list, but not at once."""


Outcome = Listed | Ended | Expired | Failed | Refused


def following(state: State, outcome: Outcome | None) -> State:
    """The state after `outcome` (None: a wait is over)."""
    match state, outcome:
        case Waiting(then), None:
            return then
        case Listing(), Listed(version):
            return Watching(version)
        case Listing(), Expired() | Failed():
            return Waiting(Listing())
        case Watching(), Ended(version, was_healthy):
            return Watching(version) if was_healthy else Waiting(Watching(version))
        case Watching(), Expired():
            return Listing()
        case Watching(), Refused():
            return Waiting(Listing())
        case Watching(), Failed(version):
            return Waiting(Watching(version))
    raise AssertionError(f"{outcome} cannot happen in {state}")


class Reflector(Generic[T]):
    """Runs the state machine for one resource (in one namespace, below one selector)."""

    def __init__(
        self,
        source: Source,
        ref: ResourceRef[T],
        cache: Cache[T],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        time: clock.Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._source = source
        self._ref = ref
        self._cache = cache
        self._namespace = namespace
        self._selectors = {"label_selector": label_selector, "field_selector": field_selector}
        self._time = time if time is not None else clock.SystemClock()
        self._backoff = backoff.Backoff(first_s=0.8, cap_s=30, rng=rng if rng is not None else random.Random())
        self._log = log.bind(resource=str(ref))
        self.state: State = Listing()
        self.relists = 0
        self._listed = ""
        """The version of the last list, as long as no watch from it has ended yet."""

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            outcome: Outcome | None = None
            match self.state:
                case Listing():
                    outcome = await self._list()
                case Watching(version):
                    outcome = await self._watch(version)
                case Waiting():
                    await self._time.sleep(self._backoff.next())
            self.state = following(self.state, outcome)

    async def _list(self) -> Outcome:
        try:
            listed = await self._source.list(self._ref, self._namespace, **self._selectors)
        except kube_errors.Expired:
            return Expired()
        except errors.BedplateError as err:
            tries = self._backoff.failures + 1
            # What stays broken (a right that is missing) is logged less and less often: the 1st, 2nd, 4th, 8th time, …
            level = self._log if tries & (tries - 1) == 0 else self._log.v(2)
            level.warning("reflector.list_failed", error=str(err), tries=tries)
            return Failed("")
        self.relists += 1
        self._listed = listed.resource_version
        self._cache.replace(listed.items, listed.resource_version)
        self._log.v(4).info("reflector.listed", objects=len(listed.items), version=listed.resource_version)
        return Listed(listed.resource_version)

    async def _watch(self, version: str) -> Outcome:
        started = self._time.monotonic()
        watch = self._source.watch_batches(self._ref, self._namespace, resource_version=version, **self._selectors)
        try:
            async with aclosing(watch) as batches:
                async for batch in batches:
                    for event in batch:
                        version = self._take(event, version)
                    self._backoff.reset()
        except kube_errors.Expired:
            self._log.v(2).info("reflector.expired", version=version)
            # The version of the very last list is gone: another list may fare no better, so it has to wait.
            return Refused() if version == self._listed and not self._was_healthy(started) else Expired()
        except errors.BedplateError as err:
            self._listed = ""
            self._was_healthy(started)
            self._log.warning("reflector.watch_failed", error=str(err), version=version)
            is_refusal = isinstance(err, kube_errors.ApiError) and not isinstance(err, _IN_TROUBLE)
            return Refused() if is_refusal else Failed(version)
        self._listed = ""
        return Ended(version, self._was_healthy(started))

    def _was_healthy(self, started: float) -> bool:
        """Whether a watch lived long enough to forget the failures before it."""
        if self._time.monotonic() - started < _HEALTHY_WATCH_S:
            return False
        self._backoff.reset()
        return True

    def _take(self, event: WatchEvent[Any], version: str) -> str:
        """Carry out one event; the version up to which the cache now stands."""
        seen: str = identity.resource_version_of(event.object) or version
        match event.type:
            case "ADDED" | "MODIFIED":
                self._cache.put(event.object, seen)
            case "DELETED":
                self._cache.remove(event.object, seen)
            case "BOOKMARK":
                self._cache.resource_version = seen
        return seen
