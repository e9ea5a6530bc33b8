"""What a head's refusals mean to a program: problems (RFC 9457) as the errors of `bedplate.core.errors`.

In: status and body of an answer. Out: an error. Only an answer that says so is absence (404) or refusal; anything that
cannot be understood is `Unavailable`.

    Conflict ── Stale          another user committed the object first: `author`, `revision`
    Denied ──┬─ Unauthorized   the credential was refused (401)
             └─ Forbidden      the caller may not do that (403)
"""

from __future__ import annotations

import msgspec

from bedplate.api.headapi import Problem
from bedplate.core import errors

__all__ = ["Forbidden", "Stale", "Unauthorized", "from_answer"]

_DECODER = msgspec.json.Decoder(Problem)
_STALE = "urn:bedplate:stale"
_INVALID = "urn:bedplate:invalid"


class Stale(errors.Conflict):
    """Another user committed the object first; `author` and `revision` say who and as what."""

    def __init__(self, message: str, *, hint: str = "", author: str = "", revision: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.author = author
        self.revision = revision


class Unauthorized(errors.Denied):
    """The head does not know the credential."""


class Forbidden(errors.Denied):
    """The head knows the caller, who may not do that."""


def from_answer(status: int, body: bytes, what: str, retry_after_s: float | None = None) -> errors.BedplateError:
    """The error in an answer; `what` says what was tried, for answers that do not speak for themselves."""
    try:
        problem = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return errors.Unavailable(
            f"{what} was answered with status {status} and no word about the reason",
            hint="does the address belong to a head?",
            retry_after_s=retry_after_s,
        )
    text, hint = problem.detail or problem.title, problem.hint
    if problem.type == _STALE:
        return Stale(text, hint=hint, author=problem.author, revision=problem.revision)
    if problem.type == _INVALID or status in (400, 413, 414, 415, 422):
        return errors.Invalid(text, hint=hint, problems=problem.problems)
    if status in (409, 412):
        return errors.Conflict(text, hint=hint)
    if status == 404:
        return errors.NotFound(text, hint=hint)
    if status == 401:
        return Unauthorized(text, hint=hint)
    if status == 403:
        return Forbidden(text, hint=hint)
    return errors.Unavailable(
        text or f"{what} was answered with status {status}", hint=hint, retry_after_s=retry_after_s
    )
