"""The controller loop: keys from a queue, a reconcile function, and what its outcome means.

In: a `WorkQueue` and `reconcile(key)`, which reads state and acts. Out: requeues, log lines, metrics. The request
carries only the key, never the event. This is the only place that turns an error into a requeue:

    Result(requeue_after_s)   again after that time         Retryable   again with backoff, not before its retry_after_s
    nothing                   done until something changes  NotFound, AlreadyExists, Denied     again with backoff
                                                            other Terminal    again only when something changes
                                                            anything else is a bug: traceback, again with backoff

`Denied` and its like are retried although nothing of ours can change them: somebody grants a role, frees a quota or
creates what was missing, and no watch of ours tells.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from bedplate.core import clock, errors, logging
from bedplate.core.metrics import shared
from bedplate.runtime.cache import Cache, Change
from bedplate.runtime.workqueue import RateLimit, ShutDown, WorkQueue

__all__ = ["Controller", "ControllerMetrics", "Reconcile", "Result", "own_key"]


@dataclass(frozen=True, slots=True)
class Result:
    """What a reconcile wants next; `requeue_after_s` None means: nothing until something changes."""

    requeue_after_s: float | None = None


_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0)
Reconcile = Callable[[str], Awaitable[Result | None]]
Mapper = Callable[[Change[Any]], Iterable[str]]


# Facts about the world that somebody may change without any cache of ours hearing of it.
_OTHERS_MAY_MEND = (errors.NotFound, errors.AlreadyExists, errors.Denied)


def own_key(change: Change[Any]) -> Iterable[str]:
    """The usual mapping: a change of an object concerns that object."""
    return (change.key,)


class ControllerMetrics:
    """`controller_runtime_*` of one registry, under the names dashboards know."""

    def __init__(self, registry: CollectorRegistry) -> None:
        label = ("controller",)
        self.total = Counter(
            "controller_runtime_reconcile",
            "Total number of reconciliations per controller",
            ("controller", "result"),
            registry=registry,
        )
        self.errors = Counter(
            "controller_runtime_reconcile_errors",
            "Total number of reconciliation errors per controller",
            label,
            registry=registry,
        )
        self.terminal = Counter(
            "controller_runtime_terminal_reconcile_errors",
            "Total number of terminal reconciliation errors per controller",
            label,
            registry=registry,
        )
        self.seconds = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "Length of time per reconciliation per controller",
            label,
            buckets=_SECONDS,
            registry=registry,
        )
        self.active = Gauge(
            "controller_runtime_active_workers",
            "Number of currently used workers per controller",
            label,
            registry=registry,
        )
        self.workers = Gauge(
            "controller_runtime_max_concurrent_reconciles",
            "Maximum number of concurrent reconciles per controller",
            label,
            registry=registry,
        )


@dataclass(slots=True)
class Controller:
    """One controller: caches feed its queue, `workers` tasks work it off."""

    name: str
    reconcile: Reconcile
    workers: int = 1
    limit: RateLimit | None = None
    timeout_s: float = 0.0
    """Longest time for one reconcile; 0: no limit."""
    time: clock.Clock = field(default_factory=clock.SystemClock)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    queue: WorkQueue[str] = field(init=False)
    _inputs: list[tuple[Cache[Any], Mapper]] = field(init=False, default_factory=list)
    _numbers: Any = field(init=False, default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.queue = WorkQueue(self.name, limit=self.limit, time=self.time, registry=self.registry)

    def watches(self, cache: Cache[Any], keys: Mapper = own_key) -> Controller:
        """Queue the keys of every change of a cache; the cache must be synced before the first reconcile."""
        self._inputs.append((cache, keys))
        return self

    async def run(self) -> None:
        """Wait for the caches, then work until cancelled. Work in hand is cancelled too; its key is not lost, because
        a controller that starts again sees every object again."""
        metrics = shared(self.registry, ControllerMetrics)
        metrics.workers.labels(self.name).set(self.workers)
        for cache, _ in self._inputs:
            await cache.synced.wait()
        for cache, keys in self._inputs:
            cache.on_change(self._enqueue(keys))
        log = logging.get_logger("runtime.controller", controller=self.name)
        log.v(1).info("controller.started", workers=self.workers)
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self.workers):
                    tasks.create_task(self._work(metrics, log))
        finally:
            await self.queue.shut_down()

    def _enqueue(self, keys: Mapper) -> Callable[[Change[Any]], None]:
        def enqueue(change: Change[Any]) -> None:
            for key in keys(change):
                self.queue.add(key)

        return enqueue

    async def _work(self, metrics: ControllerMetrics, log: logging.Logger) -> None:
        while True:
            try:
                key = await self.queue.get()
            except ShutDown:
                return
            try:
                await self._reconcile(key, metrics, log.bind(object=key, reconcile=next(self._numbers)))
            finally:
                self.queue.done(key)

    async def _reconcile(self, key: str, metrics: ControllerMetrics, log: logging.Logger) -> None:
        started = self.time.monotonic()
        metrics.active.labels(self.name).inc()
        try:
            async with asyncio.timeout(self.timeout_s or None):
                result = await self.reconcile(key)
        except (Exception, asyncio.CancelledError) as err:
            if _is_cancelled():
                # Whatever the reconcile's clean-up made of it: the worker ends.
                raise asyncio.CancelledError from err
            outcome = self._failed(key, err, metrics, log)
        else:
            outcome = self._succeeded(key, result)
        finally:
            metrics.active.labels(self.name).dec()
            metrics.seconds.labels(self.name).observe(self.time.monotonic() - started)
        metrics.total.labels(self.name, outcome).inc()

    def _succeeded(self, key: str, result: Result | None) -> str:
        self.queue.forget(key)
        if result is None or result.requeue_after_s is None:
            return "success"
        self.queue.add_after(key, result.requeue_after_s)
        return "requeue_after"

    def _failed(self, key: str, err: BaseException, metrics: ControllerMetrics, log: logging.Logger) -> str:
        if isinstance(err, errors.Conflict):
            # Somebody else wrote first: normal, and cured by reading again.
            delay = self.queue.add_rate_limited(key)
            log.v(2).info("reconcile.conflict", error=str(err), retry_in_s=round(delay, 3))
            return "requeue"
        metrics.errors.labels(self.name).inc()
        if isinstance(err, errors.Terminal) and not isinstance(err, _OTHERS_MAY_MEND):
            self.queue.forget(key)
            metrics.terminal.labels(self.name).inc()
            log.error("reconcile.refused", error=errors.describe(err))
            return "error"
        at_least = (err.retry_after_s or 0.0) if isinstance(err, errors.Retryable) else 0.0
        delay = self.queue.add_rate_limited(key, at_least_s=at_least)
        if isinstance(err, errors.BedplateError | TimeoutError):
            log.warning("reconcile.failed", error=errors.describe(err), retry_in_s=round(delay, 3))
        else:
            log.exception("reconcile.bug", retry_in_s=round(delay, 3))
        return "error"


def _is_cancelled() -> bool:
    """Whether this task is to end. A `CancelledError` alone does not say so: a reconcile may have awaited a task that
    somebody else cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
