"""What a failed attempt means for its key: try again, when, or not; and how loudly to log it.

In: the error. Out: a `Decision`. Pure. Every loop that works off keys asks here; each keeps its own queue and backoff.

    error                             again                                        outcome
    Conflict                          with backoff                                 CONFLICT  expected: read again
    Postponed                         after exactly its retry_after_s              FAILED
    other Retryable                   with backoff, not before its retry_after_s   FAILED
    NotFound, AlreadyExists, Denied   with backoff                                 FAILED    others may change the cause
    other Terminal                    only when the object changes                 REFUSED
    TimeoutError                      with backoff                                 FAILED
    anything else                     with backoff                                 BUG       logged with its traceback

`Denied` and its like are retried although the program cannot change them: somebody grants a role, frees a quota or
creates what was missing, and no watch tells.
"""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass

from bedplate.core import errors

__all__ = ["Decision", "Outcome", "Postponed", "Retry", "decide", "is_cancelled"]


class Postponed(errors.Retryable):
    """Not yet: try again after `retry_after_s`, whatever the queue's own backoff says."""

    def __init__(self, message: str, after_s: float) -> None:
        super().__init__(message, retry_after_s=after_s)


class Retry(enum.Enum):
    """When a key is tried again."""

    BACKOFF = enum.auto()
    """After the queue's backoff, and not before `delay_s`."""
    AFTER = enum.auto()
    """After `delay_s`; the failure does not count for the backoff."""
    NEVER = enum.auto()
    """When something changes."""


class Outcome(enum.Enum):
    """How a failure is logged."""

    CONFLICT = enum.auto()
    FAILED = enum.auto()
    REFUSED = enum.auto()
    BUG = enum.auto()


@dataclass(frozen=True, slots=True)
class Decision:
    """What a failed attempt means for its key."""

    retry: Retry
    outcome: Outcome
    delay_s: float = 0.0


_OTHERS_MAY_CHANGE = (errors.NotFound, errors.AlreadyExists, errors.Denied)


def decide(error: BaseException, *, gives_up: bool = True, expected: tuple[type[Exception], ...] = ()) -> Decision:
    """The decision for an error.

    `gives_up` False: even a terminal error is tried again, for loops whose objects depend on more than is watched.
    `expected`: further errors that are failures, not bugs.
    """
    delay_s = (error.retry_after_s or 0.0) if isinstance(error, errors.Retryable) else 0.0
    match error:
        case errors.Conflict():
            return Decision(Retry.BACKOFF, Outcome.CONFLICT, delay_s)
        case Postponed():
            return Decision(Retry.AFTER, Outcome.FAILED, delay_s)
        case errors.Terminal() if gives_up and not isinstance(error, _OTHERS_MAY_CHANGE):
            return Decision(Retry.NEVER, Outcome.REFUSED)
    is_failure = isinstance(error, (errors.BedplateError, TimeoutError, *expected))
    return Decision(Retry.BACKOFF, Outcome.FAILED if is_failure else Outcome.BUG, delay_s)


def is_cancelled() -> bool:
    """Whether the current task is to end. A `CancelledError` alone does not say so: an attempt may have awaited a task
    that somebody else cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
