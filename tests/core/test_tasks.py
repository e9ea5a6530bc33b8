"""A cancellation is never lost, also when a task of a group fails in the same moment."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bedplate.core.tasks import TaskGroup

SOURCE = Path(__file__).resolve().parents[2] / "src" / "bedplate"


@pytest.mark.parametrize("rounds", range(6))
async def test_who_is_cancelled_while_a_task_of_its_group_fails_ends(rounds: int) -> None:
    failing, is_over = asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        await failing.wait()
        raise ValueError("lost")

    async def work() -> None:
        try:
            async with TaskGroup() as tasks:
                tasks.create_task(fail())
                await is_over.wait()
        except* ValueError:
            pass
        await is_over.wait()

    task = asyncio.create_task(work())
    for _ in range(3):
        await asyncio.sleep(0)
    failing.set()
    for _ in range(rounds):
        await asyncio.sleep(0)
    task.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    assert task.done() and task.cancelled()


@pytest.mark.parametrize("waits", [False, True])
async def test_a_failure_alone_is_handled_and_leaves_nothing_on_the_account_of_the_task(waits: bool) -> None:
    async def fail() -> None:
        raise ValueError("lost")

    with pytest.raises(ExceptionGroup):
        async with TaskGroup() as tasks:
            tasks.create_task(fail())
            if waits:
                await asyncio.Event().wait()
    await asyncio.sleep(0)
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0


@pytest.mark.parametrize("rounds", range(4))
async def test_a_timeout_around_a_group_that_fails_in_the_same_moment_cancels_nothing_later(rounds: int) -> None:
    failing = asyncio.Event()

    async def fail() -> None:
        await failing.wait()
        raise ValueError("lost")

    with pytest.raises((TimeoutError, ExceptionGroup)):
        async with asyncio.timeout(None) as limit, TaskGroup() as tasks:
            tasks.create_task(fail())
            await asyncio.sleep(0)
            failing.set()
            for _ in range(rounds):
                await asyncio.sleep(0)
            limit.reschedule(0.0)
            await asyncio.Event().wait()
    await asyncio.sleep(0)
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0


@pytest.mark.parametrize("name", ["asyncio.TaskGroup", "asyncio.wait_for("])
def test_the_product_uses_nothing_that_loses_a_cancellation(name: str) -> None:
    """The second one returns a result that came in the same moment, and forgets that it was cancelled."""
    users = [str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if name in path.read_text()]
    assert [user for user in users if user != "core/tasks.py"] == []
