"""Waiting for conditions: the one way in which a test waits for something that another task or process does.

In: a question, asked again and again. Out: the first answer that is true. The deadline is there to end a test that
would wait forever; no test succeeds or fails by how long something took.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
DEADLINE_S = 120.0
STEP_S = 0.02


async def until(
    question: Callable[[], T | Awaitable[T]],
    what: str = "the condition holds",
    *,
    deadline_s: float = DEADLINE_S,
    step_s: float = STEP_S,
    describe: Callable[[], object] | None = None,
) -> T:
    """Ask, in a task, until the answer is true; the answer. `describe` says what is the case instead."""
    end = time.monotonic() + deadline_s
    while True:
        answer = question()
        value: T = await answer if inspect.isawaitable(answer) else answer  # type: ignore[assignment]
        if value:
            return value
        _check(end, what, deadline_s, describe)
        await asyncio.sleep(step_s)


def wait_until(
    question: Callable[[], T],
    what: str = "the condition holds",
    *,
    deadline_s: float = DEADLINE_S,
    step_s: float = STEP_S,
    describe: Callable[[], object] | None = None,
) -> T:
    """The same for a test that is not a coroutine, or in a thread."""
    end = time.monotonic() + deadline_s
    while not (value := question()):
        _check(end, what, deadline_s, describe)
        time.sleep(step_s)
    return value


def _check(end: float, what: str, deadline_s: float, describe: Callable[[], object] | None) -> None:
    if time.monotonic() > end:
        instead = f": {describe()}" if describe is not None else ""
        raise AssertionError(f"waited {deadline_s:.0f} s until {what}{instead}")
