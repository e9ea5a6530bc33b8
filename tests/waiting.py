"""Waiting for conditions: the one way in which a test waits for something that another task or process does.

In: a question, asked again and again. Out: the first answer that is true. The deadline is there to end a test that
would wait forever; no test succeeds or fails by how long something took.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar, overload

T = TypeVar("T")
DEADLINE_S = float(os.environ.get("BEDPLATE_TEST_PATIENCE", "120"))
"""How long a test waits for what must come; shorter only to see known failures sooner."""
STEP_S = 0.05
FIRST_STEP_S = 0.002


@overload
async def until(
    question: Callable[[], Awaitable[T]],
    what: str = "the condition holds",
    *,
    deadline_s: float = DEADLINE_S,
    step_s: float = STEP_S,
    describe: Callable[[], object] | None = None,
) -> T: ...
@overload
async def until(
    question: Callable[[], T],
    what: str = "the condition holds",
    *,
    deadline_s: float = DEADLINE_S,
    step_s: float = STEP_S,
    describe: Callable[[], object] | None = None,
) -> T: ...
async def until(
    question: Callable[[], Any],
    what: str = "the condition holds",
    *,
    deadline_s: float = DEADLINE_S,
    step_s: float = STEP_S,
    describe: Callable[[], object] | None = None,
) -> Any:
    """Ask, in a task, until the answer is true; the answer. `describe` says what is the case instead."""
    steps = _steps(step_s)
    try:
        async with asyncio.timeout(deadline_s) as limit:
            while True:
                answer = question()
                value = await answer if inspect.isawaitable(answer) else answer
                if value:
                    return value
                await asyncio.sleep(next(steps))
    except TimeoutError:
        if not limit.expired():
            raise
        raise _waited(what, deadline_s, describe) from None


def wait_until(
    question: Callable[[], T],
    what: str = "the condition holds",
    *,
    deadline_s: float = DEADLINE_S,
    step_s: float = STEP_S,
    describe: Callable[[], object] | None = None,
) -> T:
    """The same for a test that is not a coroutine, or in a thread."""
    end, steps = time.monotonic() + deadline_s, _steps(step_s)
    while not (value := question()):
        if time.monotonic() > end:
            raise _waited(what, deadline_s, describe)
        time.sleep(next(steps))
    return value


def _steps(longest_s: float) -> Iterator[float]:
    """Pauses between two questions: short at first, for most conditions hold soon, then `longest_s`."""
    step_s = min(FIRST_STEP_S, longest_s)
    while True:
        yield step_s
        step_s = min(2 * step_s, longest_s)


def _waited(what: str, deadline_s: float, describe: Callable[[], object] | None) -> AssertionError:
    instead = f": {describe()}" if describe is not None else ""
    return AssertionError(f"waited {deadline_s:.0f} s until {what}{instead}")
