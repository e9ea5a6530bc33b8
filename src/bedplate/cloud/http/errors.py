"""What a call may raise.

    CloudError                 (cloud.errors; never absence by itself)
    └── ApiError               method, path, status, request id, the server's message and its decoded error body
        ├── NotFound           404: some thing is not there; which one, only a provider can tell from `body`
        ├── Unauthorized       401, or no token is available
        ├── Forbidden          403
        ├── Conflict           409, 412
        ├── RateLimited        429, or the endpoint has asked everybody to wait
        ├── Invalid            any other 4xx: the request will not get better
        ├── Unavailable        408 and 5xx
        ├── Transport          no answer, or one that was cut off; also while the breaker is open (`is_fail_fast`)
        └── Protocol           no answer to this: wrong content type or JSON type, no JSON, a redirect, a part

No token ever stands in one of these: texts from outside pass `secrets.Scrubber` before they get here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bedplate.cloud.errors import CloudError

__all__ = [
    "ApiError",
    "Conflict",
    "Forbidden",
    "Invalid",
    "NotFound",
    "Protocol",
    "RateLimited",
    "Subject",
    "Transport",
    "Unauthorized",
    "Unavailable",
    "of_status",
]


@dataclass(frozen=True, slots=True)
class Subject:
    """What was asked, and what came back: the facts an error carries."""

    provider: str
    method: str
    path: str
    status: int = 0
    request_id: str = ""
    server_message: str = ""
    body: Any = None


class ApiError(CloudError):
    """A call failed. `body` is the decoded JSON of the error response; None if there was none or it was not JSON."""

    def __init__(self, subject: Subject, reason: str, *, hint: str = "", retry_after_s: float | None = None) -> None:
        text = f"{subject.provider}: {subject.method} {subject.path}: {reason}"
        if subject.request_id:
            text += f" (request {subject.request_id})"
        super().__init__(text, hint=hint, retry_after_s=retry_after_s)
        self.subject = subject
        self.method = subject.method
        self.path = subject.path
        self.status = subject.status
        self.request_id = subject.request_id
        self.server_message = subject.server_message
        self.body = subject.body


class NotFound(ApiError):
    """404. Not the absence of an instance: a wrong path, organisation or project gives the same response."""


class Unauthorized(ApiError):
    """The token was rejected after a renewal, or there is none."""


class Forbidden(ApiError):
    """The token does not allow this."""


class Conflict(ApiError):
    """The state of the object does not allow this now."""


class RateLimited(ApiError):
    """The cloud asks the client to wait."""


class Invalid(ApiError):
    """The request itself was refused."""


class Unavailable(ApiError):
    """The cloud is temporarily unable to do it."""


class Transport(ApiError):
    """No response. `is_sent`: the request may have reached the cloud and taken effect."""

    def __init__(
        self,
        subject: Subject,
        reason: str,
        *,
        is_sent: bool = True,
        is_fail_fast: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(
            subject, reason, hint="check the endpoint, the network and the proxy", retry_after_s=retry_after_s
        )
        self.is_sent = is_sent
        self.is_fail_fast = is_fail_fast


class Protocol(ApiError):
    """The server does not implement this API: a proxy's page, another service, a malformed body."""


_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    408: Unavailable,
    409: Conflict,
    412: Conflict,
    429: RateLimited,
}


def of_status(subject: Subject, retry_after_s: float | None = None) -> ApiError:
    """The error that an answer with this status is (anything that is not 2xx)."""
    status = subject.status
    reason = f"status {status}"
    if subject.server_message:
        reason += f": {subject.server_message}"
    if status >= 500:
        return Unavailable(subject, reason, retry_after_s=retry_after_s)
    if status < 400:
        return Protocol(
            subject, reason, hint="this is not a response from the cloud's API: check the endpoint and the proxy"
        )
    return _BY_STATUS.get(status, Invalid)(subject, reason, retry_after_s=retry_after_s)
