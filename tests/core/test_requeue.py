"""What a failed attempt means: when its key is tried again, and how the failure is logged."""

from __future__ import annotations

import asyncio

import pytest

from bedplate.core import errors
from bedplate.core.requeue import Decision, Outcome, Postponed, Retry, decide, is_cancelled


class Odd(Exception):
    """An error of a loop of its own."""


@pytest.mark.parametrize(
    ("error", "decision"),
    [
        (errors.Conflict("changed"), Decision(Retry.BACKOFF, Outcome.CONFLICT)),
        (Postponed("not yet", 7.0), Decision(Retry.AFTER, Outcome.FAILED, 7.0)),
        (errors.Unavailable("away"), Decision(Retry.BACKOFF, Outcome.FAILED)),
        (errors.Unavailable("busy", retry_after_s=3.0), Decision(Retry.BACKOFF, Outcome.FAILED, 3.0)),
        (errors.NotFound("gone"), Decision(Retry.BACKOFF, Outcome.FAILED)),
        (errors.AlreadyExists("there"), Decision(Retry.BACKOFF, Outcome.FAILED)),
        (errors.Denied("no"), Decision(Retry.BACKOFF, Outcome.FAILED)),
        (errors.Invalid("wrong"), Decision(Retry.NEVER, Outcome.REFUSED)),
        (errors.Terminal("no"), Decision(Retry.NEVER, Outcome.REFUSED)),
        (TimeoutError(), Decision(Retry.BACKOFF, Outcome.FAILED)),
        (asyncio.CancelledError(), Decision(Retry.BACKOFF, Outcome.BUG)),
        (KeyError("x"), Decision(Retry.BACKOFF, Outcome.BUG)),
    ],
)
def test_each_error_has_its_decision(error: BaseException, decision: Decision) -> None:
    assert decide(error) == decision


def test_a_loop_that_does_not_give_up_tries_terminal_errors_again() -> None:
    assert decide(errors.Invalid("wrong"), gives_up=False) == Decision(Retry.BACKOFF, Outcome.FAILED)


def test_errors_that_a_loop_expects_are_failures_and_not_bugs() -> None:
    assert decide(Odd()) == Decision(Retry.BACKOFF, Outcome.BUG)
    assert decide(Odd(), expected=(Odd,)) == Decision(Retry.BACKOFF, Outcome.FAILED)


async def test_only_the_cancellation_of_the_task_itself_ends_it() -> None:
    seen: list[bool] = []

    async def attempt() -> None:
        other = asyncio.ensure_future(asyncio.Event().wait())
        other.cancel()
        try:
            await other
        except asyncio.CancelledError:
            seen.append(is_cancelled())
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append(is_cancelled())

    task = asyncio.create_task(attempt())
    while not seen:
        await asyncio.sleep(0)
    task.cancel()
    await task
    assert seen == [False, True]
