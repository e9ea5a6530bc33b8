"""What the debugging paths show of a running program, and that no values are among it."""

from __future__ import annotations

import asyncio
import time

from bedplate.cloud.manager import profiling


async def test_tasks_are_shown_with_the_place_they_wait_at_and_without_values() -> None:
    async def wait_for_something(token: str) -> None:
        await asyncio.sleep(3600)

    task = asyncio.create_task(wait_for_something("planted-secret"), name="a task of ours")
    await asyncio.sleep(0)
    shown = profiling.tasks() + profiling.threads()
    task.cancel()
    assert "task 'a task of ours'" in shown
    assert "wait_for_something" in shown
    assert "planted-secret" not in shown


async def test_a_sampled_profile_names_what_keeps_the_loop_busy() -> None:
    async def keep_busy() -> None:
        while True:
            until = time.monotonic() + 0.02
            while time.monotonic() < until:
                pass
            await asyncio.sleep(0)

    task = asyncio.create_task(keep_busy())
    shown = await profiling.sample(1.0)
    task.cancel()
    stack, count = next(line for line in shown.splitlines() if "keep_busy" in line).rsplit(" ", 1)
    assert int(count) > 0
    assert ";" in stack


async def test_what_holds_up_the_loop_is_noted() -> None:
    contention = profiling.Contention()
    task = asyncio.create_task(contention.run())

    def hold_up() -> None:
        time.sleep(0.3)

    async with asyncio.timeout(60):
        while "hold_up" not in contention.report():
            await asyncio.sleep(0.05)
            hold_up()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_live_objects_are_counted_by_type() -> None:
    assert "dict" in profiling.heap()
