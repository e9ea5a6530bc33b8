"""Leases under competition: of many writers one wins, and two electors never hold at once."""

from __future__ import annotations

import asyncio
import datetime

from tests.conformance.http import Api, Json
from tests.conformance.objects import path


def leases(ns: str, name: str = "") -> str:
    return path("coordination.k8s.io", "v1", ns, "leases", name)


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def lease(holder: str, seconds: int = 15, transitions: int = 0) -> Json:
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": seconds,
        "acquireTime": now(),
        "renewTime": now(),
        "leaseTransitions": transitions,
    }
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": spec}


async def test_of_many_creators_one_wins(api: Api, ns: str) -> None:
    replies = await asyncio.gather(*(api.post(leases(ns), lease(f"c{number}")) for number in range(16)))
    assert sorted(reply.status for reply in replies) == [201] + [409] * 15
    winner = next(reply.json for reply in replies if reply.status == 201)
    assert (await api.read(leases(ns, "l")))["spec"] == winner["spec"]


async def test_of_many_takers_one_wins(api: Api, ns: str) -> None:
    held = await api.create(leases(ns), lease("old"))
    bodies = [{**held, "spec": lease(f"t{number}", transitions=1)["spec"]} for number in range(16)]
    replies = await asyncio.gather(*(api.put(leases(ns, "l"), body) for body in bodies))
    assert sorted(reply.status for reply in replies) == [200] + [409] * 15


async def test_micro_times_are_kept_to_the_microsecond(api: Api, ns: str) -> None:
    body = lease("x")
    body["spec"]["renewTime"] = "2026-01-02T03:04:05.678901Z"
    made = await api.create(leases(ns), body)
    assert made["spec"]["renewTime"] == "2026-01-02T03:04:05.678901Z"
    body = {**made, "spec": {**made["spec"], "renewTime": "2026-01-02T03:04:06.000000+02:00"}}
    assert (await api.put(leases(ns, "l"), body)).expect(200)["spec"]["renewTime"] == "2026-01-02T01:04:06.000000Z"
    body["spec"]["renewTime"] = "2026-01-02T03:04:06Z"
    (await api.put(leases(ns, "l"), body)).fails(400, "BadRequest")


async def test_counted_increments_lose_none(api: Api, ns: str) -> None:
    """Read, add one, write back; repeat on conflict: the final count is the number of writers times their turns."""
    await api.create(leases(ns), lease("x"))

    async def count(turns: int) -> None:
        done = 0
        while done < turns:
            held = await api.read(leases(ns, "l"))
            held["spec"]["leaseTransitions"] += 1
            reply = await api.put(leases(ns, "l"), held)
            assert reply.status in (200, 409), reply
            done += reply.status == 200

    await asyncio.gather(*(count(5) for _ in range(6)))
    assert (await api.read(leases(ns, "l")))["spec"]["leaseTransitions"] == 30


async def test_two_electors_take_turns_and_never_overlap(api: Api, ns: str) -> None:
    await api.create(leases(ns), lease(""))
    holders: list[str] = []
    inside = 0

    async def elect(identity: str, terms: int) -> None:
        nonlocal inside
        while terms:
            held = await api.read(leases(ns, "l"))
            if held["spec"].get("holderIdentity"):
                continue
            held["spec"]["holderIdentity"] = identity
            reply = await api.put(leases(ns, "l"), held)
            if reply.status == 409:
                continue
            inside += 1
            assert inside == 1
            holders.append(identity)
            terms -= 1
            await asyncio.sleep(0)
            inside -= 1
            mine = reply.expect(200)
            mine["spec"]["holderIdentity"] = ""
            (await api.put(leases(ns, "l"), mine)).expect(200)

    await asyncio.gather(elect("a", 5), elect("b", 5))
    assert sorted(holders) == ["a"] * 5 + ["b"] * 5


async def test_a_lease_is_checked(api: Api, ns: str) -> None:
    status = (await api.post(leases(ns), lease("x", seconds=0))).fails(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "spec.leaseDurationSeconds"
    body = lease("x")
    body["spec"]["renewTime"] = "noon"
    (await api.post(leases(ns), body)).fails(400, "BadRequest")


async def test_a_deleted_and_recreated_lease_refuses_the_old_holder(api: Api, ns: str) -> None:
    held = await api.create(leases(ns), lease("old"))
    (await api.delete(leases(ns, "l"))).expect(200)
    await api.create(leases(ns), lease("new"))
    (await api.put(leases(ns, "l"), held)).fails(409, "Conflict")
    assert (await api.read(leases(ns, "l")))["spec"]["holderIdentity"] == "new"
