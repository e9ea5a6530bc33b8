"""Leader election over a Lease: at most one holder works.

In: a client, a lease name, an identity. Out: `run(work)`, which awaits leadership, runs `work` and cancels it the
moment leadership is no longer certain. Semantics are client-go's. A candidate trusts no clock but its own monotonic
one: it may take over when the record has not changed *for it* during the whole lease duration. A holder that could not
renew within the renew deadline stops; as that is shorter than the lease duration, it has stopped before anyone else
can start.

`is_leading` also compares the clock, so that a process that was frozen and wakes up late refuses to write (see
`FencedClient`) before its timers have told it anything.
"""

from __future__ import annotations

import asyncio
import math
import random
import socket
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Gauge

from bedplate.api import meta
from bedplate.api.resources import LEASES
from bedplate.core import backoff, clock, errors, logging
from bedplate.core.metrics import shared
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client
from bedplate.kube.config import ClientConfig
from bedplate.kube.transport import Request, Response

__all__ = ["Elector", "FencedClient", "LeadershipLost", "Record", "Recorder", "Timing", "identity", "may_take"]

JITTER = 1.2
HEALTH_TOLERANCE_S = 20.0
log = logging.get_logger("runtime.leaderelection")


class LeadershipLost(errors.Terminal):
    """The lease could not be renewed in time, or another process holds it. The program must stop its work."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Kubernetes' defaults; checked as Kubernetes checks them."""

    lease_s: float = 15.0
    renew_s: float = 10.0
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        problems = []
        if self.lease_s <= self.renew_s:
            problems.append("lease duration must be longer than the renew deadline")
        if self.renew_s <= JITTER * self.retry_s:
            problems.append(f"renew deadline must be longer than {JITTER} times the retry period")
        if min(self.lease_s, self.renew_s, self.retry_s) <= 0 or self.lease_s < 1:
            problems.append("lease duration must be at least 1s, the other two greater than 0")
        if problems:
            raise errors.Invalid("leader election cannot work with these times", problems=problems)


@dataclass(frozen=True, slots=True)
class Record:
    """What the Lease says; equal records mean that nobody renewed."""

    holder: str = ""
    duration_s: int = 0
    acquired: datetime | None = None
    renewed: datetime | None = None
    transitions: int = 0
    version: str = ""
    uid: str = ""


def may_take(record: Record | None, seen_at: float, now: float, own: str) -> bool:
    """May `own` write itself into the lease? `seen_at`: when this record was first observed, monotonic like `now`."""
    if record is None or not record.holder or record.holder == own:
        return True
    return now >= seen_at + record.duration_s


def identity() -> str:
    """Who this process is: host name and a random part, as Kubernetes components write it."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class LeaderMetrics:
    """`leader_election_master_status` of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        text = (
            "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master."
        )
        self.status = Gauge("leader_election_master_status", text, ("name",), registry=registry)


class Recorder(Protocol):
    """The part of `EventRecorder` an elector needs."""

    def event(self, regarding: meta.ObjectReference, type: str, reason: str, message: str) -> None: ...


class Elector:
    """One candidate for one lease. Who leads is told as events on it, by a recorder whose client is not fenced."""

    def __init__(
        self,
        client: Client,
        name: str,
        namespace: str = "kube-system",
        *,
        own: str = "",
        timing: Timing | None = None,
        time: clock.Clock | None = None,
        rng: random.Random | None = None,
        registry: CollectorRegistry | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.identity = own or identity()
        self.name = name
        self.namespace = namespace
        self._client = client
        self._timing = timing if timing is not None else Timing()
        self._time = time if time is not None else clock.SystemClock()
        self._rng = rng if rng is not None else random.Random()
        metrics = shared(registry if registry is not None else CollectorRegistry(), LeaderMetrics)
        self._gauge = metrics.status.labels(name)
        self._gauge.set(0)
        self._recorder = recorder
        self._record: Record | None = None
        self._seen_at = 0.0
        self._renewed_at: float | None = None
        self._may_hold = False
        self._log = log.bind(lease=f"{namespace}/{name}", identity=self.identity)

    @property
    def leader(self) -> str:
        """Who holds the lease, as last seen."""
        return self._record.holder if self._record is not None else ""

    @property
    def is_leading(self) -> bool:
        """Whether it is certain, at this very moment, that nobody else leads."""
        return self._renewed_at is not None and self._time.monotonic() < self._renewed_at + self._timing.renew_s

    def guard(self) -> None:
        """Raise `LeadershipLost` unless leadership is certain now."""
        if not self.is_leading:
            raise LeadershipLost(
                f"not the leader of {self.namespace}/{self.name}", hint="another instance leads; this one restarts"
            )

    def check(self) -> None:
        """For a health endpoint: raise when this process still counts as leader long after the lease ran out."""
        late_s = HEALTH_TOLERANCE_S + self._timing.lease_s
        if self._renewed_at is not None and self._time.monotonic() > self._renewed_at + late_s:
            raise LeadershipLost(f"lease {self.namespace}/{self.name} expired and its holder did not stop")

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait to lead, then run `work`. Returns when it does; raises `LeadershipLost` when leadership went first.

        Whatever ends it (also cancellation), the lease is given back, so that the next candidate need not wait.
        """
        try:
            await self._acquire()
            await self._lead(work)
        finally:
            self._renewed_at = None
            self._gauge.set(0)
            await self._release()

    async def _lead(self, work: Callable[[], Awaitable[None]]) -> None:
        self._gauge.set(1)
        self._log.info("leaderelection.acquired")
        self._tell("became leader")
        working = asyncio.ensure_future(work())
        leading = [asyncio.ensure_future(self._renew()), asyncio.ensure_future(self._expire())]
        try:
            done, _ = await asyncio.wait((working, *leading), return_when=asyncio.FIRST_COMPLETED)
            if working not in done:
                self._log.error("leaderelection.lost")
            for task in (working, *leading):
                if task in done:
                    await task
        finally:
            # Work ends before the lease is given back: otherwise two would work for a moment.
            for task in (working, *leading):
                task.cancel()
            await asyncio.gather(working, *leading, return_exceptions=True)
            self._tell("stopped leading")

    async def _acquire(self) -> None:
        self._log.info("leaderelection.trying")
        while not await self._try():
            await self._time.sleep(backoff.jitter(self._timing.retry_s, JITTER, self._rng))

    async def _renew(self) -> None:
        """Renew until another process holds the lease, then raise."""
        while True:
            await self._time.sleep(self._timing.retry_s)
            if not await self._try() and self.leader not in ("", self.identity):
                raise LeadershipLost(f"lease {self.namespace}/{self.name} was taken by {self.leader}")

    async def _expire(self) -> None:
        """Raise when the renew deadline has passed without a renewal, whatever `_renew` may be waiting for."""
        while self._renewed_at is not None and self.is_leading:
            await self._time.sleep(self._renewed_at + self._timing.renew_s - self._time.monotonic())
        waited = f"{self._timing.renew_s:g}s"
        raise LeadershipLost(f"lease {self.namespace}/{self.name} could not be renewed within {waited}")

    async def _try(self) -> bool:
        """One attempt to acquire or renew, bounded so that a hanging server cannot outlast the deadline."""
        started = self._time.monotonic()
        try:
            async with asyncio.timeout(self._timing.renew_s):
                won = await self._attempt()
        except (errors.BedplateError, TimeoutError) as err:
            level = self._log.v(2) if isinstance(err, errors.Conflict) else self._log
            level.warning("leaderelection.attempt_failed", error=str(err) or "timed out")
            return False
        if won:
            # Counted from before the request: the server's record may be as old as that.
            self._renewed_at = started
        return won

    async def _attempt(self) -> bool:
        lease: dict[str, Any] = {}
        try:
            lease = await self._client.get(LEASES.raw(), self.name, self.namespace)
            self._observe(_record(lease))
        except kube_errors.NotFound:
            self._record = None
        now = self._time.monotonic()
        if not may_take(self._record, self._seen_at, now, self.identity):
            return False
        old = self._record
        spec = _spec(old, self.identity, self._timing.lease_s, self._time.now())
        body: dict[str, Any] = {"metadata": {"name": self.name, "namespace": self.namespace}, "spec": spec}
        self._may_hold = True
        if old is None:
            written = await self._client.create(LEASES.raw(), body, self.namespace)
        else:
            written = await self._write(lease, spec)
        self._observe(_record(written))
        return True

    async def _write(self, lease: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
        """Replace the lease as it was read: fields of others stay, and a newer version of it makes this a conflict. It
        needs the right to update, which every role for leader election has, unlike the right to patch."""
        changed = {**lease, "spec": {**(lease.get("spec") or {}), **spec}}
        return await self._client.update(LEASES.raw(), changed, self.namespace)

    def _observe(self, record: Record) -> None:
        if record != self._record:
            if self._record is None or record.holder != self._record.holder:
                self._log.info("leaderelection.leader", leader=record.holder)
            self._record = record
            self._seen_at = self._time.monotonic()

    async def _release(self) -> None:
        """Give the lease back. It is read first: a write whose answer was never read may have changed it."""
        if not self._may_hold:
            return
        self._may_hold = False
        try:
            async with asyncio.timeout(self._timing.retry_s):
                lease = await self._client.get(LEASES.raw(), self.name, self.namespace)
                self._observe(_record(lease))
                if self._record is None or self._record.holder != self.identity:
                    return
                moment = clock.rfc3339_micro(self._time.now())
                spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": moment, "acquireTime": moment}
                self._observe(_record(await self._write(lease, spec)))
            self._log.info("leaderelection.released")
        except (errors.BedplateError, TimeoutError) as err:
            # Not serious: the lease runs out by itself.
            self._log.v(2).info("leaderelection.release_failed", error=str(err) or "timed out")

    def _tell(self, what: str) -> None:
        if self._recorder is not None:
            uid = self._record.uid if self._record is not None else ""
            lease = meta.ObjectReference(
                api_version=LEASES.api_version, kind=LEASES.kind, name=self.name, namespace=self.namespace, uid=uid
            )
            self._recorder.event(lease, "Normal", "LeaderElection", f"{self.identity} {what}")


def _spec(old: Record | None, own: str, lease_s: float, now: datetime) -> dict[str, Any]:
    is_mine = old is not None and old.holder == own
    acquired = old.acquired if old is not None and is_mine and old.acquired is not None else now
    transitions = 0 if old is None else old.transitions + (0 if is_mine else 1)
    return {
        "holderIdentity": own,
        "leaseDurationSeconds": math.ceil(lease_s),
        "acquireTime": clock.rfc3339_micro(acquired),
        "renewTime": clock.rfc3339_micro(now),
        "leaseTransitions": transitions,
    }


def _record(lease: dict[str, Any]) -> Record:
    spec = lease.get("spec") or {}
    return Record(
        spec.get("holderIdentity") or "",
        int(spec.get("leaseDurationSeconds") or 0),
        _time(spec.get("acquireTime")),
        _time(spec.get("renewTime")),
        int(spec.get("leaseTransitions") or 0),
        lease["metadata"]["resourceVersion"],
        lease["metadata"].get("uid", ""),
    )


def _time(text: str | None) -> datetime | None:
    return clock.parse_rfc3339(text).astimezone(UTC) if text else None


class FencedClient(Client):
    """A client whose writes are refused unless the elector leads when they are sent. For everything a leader does."""

    def __init__(self, config: ClientConfig, guard: Callable[[], None], **options: Any) -> None:
        super().__init__(config, **options)
        self._guard = guard

    async def _perform(self, request: Request) -> Response:
        if request.target.method != "GET":
            # At once, so that nothing waits in vain; and again when a rate limit or a retry made it wait.
            self._guard()
            request.guard = self._guard
        return await super()._perform(request)
