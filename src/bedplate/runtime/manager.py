"""Puts controllers, caches, leader election and events together, and starts and stops them cleanly.

In: a client and what a program registers: `cache(...)` for what it reads, `add(controller)` for what it does,
`serve(task)` for what runs always (health endpoints). Out: `run()`. Start: caches, served tasks, then (when leading)
controllers. Stop is the other way round: controllers first, the lease given back, events flushed, caches last; a part
that fails stops all others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from bedplate.api.resources import ResourceRef
from bedplate.core import clock, logging
from bedplate.core.tasks import TaskGroup
from bedplate.runtime.cache import Cache, Index
from bedplate.runtime.events import EventRecorder
from bedplate.runtime.reflector import Reflector, Source

if TYPE_CHECKING:
    from bedplate.runtime.leaderelection import Elector

__all__ = ["Leading", "Manager"]

T = TypeVar("T")
log = logging.get_logger("runtime.manager")


class Leading(Protocol):
    """What runs while leading: a `Controller`, or a loop of another kind (a timer that looks at everything)."""

    name: str

    async def run(self) -> None: ...


class Manager:
    """The parts of one program."""

    def __init__(
        self,
        source: Source,
        *,
        elector: Elector | None = None,
        recorder: EventRecorder | None = None,
        time: clock.Clock | None = None,
    ) -> None:
        self._source = source
        self._elector = elector
        self._recorder = recorder
        self._time = time if time is not None else clock.SystemClock()
        self._reflectors: dict[tuple[ResourceRef[Any], str | None, str, str], tuple[Reflector[Any], Cache[Any]]] = {}
        self._controllers: list[Leading] = []
        self._served: list[Callable[[], Awaitable[None]]] = []
        self._is_running = False

    def cache(
        self,
        ref: ResourceRef[T],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        indexes: Mapping[str, Index] | None = None,
    ) -> Cache[T]:
        """The cache of a resource; asked for twice with the same selection, it is the same one, with both indexes.

        Ask before `run`: a cache first asked for later would never be filled.
        """
        key = (ref, namespace, label_selector, field_selector)
        if key not in self._reflectors:
            self.fill(Cache(), ref, namespace=namespace, label_selector=label_selector, field_selector=field_selector)
        cache: Cache[T] = self._reflectors[key][1]
        cache.add_indexes(indexes or {})
        return cache

    def fill(
        self,
        cache: Cache[T],
        ref: ResourceRef[T],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> None:
        """Fill a cache that the program made itself, because others had to know it before it was clear what is read."""
        if self._is_running:
            raise RuntimeError(f"the manager is running: request the cache of {ref} before")
        reflector = Reflector(
            self._source,
            ref,
            cache,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            time=self._time,
        )
        self._reflectors[(ref, namespace, label_selector, field_selector)] = (reflector, cache)

    def add(self, controller: Leading) -> None:
        """Run this controller while leading."""
        self._controllers.append(controller)

    def serve(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run this from start to stop, leading or not."""
        self._served.append(task)

    @property
    def has_synced(self) -> bool:
        """Whether every cache holds a complete list: what readiness should say."""
        return all(cache.synced.is_set() for _, cache in self._reflectors.values())

    async def run(self) -> None:
        """Run until cancelled, or until a part fails or leadership is lost (`LeadershipLost`)."""
        self._is_running = True
        background = [asyncio.ensure_future(task()) for task in self._served]
        background += [asyncio.ensure_future(reflector.run()) for reflector, _ in self._reflectors.values()]
        recording = asyncio.ensure_future(self._recorder.run()) if self._recorder is not None else None
        if recording is not None:
            background.append(recording)
        leading = asyncio.ensure_future(self._lead())
        try:
            done, _ = await asyncio.wait((leading, *background), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            log.warning("manager.part_ended", parts=len(done))
        finally:
            await _stop(leading)
            if self._recorder is not None and recording is not None and not recording.done():
                await self._recorder.drain()
            for task in background:
                await _stop(task)
            log.v(1).info("manager.stopped")

    async def _lead(self) -> None:
        if self._elector is None:
            await self._control()
        else:
            await self._elector.run(self._control)

    async def _control(self) -> None:
        async with TaskGroup() as tasks:
            for controller in self._controllers:
                tasks.create_task(controller.run(), name=f"controller {controller.name}")
            # Without controllers (a program that only serves) leading lasts until stopped.
            if not self._controllers:
                await asyncio.Event().wait()


async def _stop(task: asyncio.Future[None]) -> None:
    """Cancel and wait; how it ended was, or will be, reported by whoever waited for it first."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
