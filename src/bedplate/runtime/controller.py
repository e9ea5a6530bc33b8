"""The controller loop: keys from a queue, a reconcile function, and what its outcome means.

In: a `WorkQueue` and `reconcile(key)`, which reads state and acts. Out: requeues, log lines, metrics. The request
carries only the key, never the event. `core.requeue` says what an error means:

    Result(requeue_after_s)   again after that time         an error   as `requeue.decide` says
    nothing                   done until something changes
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from bedplate.core import clock, errors, figures, logging, requeue
from bedplate.core.metrics import shared
from bedplate.core.requeue import Outcome, Retry
from bedplate.core.tasks import TaskGroup
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


def own_key(change: Change[Any]) -> Iterable[str]:
    """The usual mapping: a change of an object concerns that object."""
    return (change.key,)


class ControllerMetrics:
    """`controller_runtime_*` of one registry, under the names dashboards know."""

    def __init__(self, registry: CollectorRegistry) -> None:
        label = ("controller",)
        self.total = figures.Counter(
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
        self.seconds = figures.Histogram(
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
    _inputs: list[tuple[Cache[Any], Mapper, bool]] = field(init=False, default_factory=list)
    _numbers: Any = field(init=False, default_factory=itertools.count)
    _active: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.queue = WorkQueue(self.name, limit=self.limit, time=self.time, registry=self.registry)

    def watches(self, cache: Cache[Any], keys: Mapper = own_key, *, is_first: bool = False) -> Controller:
        """Queue the keys of every change of a cache, before all that wait if it `is_first`; the cache must be synced
        before the first reconcile."""
        self._inputs.append((cache, keys, is_first))
        return self

    async def run(self) -> None:
        """Wait for the caches, then work until cancelled. Work in hand is cancelled too; its key is not lost, because
        a controller that starts again sees every object again."""
        metrics = shared(self.registry, ControllerMetrics)
        metrics.workers.labels(self.name).set(self.workers)
        metrics.active.labels(self.name).set_function(lambda: float(self._active))
        for cache, *_ in self._inputs:
            await cache.synced.wait()
        for cache, keys, is_first in self._inputs:
            cache.on_change(self._enqueue(keys, is_first))
        log = logging.get_logger("runtime.controller", controller=self.name)
        log.v(1).info("controller.started", workers=self.workers)
        try:
            async with TaskGroup() as tasks:
                for _ in range(self.workers):
                    tasks.create_task(self._work(metrics, log))
        finally:
            await self.queue.shut_down()

    def _enqueue(self, keys: Mapper, is_first: bool) -> Callable[[Change[Any]], None]:
        def enqueue(change: Change[Any]) -> None:
            for key in keys(change):
                self.queue.add(key, is_first=is_first)

        return enqueue

    async def _work(self, metrics: ControllerMetrics, log: logging.Logger) -> None:
        while True:
            try:
                key = await self.queue.get()
            except ShutDown:
                return
            try:
                await self._reconcile(key, metrics, log)
            finally:
                self.queue.done(key)

    async def _reconcile(self, key: str, metrics: ControllerMetrics, log: logging.Logger) -> None:
        number, started = next(self._numbers), self.time.monotonic()
        self._active += 1
        try:
            async with asyncio.timeout(self.timeout_s or None):
                result = await self.reconcile(key)
        except (Exception, asyncio.CancelledError) as err:
            if requeue.is_cancelled():
                # Whatever the reconcile's clean-up made of it: the worker ends.
                raise asyncio.CancelledError from err
            outcome = self._failed(key, err, metrics, log.bind(object=key, reconcile=number))
        else:
            outcome = self._succeeded(key, result)
        finally:
            self._active -= 1
            metrics.seconds.labels(self.name).observe(self.time.monotonic() - started)
        metrics.total.labels(self.name, outcome).inc()

    def _succeeded(self, key: str, result: Result | None) -> str:
        self.queue.forget(key)
        if result is None or result.requeue_after_s is None:
            return "success"
        self.queue.add_after(key, result.requeue_after_s)
        return "requeue_after"

    def _failed(self, key: str, err: BaseException, metrics: ControllerMetrics, log: logging.Logger) -> str:
        decision = requeue.decide(err)
        delay_s = self._requeue(key, decision)
        if decision.outcome is Outcome.CONFLICT:
            log.v(2).info("reconcile.conflict", error=str(err), retry_in_s=delay_s)
            return "requeue"
        metrics.errors.labels(self.name).inc()
        if decision.outcome is Outcome.REFUSED:
            metrics.terminal.labels(self.name).inc()
            log.error("reconcile.refused", error=errors.describe(err))
        elif decision.outcome is Outcome.FAILED:
            log.warning("reconcile.failed", error=errors.describe(err), retry_in_s=delay_s)
        else:
            log.exception("reconcile.bug", retry_in_s=delay_s)
        return "error"

    def _requeue(self, key: str, decision: requeue.Decision) -> float:
        """When the key is tried again, in seconds."""
        if decision.retry is Retry.BACKOFF:
            return round(self.queue.add_rate_limited(key, at_least_s=decision.delay_s), 3)
        self.queue.forget(key)
        if decision.retry is Retry.AFTER:
            self.queue.add_after(key, decision.delay_s)
        return round(decision.delay_s, 3)
