"""Machines that come and go on a schedule."""

from __future__ import annotations

import asyncio

import pytest

from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.sim.clouds import BmmCloud, Churn, OxideCloud, Schedule, Step

CHURN = Churn(stop_every_s=30, stopped_for_s=20, terminate_every_s=70, replaced_after_s=15)


async def churned(seed: int, seconds: float) -> tuple[BmmCloud, Schedule]:
    time = ManualClock()
    cloud = BmmCloud(machines=10, time=time)
    schedule = Schedule(cloud, CHURN, seed=seed)
    running = asyncio.create_task(schedule.run())
    await time.advance(seconds)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return cloud, schedule


async def test_the_same_seed_gives_the_same_steps() -> None:
    (_, one), (_, two), (_, other) = await churned(1, 600), await churned(1, 600), await churned(2, 600)
    assert one.done == two.done != other.done


async def test_what_stops_starts_again_and_what_is_terminated_is_replaced_under_its_name() -> None:
    cloud, schedule = await churned(3, 3600)
    verbs = [step.verb for step in schedule.done]
    assert 80 < verbs.count("stop") < 160
    assert 35 < verbs.count("terminate") < 70
    open_ends = {"stop": "start", "terminate": "add"}
    for position, step in enumerate(schedule.done[:-20]):
        if step.verb in open_ends:
            following = next(each for each in schedule.done[position + 1 :] if each.name == step.name)
            assert following.verb == open_ends[step.verb]
    assert {machine.name for machine in cloud.all()} <= {f"bmm-{number:03d}" for number in range(1, 11)}
    assert 7 <= len(cloud.all()) <= 10


async def test_steps_are_done_in_their_time_and_a_schedule_without_churn_ends() -> None:
    time = ManualClock()
    cloud = OxideCloud(instances=2, time=time)
    steps = [Step(20, "terminate", "oxide-002"), Step(10, "stop", "oxide-001"), Step(30, "add", "late")]
    schedule = Schedule(cloud, steps=steps)
    running = asyncio.create_task(schedule.run())
    await time.advance(9)
    assert schedule.next_in_s == 1
    await time.advance(1)
    assert cloud.get("oxide-001").state == "stopped"
    await time.advance(20)
    assert [machine.name for machine in cloud.all()] == ["oxide-001", "late"]
    await running
    assert [step.verb for step in schedule.done] == ["stop", "terminate", "add"]


async def test_a_step_for_a_machine_that_somebody_removed_is_passed_over() -> None:
    time = ManualClock()
    cloud = BmmCloud(machines=1, time=time)
    schedule = Schedule(cloud, steps=[Step(1, "stop", "ghost"), Step(2, "stop", "bmm-001")])
    await time.advance(3)
    schedule.catch_up()
    assert [step.name for step in schedule.done] == ["bmm-001"]


async def test_a_cloud_without_machines_keeps_its_schedule() -> None:
    time = ManualClock()
    cloud = BmmCloud(time=time)
    schedule = Schedule(cloud, Churn(stop_every_s=10))
    await time.advance(100)
    schedule.catch_up()
    assert schedule.done == []
    cloud.add("first")
    await time.advance(20)
    schedule.catch_up()
    assert schedule.done[0].name == "first"


async def test_an_unknown_step_is_refused() -> None:
    with pytest.raises(errors.Invalid, match="explode"):
        Schedule(BmmCloud(), steps=[Step(1, "explode")])
