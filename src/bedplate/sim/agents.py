"""Simulated devices under a head: what its agents will do on machines, done in memory.

In: a client of the head. Out: every device of the tree keeps to its desired state and says so: files are written into a
dictionary, services are started, restarted and reloaded as `api.steps` orders, configuration tests are asked first,
checks are run and reported. Many devices share one event stream: after a revision the head is asked once which nodes it
means something to, and only those are looked at.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bedplate.api import headapi
from bedplate.api.desired import Desired
from bedplate.api.steps import Failed, Outcome, Step, notice, walk
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock
from bedplate.core.logging import get_logger
from bedplate.core.tasks import TaskGroup
from bedplate.sim.device import Device, Refusal, nothing_fails

__all__ = ["Devices", "Pace"]

_LOG = get_logger("sim.devices")
_ASKED = " was asked by "
"""In the notice of a request to a device: one stream of events for all devices stands in for a poll of each."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a service takes, how often the devices report at most, all of them together, when what failed is tried
    again, when a head that was away is asked again, and how many devices are looked at together."""

    service_s: float = 0.0
    reports_per_s: float = 5.0
    retry_s: float = 60.0
    again_s: float = 1.0
    workers: int = 8


class Devices:
    """All devices of a head, or those named; `run` until cancelled. `ready` is set once each holds its state."""

    def __init__(
        self,
        client: HeadClient,
        names: Iterable[str] | None = None,
        *,
        clock: Clock | None = None,
        pace: Pace | None = None,
        refuse: Refusal = nothing_fails,
    ) -> None:
        self._client = client
        self._only = None if names is None else set(names)
        self._clock = clock or SystemClock()
        self._pace = pace or Pace()
        self._refuse = refuse
        self._tasks = TaskGroup()
        self._waiting: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self._working = 0
        self._moved = asyncio.Event()
        self._latest = 0
        self._turns: dict[str, asyncio.Lock] = {}
        self._due: list[tuple[float, str]] = []
        self.devices: dict[str, Device] = {}
        self.ready = asyncio.Event()
        self.looks = 0
        """How often a desired state was asked for."""

    async def run(self) -> None:
        """Follow the head."""
        self._latest = (await self._client.whoami()).revision
        self._take([entity.key for entity in await self._client.list("device")])
        async with self._tasks as tasks:
            tasks.create_task(self._follow(self._latest))
            tasks.create_task(self._plan(self._latest))
            tasks.create_task(self._measure())
            for _ in range(self._pace.workers):
                tasks.create_task(self._work())

    # Which devices there are, and which have something to do

    def _take(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in self.devices and (self._only is None or name in self._only):
                number = len(self.devices)
                self.devices[name] = Device(name, number)
                heapq.heappush(self._due, (self._clock.monotonic() + number / self._pace.reports_per_s / 4, name))
                self._look(name)
        if not self.devices:
            self.ready.set()

    def _look(self, name: str) -> None:
        if name in self.devices and name not in self._queued:
            self._queued.add(name)
            self._waiting.put_nowait(name)

    async def _later(self, name: str) -> None:
        await self._clock.sleep(self._pace.retry_s)
        self._look(name)

    async def _follow(self, after: int) -> None:
        async for event in self._client.events(after, types=("revision", "notice")):
            if event.notice is not None and _ASKED in event.notice.text:
                self._look(event.notice.host)
            if event.revision is None:
                continue
            for change in event.revision.changes:
                if change.path[0] == "device" and len(change.path) == 2:
                    self._come_and_go(change)
                elif change.path[0] == "healthcheck":
                    for name in self.devices:
                        self._look(name)
            self._latest = max(self._latest, event.revision.number)
            self._moved.set()

    def _come_and_go(self, change: headapi.Change) -> None:
        name = change.path[1]
        if change.new is None:
            self.devices.pop(name, None)
        else:
            self._take([name])

    async def _plan(self, seen: int) -> None:
        """Ask what the revisions since the last look mean, for all of them at once."""
        while True:
            await self._moved.wait()
            self._moved.clear()
            latest = self._latest
            if latest <= seen:
                continue
            try:
                names = {action.node for action in (await self._client.plan_between(seen, latest)).actions}
            except (errors.Retryable, errors.NotFound) as err:
                _LOG.warning("sim.plan.unknown", error=str(err))
                names = set(self.devices)
            for name in sorted(names):
                self._look(name)
            seen = latest

    # Doing it

    async def _work(self) -> None:
        while True:
            name = await self._waiting.get()
            self._queued.discard(name)
            self._working += 1
            try:
                if (device := self.devices.get(name)) is not None:
                    await self._settle(device)
            except errors.NotFound:
                self.devices.pop(name, None)
            except errors.Retryable as err:
                _LOG.warning("sim.device.later", device=name, error=str(err))
                await self._clock.sleep(self._pace.again_s)
                self._look(name)
            finally:
                self._working -= 1
            if not self._working and self._waiting.empty():
                self.ready.set()

    async def _settle(self, device: Device) -> None:
        """Bring a device to its desired state and tell of it; what failed is told once and tried again later."""
        self.looks += 1
        latest = self._latest
        answer = await self._client.desired(device.name, device.etag)
        if answer is None:
            # Nothing to do, which a caller may be waiting for.
            if latest > device.applied:
                await self._client.report(device.name, applied=latest, digest=device.etag)
                device.applied = latest
            return
        desired = answer.state
        if desired.errands:
            await self._run_errands(device, desired)
            return
        is_first = device.held is None
        outcome = await self._carry_out(device, desired)
        told, device.failed = device.failed, outcome.failed
        device.held = outcome.held
        # A state that does not hold as a whole is asked for again.
        device.etag = "" if outcome.failed else answer.etag
        # What starts with a machine is not reported.
        actions = [] if is_first else [_action(step) for step in outcome.done if notice(step)]
        failures = [_failure(failed) for failed in outcome.failed if failed not in told]
        if outcome.failed:
            self._tasks.create_task(self._later(device.name))
        if outcome.failed and not actions and not failures:
            return
        applied = 0 if outcome.failed else desired.revision
        digest = "" if outcome.failed else answer.etag
        await self._client.report(
            device.name, applied=applied, digest=digest, actions=actions[:500], failures=failures[:500]
        )
        device.applied = max(device.applied, applied)

    async def _run_errands(self, device: Device, desired: Desired) -> None:
        """Accept each first, so that it is never done twice; a device that is switched off is gone for good."""
        for errand in desired.errands:
            await self._client.report(device.name, errands=[headapi.ErrandTold(id=errand.id, state="accepted")])
            await self._clock.sleep(self._pace.service_s)
            text = "this device is simulated: nothing was copied" if errand.is_transfer else ""
            told = headapi.ErrandTold(id=errand.id, state="done", text=text)
            if errand.kind in ("kubeadm", "pullimages", "care"):
                what = "it has no container runtime" if errand.kind == "pullimages" else "kubeadm cannot run on it"
                why = f"this device is simulated: {what}"
                told = headapi.ErrandTold(id=errand.id, state="failed", text=why)
            await self._client.report(device.name, errands=[told])
            if errand.kind == "off":
                self.devices.pop(device.name, None)
                return
        self._look(device.name)

    async def _carry_out(self, device: Device, desired: Desired) -> Outcome:
        serial = {service.name: service.serial for service in desired.services if service.serial}
        going = walk(device.held, desired)
        try:
            step = next(going)
            while True:
                step = going.send(await self._step(device, step, desired, serial.get(step.name, "")))
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome

    async def _step(self, device: Device, step: Step, desired: Desired, serial: str) -> str | None:
        if step.kind != "service":
            return device.do(step, desired, self._refuse)
        if not serial:
            return await self._act(device, step, desired)
        # Members of one cluster take turns.
        async with self._turns.setdefault(serial, asyncio.Lock()):
            return await self._act(device, step, desired)

    async def _act(self, device: Device, step: Step, desired: Desired) -> str | None:
        if self._pace.service_s and device.held is not None:
            await self._clock.sleep(self._pace.service_s)
        return device.do(step, desired, self._refuse)

    # Health

    async def _measure(self) -> None:
        """One device after the other reports what its checks say; the more there are, the less often each."""
        while True:
            if not self._due:
                await self._clock.sleep(1.0)
                continue
            due_s, name = self._due[0]
            if (wait_s := due_s - self._clock.monotonic()) > 0:
                await self._clock.sleep(min(wait_s, 1.0))
                continue
            heapq.heappop(self._due)
            device = self.devices.get(name)
            if device is None:
                continue
            await self._tell(device)
            shortest_s = min((check.interval_s for check in device.held.checks), default=60.0) if device.held else 1.0
            period_s = max(shortest_s, len(self.devices) / self._pace.reports_per_s)
            heapq.heappush(self._due, (self._clock.monotonic() + period_s, name))

    async def _tell(self, device: Device) -> None:
        results = device.readings(self._clock.now().timestamp())
        if not results:
            return
        try:
            await self._client.report(device.name, results=results[:100])
        except errors.NotFound:
            self.devices.pop(device.name, None)
        except errors.Retryable as err:
            _LOG.warning("sim.report.lost", device=device.name, error=str(err))


def _action(step: Step) -> headapi.Action:
    return headapi.Action(kind=step.kind, name=step.name, verb=step.done)


def _failure(failed: Failed) -> headapi.Failure:
    step = failed.step
    return headapi.Failure(kind=step.kind, name=step.name, verb=step.done, text=failed.why[:1000])
