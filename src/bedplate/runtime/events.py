"""Kubernetes Events for people: what a program decided about an object, told once and then counted.

In: `recorder.event(object, type, reason, message)`, which never waits. Out: Event objects, written by one background
task for each component, through one client. The same event again only raises its count; more than ten that differ only
in their words become one "combined" event; an object that causes a flood is silenced for a while. `correlate` decides
all that and is pure but for the memory it is given. Ordinary events give way to work that waits: see `give_way_to`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from bedplate.api import identity, meta
from bedplate.api.resources import EVENTS, ResourceRef
from bedplate.core import clock, errors, logging
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client

__all__ = ["Correlator", "EventRecorder", "Happening", "Recorders", "Recording", "reference"]

log = logging.get_logger("runtime.events")
NORMAL, WARNING = "Normal", "Warning"
SIMILAR_LIMIT, SIMILAR_WINDOW_S = 10, 600.0
SPAM_BURST, SPAM_REFILL_S = 25, 300.0
REMEMBERED = 4096
QUEUE_SIZE = 4000
TRIES = 12
PATIENCE_S, PAUSE_S = 10.0, 0.05
"""How long an ordinary event waits for other work at most, and how often it looks whether that is done."""
_DRAIN_S = 1.5


class Happening(msgspec.Struct, frozen=True):
    """One thing to tell, about one object."""

    regarding: meta.ObjectReference
    type: str
    reason: str
    message: str


class _Written(meta.Object, frozen=True):
    """What is read of an answer: that it is an Event."""


_WRITTEN = EVENTS.with_model(_Written)


def reference(ref: ResourceRef[Any], obj: Any) -> meta.ObjectReference:
    """The reference of an object, model or raw, for its events."""
    return meta.ObjectReference(
        api_version=ref.api_version,
        kind=ref.kind,
        name=identity.name_of(obj),
        namespace=identity.namespace_of(obj),
        uid=identity.uid_of(obj),
        resource_version=identity.resource_version_of(obj),
    )


class _Similar(msgspec.Struct):
    messages: set[str] = msgspec.field(default_factory=set)
    last: float = 0.0


class _Known(msgspec.Struct):
    name: str
    count: int
    first: datetime


class _Bucket(msgspec.Struct):
    tokens: float = float(SPAM_BURST)
    at: float = 0.0


class Decision(msgspec.Struct, frozen=True):
    """What to write: a new event (count 1) or the next count of a known one."""

    happening: Happening
    name: str
    count: int
    first: datetime
    last: datetime
    at: float = 0.0
    """When it happened, by the monotonic clock."""


class Correlator:
    """Remembers what was told, and decides what to do with the next happening."""

    def __init__(self) -> None:
        self._similar: OrderedDict[Any, _Similar] = OrderedDict()
        self._known: OrderedDict[Any, _Known] = OrderedDict()
        self._buckets: OrderedDict[Any, _Bucket] = OrderedDict()
        self._last_number = 0

    def correlate(self, happening: Happening, monotonic: float, wall: datetime) -> Decision | None:
        """The event to write, or None when its object has caused too many."""
        about = happening.regarding
        # Not the resourceVersion: the same thing about a newer state of the object is still the same.
        group = (about.kind, about.namespace, about.name, about.uid, happening.type, happening.reason)
        similar = _touch(self._similar, group, _Similar)
        if monotonic - similar.last > SIMILAR_WINDOW_S:
            similar.messages.clear()
        similar.last = monotonic
        similar.messages.add(happening.message)
        if len(similar.messages) > SIMILAR_LIMIT:
            similar.messages.pop()
            happening = Happening(
                happening.regarding,
                happening.type,
                happening.reason,
                "(combined from similar events): " + happening.message,
            )
            key: Any = group
        else:
            key = (*group, happening.message)
        if not self._may_write(happening.regarding, monotonic):
            return None
        known = self._known.get(key)
        if known is None:
            name = f"{happening.regarding.name}.{self._unique(wall):x}"
            known = _touch(self._known, key, lambda: _Known(name, 0, wall))
        self._known.move_to_end(key)
        known.count += 1
        return Decision(happening, known.name, known.count, known.first, wall, monotonic)

    def _unique(self, wall: datetime) -> int:
        """The moment as the number that ends an event's name; two of one moment get two numbers."""
        self._last_number = max(self._last_number + 1, int(wall.timestamp() * 1e9))
        return self._last_number

    def _may_write(self, regarding: meta.ObjectReference, now: float) -> bool:
        bucket = _touch(self._buckets, (regarding.kind, regarding.namespace, regarding.name), lambda: _Bucket(at=now))
        bucket.tokens = min(float(SPAM_BURST), bucket.tokens + (now - bucket.at) / SPAM_REFILL_S)
        bucket.at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True


def _touch(memory: OrderedDict[Any, Any], key: Any, make: Any) -> Any:
    if key not in memory:
        memory[key] = make()
        if len(memory) > REMEMBERED:
            memory.popitem(last=False)
    memory.move_to_end(key)
    return memory[key]


class EventRecorder:
    """Takes happenings and writes Events in the background. Run `run()` beside the controllers."""

    def __init__(self, client: Client, component: str, *, host: str = "", time: clock.Clock | None = None) -> None:
        self._client = client
        self._source = {"component": component, **({"host": host} if host else {})}
        self._time = time if time is not None else clock.SystemClock()
        self._queue: asyncio.Queue[Decision] = asyncio.Queue(QUEUE_SIZE)
        self._correlator = Correlator()
        self._is_busy: Callable[[], bool] = lambda: False
        self._warnings = 0
        """How many of those that wait are warnings."""
        self._is_draining = False
        self.dropped = 0

    def give_way_to(self, is_busy: Callable[[], bool]) -> None:
        """Let ordinary events wait while this is true, for ten seconds at most: a thousand nodes that join at once are
        not to wait for a thousand words about them. Warnings never wait, nor does what comes before them."""
        self._is_busy = is_busy

    def event(self, regarding: meta.ObjectReference, type: str, reason: str, message: str) -> None:
        """Tell it; returns at once. When the server cannot keep up, events are dropped and counted, nothing waits."""
        happening = Happening(regarding, type, reason, message[:1024])
        decision = self._correlator.correlate(happening, self._time.monotonic(), self._time.now())
        if decision is None:
            log.v(4).info("events.silenced", object=regarding.name, reason=reason)
            return
        try:
            self._queue.put_nowait(decision)
            self._warnings += type != NORMAL
        except asyncio.QueueFull:
            self.dropped += 1
            log.warning("events.dropped", reason=reason, object=regarding.name, dropped=self.dropped)

    async def run(self) -> None:
        """Write events until cancelled."""
        while True:
            decision = await self._queue.get()
            self._warnings -= decision.happening.type != NORMAL
            try:
                await self._give_way(decision)
                await self._write(decision)
            except Exception:
                # Words for people: not worth the work of the program that says them.
                log.exception("events.bug", name=decision.name)
            finally:
                self._queue.task_done()

    async def _give_way(self, decision: Decision) -> None:
        until = decision.at + PATIENCE_S
        while (
            decision.happening.type == NORMAL
            and self._is_busy()
            and not (self._warnings or self._is_draining)
            and self._queue.qsize() < QUEUE_SIZE // 2
            and self._time.monotonic() < until
        ):
            await self._time.sleep(PAUSE_S)

    async def drain(self, timeout_s: float = 2.0) -> None:
        """Give events in hand a moment to be written; for a clean stop."""
        self._is_draining = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._queue.join()
        except TimeoutError:
            log.v(2).info("events.left_behind", count=self._queue.qsize())

    async def _write(self, decision: Decision) -> None:
        for attempt in range(TRIES):
            try:
                await self._send(decision)
                return
            except kube_errors.AlreadyExists:
                # An earlier attempt of ours arrived, and its answer was lost.
                return
            except errors.Terminal as err:
                log.warning("events.refused", name=decision.name, error=str(err))
                return
            except errors.Retryable as err:
                log.v(2).info("events.retry", name=decision.name, attempt=attempt + 1, error=str(err))
                await self._time.sleep(min(10.0, 0.1 * 2**attempt))
        log.warning("events.gave_up", name=decision.name, tries=TRIES)

    async def _send(self, decision: Decision) -> None:
        namespace = decision.happening.regarding.namespace or "default"
        if decision.count > 1:
            change = {"count": decision.count, "lastTimestamp": clock.rfc3339(decision.last)}
            change["message"] = decision.happening.message
            try:
                await self._client.patch(_WRITTEN, decision.name, change, namespace)
                return
            except kube_errors.NotFound:
                log.v(4).info("events.expired", name=decision.name)
        await self._client.create(_WRITTEN, _event(decision, namespace, self._source), namespace)


def _event(decision: Decision, namespace: str, source: dict[str, str]) -> dict[str, Any]:
    about = decision.happening.regarding
    involved = {
        "apiVersion": about.api_version,
        "kind": about.kind,
        "name": about.name,
        "namespace": about.namespace,
        "uid": about.uid,
        "resourceVersion": about.resource_version,
    }
    return {
        "metadata": {"name": decision.name, "namespace": namespace},
        "involvedObject": {key: value for key, value in involved.items() if value},
        "type": decision.happening.type,
        "reason": decision.happening.reason,
        "message": decision.happening.message,
        "source": source,
        "reportingComponent": source["component"],
        "reportingInstance": source.get("host", ""),
        "count": decision.count,
        "firstTimestamp": clock.rfc3339(decision.first),
        "lastTimestamp": clock.rfc3339(decision.last),
    }


class Recording(msgspec.Struct):
    """Writes events while leading; those still queued when the work ends are written before the Lease is released."""

    name: str
    recorder: EventRecorder

    async def run(self) -> None:
        writing = asyncio.ensure_future(self.recorder.run())
        try:
            await asyncio.shield(writing)
        finally:
            if not writing.done():
                await self.recorder.drain(timeout_s=_DRAIN_S)
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)


class Recorders:
    """One recorder per component, all writing through one client, and thereby at one rate."""

    def __init__(self, client: Client, time: clock.Clock) -> None:
        self._client = client
        self._time = time
        self._recorders: dict[str, EventRecorder] = {}

    def get(self, component: str) -> EventRecorder:
        """The recorder whose events name this component as their source."""
        if component not in self._recorders:
            self._recorders[component] = EventRecorder(self._client, component, time=self._time)
        return self._recorders[component]

    def parts(self) -> list[Recording]:
        """What writes their events while leading."""
        return [Recording(f"events of {name}", recorder) for name, recorder in self._recorders.items()]
