"""Typed errors of the Kubernetes client: what a Status, a lost connection or an unreadable response means for a caller.

    ApiError (core BedplateError)    the server answered with an error; `status`, `code`, `reason`, `method`, `url`
    ├── NotFound                     core NotFound: the server said so about the very object that was asked for
    ├── AlreadyExists                core AlreadyExists
    ├── Conflict                     core Conflict: resourceVersion, uid or field manager
    ├── Invalid, BadRequest, …       core Invalid: `problems` has one line per cause
    ├── Forbidden, Unauthorized      core Denied
    ├── Expired                      core Retryable: 410, history is gone; list again
    ├── TooManyRequests, Timeout, InternalError, ServiceUnavailable      core Unavailable
    ├── Unsupported                  core Terminal: method, media type or size that the server refuses
    └── UnexpectedAnswer             core Unavailable: any other answer, such as a 404 page of a proxy
    ConnectionFailed, Interrupted, Undecodable     core Unavailable: no answer, half an answer, an unreadable one
    CredentialsFailed                core Retryable: a token file or an exec plugin gave nothing usable

In: status codes, headers and bodies. Out: exceptions. Pure. An error is never absence: `NotFound` is raised only for
a Status of reason NotFound whose details name the object that was asked for.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec

from bedplate.api import meta
from bedplate.api.resources import ResourceRef
from bedplate.core import errors

__all__ = [
    "AlreadyExists",
    "ApiError",
    "BadRequest",
    "Conflict",
    "ConnectionFailed",
    "CredentialsFailed",
    "Expired",
    "Forbidden",
    "InternalError",
    "Interrupted",
    "Invalid",
    "NotFound",
    "ServiceUnavailable",
    "Target",
    "Timeout",
    "TooManyRequests",
    "Unauthorized",
    "Undecodable",
    "UnexpectedAnswer",
    "Unsupported",
    "from_response",
    "from_status",
]


class Target(msgspec.Struct, frozen=True):
    """What a request was about: enough to word an error and to judge whether a 404 speaks of it."""

    method: str
    path: str
    ref: ResourceRef[Any] | None = None
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        if self.ref is None:
            return f"{self.method} {self.path}"
        place = f"{self.namespace}/{self.name}".strip("/")
        return f"{self.method} {self.ref.qualified}" + (f" {place}" if place else "")


class ApiError(errors.BedplateError):
    """The API server returned an error."""

    def __init__(self, target: Target, status: meta.Status, retry_after_s: float | None = None, hint: str = "") -> None:
        text = status.message or f"answered {status.code} {status.reason}".rstrip()
        errors.BedplateError.__init__(self, f"{target}: {text}", hint=hint)
        self.target = target
        self.status = status
        self.code = status.code
        self.reason = status.reason
        self.retry_after_s = retry_after_s
        causes = status.details.causes if status.details else ()
        self.problems = tuple(f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes)

    def __str__(self) -> str:
        # The server's own message already joins all causes; the lists of `Invalid` would say them twice.
        return self.message


class NotFound(ApiError, errors.NotFound):
    """The object, or its namespace, does not exist."""


class AlreadyExists(ApiError, errors.AlreadyExists):
    """An object of that name exists."""


class Conflict(ApiError, errors.Conflict):
    """The object changed, has another uid, or another field manager owns a field that was applied."""


class Invalid(ApiError, errors.Invalid):
    """The object breaks the rules of its kind."""


class BadRequest(ApiError, errors.Invalid):
    """The request could not be understood."""


class Unauthorized(ApiError, errors.Denied):
    """The credentials are not accepted."""


class Forbidden(ApiError, errors.Denied):
    """The credentials do not allow it, or admission refused it."""


class Expired(ApiError, errors.Retryable):
    """The resourceVersion or continue token is too old: list again from the start."""


class TooManyRequests(ApiError, errors.Unavailable):
    """The server asked the client to slow down; for an eviction: a disruption budget does not allow it."""


class Timeout(ApiError, errors.Unavailable):
    """The server gave up; the write may have happened."""


class InternalError(ApiError, errors.Unavailable):
    """The server had an internal error."""


class ServiceUnavailable(ApiError, errors.Unavailable):
    """The server, or the one behind an aggregated API, is unavailable."""


class Unsupported(ApiError, errors.Terminal):
    """Method, media type or size that the server will never accept here."""


class UnexpectedAnswer(ApiError, errors.Unavailable):
    """A response that says nothing definite about the object, such as the error page of a proxy or an unknown path."""


class ConnectionFailed(errors.Unavailable):
    """No response: the connection could not be made, was lost, or timed out. A write may or may not have happened."""


class Interrupted(errors.Unavailable):
    """A watch or a body was cut off in the middle."""


class Undecodable(errors.Unavailable):
    """The server reported success, but the body is not the requested object or list."""


class CredentialsFailed(errors.Retryable):
    """A token file could not be read, or an exec plugin returned nothing usable."""


_BY_REASON: dict[str, type[ApiError]] = {
    "AlreadyExists": AlreadyExists,
    "Conflict": Conflict,
    "Invalid": Invalid,
    "BadRequest": BadRequest,
    "Unauthorized": Unauthorized,
    "Forbidden": Forbidden,
    "Gone": Expired,
    "Expired": Expired,
    "TooManyRequests": TooManyRequests,
    "Timeout": Timeout,
    "ServerTimeout": Timeout,
    "InternalError": InternalError,
    "ServiceUnavailable": ServiceUnavailable,
    "MethodNotAllowed": Unsupported,
    "NotAcceptable": Unsupported,
    "UnsupportedMediaType": Unsupported,
    "RequestEntityTooLarge": Unsupported,
    "StoreReadError": InternalError,
}
_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    405: Unsupported,
    406: Unsupported,
    409: Conflict,
    410: Expired,
    413: Unsupported,
    415: Unsupported,
    422: Invalid,
    429: TooManyRequests,
    500: InternalError,
    503: ServiceUnavailable,
    504: Timeout,
}
_HINTS: dict[type[ApiError], str] = {
    Unauthorized: "check the credentials in the kubeconfig, or log in again",
    Forbidden: "grant the permission with RBAC, or use other credentials",
    UnexpectedAnswer: "check that the address leads to the API server and that the resource (CRD) is installed",
}
_STATUS = msgspec.json.Decoder(meta.Status)


def from_response(target: Target, code: int, body: bytes, retry_after_s: float | None = None) -> ApiError:
    """The error that an HTTP answer of 400 or more stands for."""
    try:
        status = _STATUS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = meta.Status()
    if status.kind != "Status":
        # Not from an API server (or an old one without a body): only the code speaks, and a bare 404 says nothing.
        text = body[:200].decode("utf-8", "replace").strip()
        status = meta.Status(code=code, message=f"answered {code} {_phrase(code)}" + (f": {text}" if text else ""))
    elif status.code == 0:
        status = msgspec.structs.replace(status, code=code)
    return from_status(target, status, retry_after_s)


def from_status(target: Target, status: meta.Status, retry_after_s: float | None = None) -> ApiError:
    """The error that a Status stands for, in an answer or in a watch."""
    if retry_after_s is None and status.details is not None and status.details.retry_after_seconds:
        retry_after_s = float(status.details.retry_after_seconds)
    kind: type[ApiError] = _BY_REASON.get(status.reason) or _BY_CODE.get(status.code) or UnexpectedAnswer
    if status.reason == "NotFound" and _speaks_of(target, status.details):
        kind = NotFound
    return kind(target, status, retry_after_s, hint=_HINTS.get(kind, ""))


def _speaks_of(target: Target, details: meta.StatusDetails | None) -> bool:
    """Whether a 404 names the object that was asked for, or the namespace that it needs."""
    if details is None or target.ref is None or not details.name:
        return False
    if details.kind == "namespaces" and details.group == "" and target.namespace:
        return details.name == target.namespace
    if not target.name:
        return False
    same_resource = details.kind in (target.ref.plural, target.ref.kind) and details.group == target.ref.group
    return same_resource and details.name == target.name


def _phrase(code: int) -> str:
    try:
        return HTTPStatus(code).phrase
    except ValueError:
        return ""
