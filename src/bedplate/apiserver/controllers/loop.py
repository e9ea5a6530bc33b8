"""The loop all in-process controllers share: changes in, keys out, one at a time, again after a failure.

In: feeds of changes and a function from a change to the keys it concerns. Out: calls of `reconcile(key)`. Level-
based: only the key is kept, however many changes there were; a failed key is tried again after a growing pause. The
controllers of other packages use `runtime`, which works over HTTP; this one is inside the server and has nothing to
list, resync or lose.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Generic, TypeVar

from bedplate.apiserver import hooks, status
from bedplate.apiserver.state import bodies
from bedplate.core import backoff, logging, requeue
from bedplate.core import clock as clocks
from bedplate.core.tasks import TaskGroup

__all__ = ["Loop", "absent_is_fine", "insist", "own_key"]

K = TypeVar("K", bound=Hashable)
log = logging.get_logger("apiserver.controllers")


class Loop(Generic[K]):
    """A queue of keys without duplicates, fed by changes, worked off by one task."""

    def __init__(self, name: str, client: hooks.Client, reconcile: Callable[[K], Awaitable[None]]) -> None:
        self._name = name
        self._client = client
        self._reconcile = reconcile
        self._keys: dict[K, None] = {}
        self._wake = asyncio.Event()
        self._backoffs: dict[K, backoff.Backoff] = {}

    def add(self, key: K) -> None:
        """Have `reconcile(key)` called soon."""
        self._keys[key] = None
        self._wake.set()

    def add_later(self, key: K, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self.add, key)

    async def run(self, *feeds: tuple[str, str, Callable[[bodies.Change], Iterable[K]]]) -> None:
        """Follow kinds, each with the keys that a change of it concerns, and work the queue off, until cancelled."""
        async with TaskGroup() as tasks:
            for group, resource, keys in feeds:
                tasks.create_task(self.follow(group, resource, keys))
            tasks.create_task(self.work())

    async def follow(self, group: str, resource: str, keys: Callable[[bodies.Change], Iterable[K]]) -> None:
        """Queue the keys of every change of a kind, existing objects first; runs until cancelled."""
        with self._client.watch(group, resource) as changes:
            async for change in changes:
                try:
                    affected = list(keys(change))
                except Exception:
                    # One odd object must not end the controller, and with it the server.
                    log.exception("controller.change_failed", controller=self._name, name=change.name)
                    continue
                for key in affected:
                    self.add(key)

    def _again(self, key: K, at_least_s: float) -> None:
        pauses = self._backoffs.setdefault(key, backoff.Backoff(first_s=0.02, cap_s=15))
        self.add_later(key, max(at_least_s, pauses.next()))

    async def work(self) -> None:
        """Work the queue off until cancelled."""
        while True:
            while not self._keys:
                self._wake.clear()
                await self._wake.wait()
            key = next(iter(self._keys))
            del self._keys[key]
            try:
                await self._reconcile(key)
                self._backoffs.pop(key, None)
            except Exception as err:
                self._again(key, _logged(err, controller=self._name, key=str(key)))
            # Yield even when nothing was awaited, so that a full queue never starves requests.
            await asyncio.sleep(0)


def _logged(err: Exception, **values: str) -> float:
    """Log a failure; the least time to wait before the next attempt. It never gives up: a refusal, or a store that is
    full or unavailable, may end without any change of the object."""
    decision = requeue.decide(err, gives_up=False, expected=(status.StatusError,))
    if decision.outcome is requeue.Outcome.BUG:
        log.exception("controller.failed", **values)
    else:
        log.v(2).info("controller.retry", reason=str(err), **values)
    return decision.delay_s


async def insist(name: str, pause_s: float, clock: clocks.Clock, action: Callable[[], Awaitable[None]]) -> None:
    """Call an action over and over, a pause between two calls, whatever becomes of each; until cancelled."""
    while True:
        try:
            await action()
        except Exception as err:
            _logged(err, controller=name)
        await clock.sleep(pause_s)


def own_key(change: bodies.Change) -> Iterable[tuple[str, str]]:
    """Namespace and name of the changed object itself."""
    return ((change.namespace, change.name),)


async def absent_is_fine(action: Awaitable[object]) -> None:
    """Await a deletion or change of an object that may be gone by then."""
    try:
        await action
    except status.StatusError as err:
        if err.code != 404:
            raise
