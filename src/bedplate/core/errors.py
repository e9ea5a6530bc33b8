"""The one tree of errors.

    BedplateError            what happened, to which object; `hint`: what to do next
    ├── Retryable            may succeed when tried again, not before `retry_after_s`
    │   ├── Conflict         the object changed since it was read: read again, decide again
    │   └── Unavailable      the remote system did not answer, or asked us to wait
    └── Terminal             trying again changes nothing until a user acts
        ├── NotFound         a positive, specific answer that the object does not exist
        ├── AlreadyExists    an object of that name is there
        ├── Invalid          the input is wrong; `problems` lists every fault found
        └── Denied           the credentials were refused or do not allow it

An answer that is neither a success nor one of the specific refusals is `Unavailable`, never `NotFound`: an error is
not absence. Only the controller loop turns an error into a requeue; only an entry point turns one into an exit code.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "AlreadyExists",
    "BedplateError",
    "Conflict",
    "Denied",
    "Invalid",
    "NotFound",
    "Retryable",
    "Terminal",
    "Unavailable",
    "describe",
    "only",
]


class BedplateError(Exception):
    """Base of every error this project raises on purpose."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class Retryable(BedplateError):
    """May succeed when retried; `retry_after_s` is the delay that the server requested, if any."""

    exit_code = 3

    def __init__(self, message: str, *, hint: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class Conflict(Retryable):
    """The object changed since it was read."""


class Unavailable(Retryable):
    """No response, or a response that says nothing about the object."""


class Terminal(BedplateError):
    """A retry does not help until a user acts."""


class NotFound(Terminal):
    """A positive, specific response that the object does not exist."""

    exit_code = 4


class AlreadyExists(Terminal):
    """An object of that name already exists."""

    exit_code = 5


class Invalid(Terminal):
    """The input is wrong. `problems` contains every problem, so that one run shows all of them."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "", problems: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        if not self.problems:
            return self.message
        return "\n  - ".join([self.message + ":", *self.problems])


class Denied(Terminal):
    """The credentials were refused, or do not allow the action."""

    exit_code = 6


def only(group: BaseExceptionGroup[BaseException]) -> BedplateError | None:
    """The first error of a group that holds nothing but errors of this tree; None when a bug is among them."""
    ours, others = group.split(BedplateError)
    if ours is None or others is not None:
        return None
    error: BaseException = ours
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, BedplateError), "split leaves nothing else"
    return error


def describe(error: BaseException) -> str:
    """One text for people: the error, its causes in one line each, and what to do next."""
    lines = [str(error) or type(error).__name__]
    cause = error.__cause__
    while cause is not None:
        text = str(cause) or type(cause).__name__
        if text not in lines[-1]:
            lines.append(f"  because: {text}")
        cause = cause.__cause__
    hint = getattr(error, "hint", "")
    if hint:
        lines.append(f"  next: {hint}")
    return "\n".join(lines)
