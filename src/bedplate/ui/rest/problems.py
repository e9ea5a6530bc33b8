"""Errors as answers: RFC 9457 problems, everywhere.

In: errors of `bedplate.core.errors`, of aiohttp, and bugs. Out: `application/problem+json` with what happened and what
to do next. 400 is for a request that does not follow the document; 409 for one that the present tree stands against;
500 only for a bug, which is logged with its traceback and told without.
"""

from __future__ import annotations

import math
from http import HTTPStatus

import msgspec
from aiohttp import web

from bedplate.api.headapi import Problem
from bedplate.core import errors
from bedplate.head import NonceReused, NotActive, Stale, StoreFull, TooManyReports

__all__ = ["ACTIVE", "TYPES", "Malformed", "Precondition", "Unauthorized", "Unconditional", "answer", "from_error"]

ACTIVE = "Bedplate-Active"
_MIME = "application/problem+json"
_MOST_PROBLEMS = 100

TYPES = {
    "stale": "urn:bedplate:stale",
    "invalid": "urn:bedplate:invalid",
    "conflict": "urn:bedplate:conflict",
    "not-found": "urn:bedplate:not-found",
    "denied": "urn:bedplate:denied",
    "unavailable": "urn:bedplate:unavailable",
}


class Malformed(errors.Invalid):
    """The request does not conform to the document; `status` if 400 is not specific enough."""

    def __init__(self, message: str, *, hint: str = "", problems: list[str] | None = None, status: int = 400) -> None:
        super().__init__(message, hint=hint, problems=problems or ())
        self.status = status


class Precondition(errors.Conflict):
    """The condition of `If-Match` or `If-None-Match` failed."""


class Unauthorized(errors.Denied):
    """The credential that a request was admitted with is no longer valid."""


class Unconditional(errors.Conflict):
    """A write that needs a condition has none."""


def answer(problem: Problem, headers: dict[str, str] | None = None) -> web.Response:
    """The response that carries a problem."""
    return web.Response(
        status=problem.status, body=msgspec.json.encode(problem), content_type=_MIME, headers=headers or {}
    )


def from_error(err: Exception) -> web.Response:
    """The answer to a request that failed."""
    if isinstance(err, web.HTTPException):
        return _from_http(err)
    if not isinstance(err, errors.BedplateError):
        return answer(
            Problem(
                type="about:blank",
                title="Internal Server Error",
                status=500,
                detail="internal error in the head",
                hint="its log has the details",
            )
        )
    status, kind, headers = _judged(err)
    problems = list(err.problems[:_MOST_PROBLEMS]) if isinstance(err, errors.Invalid) else []
    author, revision = (err.author, err.revision) if isinstance(err, Stale) else ("", 0)
    return answer(
        Problem(
            type=TYPES[kind],
            title=HTTPStatus(status).phrase,
            status=status,
            detail=err.message,
            hint=err.hint,
            problems=problems,
            author=author,
            revision=revision,
            active=headers.get(ACTIVE, ""),
        ),
        headers,
    )


def _judged(err: errors.BedplateError) -> tuple[int, str, dict[str, str]]:
    """Status, kind and headers."""
    match err:
        case Stale():
            return 409, "stale", {}
        case Precondition():
            return 412, "conflict", {}
        case Unconditional():
            return 428, "conflict", {}
        case NonceReused():
            return 422, "invalid", {}
        case Malformed():
            return err.status, "invalid", {}
        case errors.Invalid():
            return 409, "invalid", {}
        case errors.NotFound():
            return 404, "not-found", {}
        case errors.AlreadyExists() | errors.Conflict():
            return 409, "conflict", {}
        case Unauthorized():
            return 401, "denied", {"WWW-Authenticate": 'Bearer realm="bedplate"'}
        case errors.Denied():
            return 403, "denied", {}
        case StoreFull():
            return 507, "unavailable", {}
        case NotActive() if err.url:
            return 503, "unavailable", {ACTIVE: err.url, "Retry-After": "1"}
        case TooManyReports():
            return 429, "unavailable", {"Retry-After": str(math.ceil(err.retry_after_s or 1))}
        case errors.Retryable():
            wait_s = max(1, round(err.retry_after_s or 1))
            return 503, "unavailable", {"Retry-After": str(wait_s)}
    return 500, "unavailable", {}


_WORDS = {
    404: ("not-found", "there is nothing at this address", "GET /openapi.json lists the addresses"),
    405: ("invalid", "this address does not support that method", "the header Allow lists the supported methods"),
    408: ("invalid", "the body did not arrive in time", "send it again, faster or in parts"),
    413: ("invalid", "the body is too large", "send it in parts, or use the import"),
}


def _from_http(err: web.HTTPException) -> web.Response:
    kind, detail, hint = _WORDS.get(err.status, ("invalid", err.text or err.reason, ""))
    headers = {name: value for name, value in err.headers.items() if name in ("Allow", "Retry-After")}
    return answer(
        Problem(type=TYPES[kind], title=HTTPStatus(err.status).phrase, status=err.status, detail=detail, hint=hint),
        headers,
    )
