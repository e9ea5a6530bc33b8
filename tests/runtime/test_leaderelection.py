"""Leader election: who may take a lease, when a holder stops, and that two never work at once."""

import asyncio
import itertools
import random
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from bedplate.api.meta import ObjectReference, Status
from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.kube import errors as kube_errors
from bedplate.runtime.leaderelection import Elector, LeadershipLost, Record, Timing, may_take


def refused(code: int, reason: str) -> kube_errors.ApiError:
    details: dict[str, Any] = {"name": "lock", "kind": "leases", "group": "coordination.k8s.io"}
    import msgspec

    status = msgspec.convert({"code": code, "reason": reason, "details": details}, Status)
    from bedplate.api.resources import LEASES

    return kube_errors.from_status(kube_errors.Target("GET", "/", LEASES, "kube-system", "lock"), status)


class Leases:
    """One lease with optimistic concurrency, and faults on demand. Stands for the client and the server."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.is_down = False
        self.is_hanging = False
        self.loses_answers = False
        self.writes = 0
        self._versions = itertools.count(1)

    async def get(self, ref: Any, name: str, namespace: str) -> dict[str, Any]:
        await self._check()
        if self.lease is None:
            raise refused(404, "NotFound")
        return self.lease

    async def create(self, ref: Any, body: dict[str, Any], namespace: str) -> dict[str, Any]:
        await self._check()
        if self.lease is not None:
            raise refused(409, "AlreadyExists")
        return await self._answer(self._store(body["spec"]))

    async def update(self, ref: Any, body: dict[str, Any], namespace: str) -> dict[str, Any]:
        await self._check()
        if self.lease is None or body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise refused(409, "Conflict")
        return await self._answer(self._store(self.lease["spec"] | body["spec"]))

    async def _answer(self, found: dict[str, Any]) -> dict[str, Any]:
        if self.loses_answers:
            await forever()
        return found

    def _store(self, spec: dict[str, Any]) -> dict[str, Any]:
        self.writes += 1
        metadata = {"name": "lock", "uid": "lease-uid", "resourceVersion": str(next(self._versions))}
        self.lease = {"metadata": metadata, "spec": spec}
        return self.lease

    async def _check(self) -> None:
        if self.is_hanging:
            await forever()
        if self.is_down:
            raise kube_errors.ConnectionFailed("connection refused")


class Told:
    """Stands for an event recorder."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.about: set[tuple[str, str, str, str]] = set()
        self.reasons: set[tuple[str, str]] = set()

    def event(self, regarding: ObjectReference, type: str, reason: str, message: str) -> None:
        self.messages.append(message)
        self.about.add((regarding.kind, regarding.namespace, regarding.name, regarding.uid))
        self.reasons.add((type, reason))


def elector(leases: Leases, clock: ManualClock, own: str, **options: Any) -> Elector:
    return Elector(leases, "lock", own=own, time=clock, rng=random.Random(1), **options)  # type: ignore[arg-type]


def holder(leases: Leases) -> str:
    return str(leases.lease["spec"]["holderIdentity"]) if leases.lease is not None else ""


async def forever() -> None:
    await asyncio.Event().wait()


def start(candidate: Elector, log: list[str]) -> asyncio.Task[None]:
    async def work() -> None:
        log.append(f"+{candidate.identity}")
        try:
            await forever()
        finally:
            log.append(f"-{candidate.identity}")

    return asyncio.create_task(candidate.run(work))


async def stop(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_a_lease_may_be_taken_when_free_mine_or_unchanged_for_its_whole_duration() -> None:
    record = Record("other", 15)
    assert may_take(None, 0, 0, "me")
    assert may_take(Record("", 15), 0, 0, "me")
    assert may_take(Record("me", 15), 0, 0, "me")
    assert not may_take(record, 100.0, 114.9, "me")
    assert may_take(record, 100.0, 115.0, "me")


def test_the_time_in_the_record_does_not_matter() -> None:
    """A holder with a clock far behind must not be robbed, one far ahead must not live forever."""
    for year in (1999, 2199):
        record = Record("other", 15, renewed=datetime(year, 1, 1, tzinfo=UTC))
        assert not may_take(record, 100.0, 110.0, "me")
        assert may_take(record, 100.0, 116.0, "me")


@pytest.mark.parametrize("times", [(10, 10, 2), (15, 2, 2), (15, 10, 0), (0.5, 0.4, 0.1)])
def test_times_that_cannot_work_are_refused(times: tuple[float, float, float]) -> None:
    with pytest.raises(errors.Invalid, match="leader election"):
        Timing(*times)


async def test_the_first_candidate_creates_the_lease_and_leads() -> None:
    leases, clock = Leases(), ManualClock()
    log: list[str] = []
    registry = CollectorRegistry()
    first = elector(leases, clock, "a", registry=registry)
    task = start(first, log)
    await clock.advance(1)
    assert log == ["+a"] and first.is_leading
    assert leases.lease is not None
    spec = leases.lease["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("a", 15, 0)
    assert spec["renewTime"].endswith("Z") and "." in spec["renewTime"]
    assert registry.get_sample_value("leader_election_master_status", {"name": "lock"}) == 1
    await stop(task)


async def test_a_stopped_leader_gives_the_lease_back_after_its_work_has_ended() -> None:
    leases, clock = Leases(), ManualClock()
    log: list[str] = []
    task = start(elector(leases, clock, "a"), log)
    await clock.advance(1)
    await stop(task)
    assert log == ["+a", "-a"]
    assert holder(leases) == ""
    second = start(elector(leases, clock, "b"), log)
    await clock.advance(5)
    assert log[-1] == "+b"
    assert leases.lease is not None and leases.lease["spec"]["leaseTransitions"] == 1
    await stop(second)


async def test_a_second_candidate_waits_as_long_as_the_leader_renews() -> None:
    leases, clock = Leases(), ManualClock()
    log: list[str] = []
    tasks = [start(elector(leases, clock, name), log) for name in ("a", "b")]
    await clock.advance(300)
    assert log == ["+a"]
    await stop(*tasks)


async def test_when_the_leader_vanishes_the_next_takes_over_after_the_lease_duration() -> None:
    leases, clock = Leases(), ManualClock()
    log: list[str] = []
    leases._store({"holderIdentity": "dead", "leaseDurationSeconds": 15, "leaseTransitions": 4})
    task = start(elector(leases, clock, "b"), log)
    await clock.advance(14)
    assert log == []
    await clock.advance(8)
    assert log == ["+b"]
    assert leases.lease is not None and leases.lease["spec"]["leaseTransitions"] == 5
    await stop(task)


async def test_a_leader_that_cannot_renew_stops_before_anyone_else_may_start() -> None:
    leases, clock = Leases(), ManualClock()
    log: list[str] = []
    task = start(elector(leases, clock, "a"), log)
    await clock.advance(1)
    leases.is_down = True
    lost_at = None
    for step in range(150):
        await clock.advance(0.1)
        if log == ["+a", "-a"]:
            lost_at = step * 0.1
            break
    assert lost_at is not None and lost_at <= 9.1, "work goes on although the lease may already be somebody else's"
    with pytest.raises(LeadershipLost, match="could not be renewed"):
        await task


async def test_leading_is_over_by_the_clock_even_before_any_timer_ran() -> None:
    """A frozen process wakes up: its timers are late, but it must not write."""
    leases, clock = Leases(), ManualClock()
    log: list[str] = []
    first = elector(leases, clock, "a")
    task = start(first, log)
    await clock.advance(1)
    first.guard()
    clock._monotonic += 60  # the freeze: time passed, no task ran
    assert not first.is_leading
    with pytest.raises(LeadershipLost):
        first.guard()
    await stop(task)


async def test_a_jump_of_the_wall_clock_changes_nothing() -> None:
    leases, clock = Leases(), ManualClock()
    log: list[str] = []
    tasks = [start(elector(leases, clock, name), log) for name in ("a", "b")]
    await clock.advance(5)
    for jump in (86400, -172800):
        clock.jump(jump)
        await clock.advance(60)
    assert log == ["+a"]
    await stop(*tasks)


class Line:
    """A candidate's own flaky network to the lease."""

    def __init__(self, leases: Leases, clock: ManualClock, rng: random.Random) -> None:
        self._leases, self._clock, self._rng = leases, clock, rng
        self.down_until = 0.0

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any) -> Any:
            if self._clock.monotonic() < self.down_until:
                raise kube_errors.ConnectionFailed("cut")
            result = await getattr(self._leases, name)(*arguments)
            if self._rng.random() < 0.1:
                raise kube_errors.Interrupted("the write happened, the answer was lost")
            return result

        return call


@pytest.mark.parametrize("seed", range(12))
async def test_never_do_two_work_whatever_fails(seed: int) -> None:
    """Three candidates, restarted when they lose, on networks that come and go."""
    rng = random.Random(seed)
    leases, clock = Leases(), ManualClock()
    log: list[str] = []
    lines = {name: Line(leases, clock, rng) for name in "abc"}
    tasks: dict[str, asyncio.Task[None]] = {}
    for step in range(200):
        for name, line in lines.items():
            if name not in tasks or tasks[name].done():
                if name in tasks:
                    await asyncio.gather(tasks[name], return_exceptions=True)
                tasks[name] = start(elector(line, clock, f"{name}{step}"), log)  # type: ignore[arg-type]
            if rng.random() < 0.03:
                line.down_until = clock.monotonic() + rng.uniform(1, 40)
        await clock.advance(rng.uniform(0.1, 3))
        working = sum(1 if entry[0] == "+" else -1 for entry in log)
        assert working in (0, 1), log
    await stop(*tasks.values())
    assert sum(entry[0] == "+" for entry in log) > 1, "leadership never moved: the test proves nothing"


async def test_a_leader_whose_requests_hang_stops_at_the_renew_deadline() -> None:
    """A request without answer must not carry the work past the moment at which somebody else may start."""
    leases, clock = Leases(), ManualClock()
    log: list[str] = []
    task = start(elector(leases, clock, "a"), log)
    await clock.advance(1)
    leases.is_hanging = True
    await clock.advance(8.9)
    assert log == ["+a"]
    await clock.advance(0.2)
    assert log == ["+a", "-a"]
    leases.is_hanging = False
    with pytest.raises(LeadershipLost, match="could not be renewed within 10s"):
        await task


async def test_the_lease_is_never_shorter_than_the_time_the_holder_counts_with() -> None:
    leases, clock = Leases(), ManualClock()
    log: list[str] = []
    task = start(elector(leases, clock, "a", timing=Timing(1.4, 1.3, 0.5)), log)
    await clock.advance(0.1)
    assert leases.lease is not None and leases.lease["spec"]["leaseDurationSeconds"] == 2
    await stop(task)


async def test_who_leads_is_told_as_events_on_the_lease() -> None:
    leases, clock = Leases(), ManualClock()
    log: list[str] = []
    told = Told()
    candidate = elector(leases, clock, "a", recorder=told)
    task = start(candidate, log)
    await clock.advance(1)
    assert candidate.leader == "a"
    await stop(task)
    assert candidate.leader == ""
    assert told.messages == ["a became leader", "a stopped leading"]
    assert told.about == {("Lease", "kube-system", "lock", "lease-uid")}
    assert told.reasons == {("Normal", "LeaderElection")}


async def test_health_fails_when_leading_goes_on_long_after_the_lease_ran_out() -> None:
    leases, clock = Leases(), ManualClock()
    log: list[str] = []
    candidate = elector(leases, clock, "a")
    candidate.check()
    task = start(candidate, log)
    await clock.advance(1)
    candidate.check()
    clock._monotonic += 33  # frozen: nobody renewed, nobody stopped
    candidate.check()
    clock._monotonic += 3
    with pytest.raises(LeadershipLost, match="expired"):
        candidate.check()
    await stop(task)
    candidate.check()


@pytest.mark.parametrize("renewals", [0, 2])
async def test_a_lease_is_given_back_even_when_the_stop_comes_between_a_write_and_its_answer(renewals: int) -> None:
    leases, clock = Leases(), ManualClock()
    log: list[str] = []
    task = start(elector(leases, clock, "a"), log)
    if renewals:
        await clock.advance(1)
    leases.loses_answers = True
    await clock.advance(2.5)
    assert holder(leases) == "a"
    leases.loses_answers = False
    await stop(task)
    assert holder(leases) == ""
