"""Who is asking over HTTP, and whether they may: before any route of the API is entered.

In: requests with a bearer token, or over a connection with a client certificate. Out: `identity(request)`; 401 and 403
as problems with a hint. Which right an address needs is decided here by its form (`needed`); what lies in a body (which
modes, which secrets) is asked by the route with `access.demand_edits`.

Only `/api/` and `/metrics` are guarded here: health is for everybody, and the page has logins of its own.
"""

from __future__ import annotations

import ssl
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from bedplate.api.headapi import Problem
from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.core.logging import get_logger
from bedplate.head import Access, Failures, Identity, Lasting, demand, may, subject_of
from bedplate.ui.rest.problems import TYPES, Unauthorized, answer

__all__ = ["guard", "identity", "lasting", "needed", "presented"]

_LOG = get_logger("head.access")
_IDENTITY: Final = web.RequestKey("identity", Identity)
_API = "/api/v1/"
_SAFE = ("GET", "HEAD", "OPTIONS")
_QUESTIONS = ("plan", "check")


def identity(request: web.Request) -> Identity:
    """Who is asking; to be used behind `guard`."""
    return request[_IDENTITY]


def needed(method: str, path: str) -> tuple[str, str] | None:
    """The verb and the resource an address needs; None: anybody who is known may."""
    parts = path.removeprefix(_API).split("/")
    is_read = method in _SAFE
    match parts:
        case ["whoami"]:
            return None
        case ["nodes", name, "desired"]:
            return "read", f"node/{name}"
        case ["nodes", name, "report"]:
            return "report", f"node/{name}"
        case ["nodes", name, "turns" | "images" | "agents" | "snapshots", *_]:
            return "report", f"node/{name}"
        case ["turns" | "rollout" | "errands" | "images" as resource, *_]:
            return ("read" if is_read else "edit"), resource
        case ["setup-form"]:
            return "read", "setups"
        case ["setups", *_]:
            return ("read" if is_read else "edit"), "setups"
        case ["nodes", name, "certificate"]:
            return "renew", f"node/{name}"
        case ["join"]:
            return "edit", "join"
        case ["enrolments"] if not is_read:
            return "enrol", "enrolments"
        case ["enrolments", _] if is_read:
            return "read", "own enrolment"
        case ["enrolments", *_]:
            return ("read" if is_read else "edit"), "enrolments"
        case ["tokens" | "certificates" | "revocations" | "authority", *_]:
            return ("read" if is_read else "edit"), "tokens"
        case ["objects", mode, *_] if not is_read:
            return "edit", f"mode/{mode}"
        case [resource] if resource in _QUESTIONS:
            return "read", "tree"
    if path == "/metrics":
        return "read", "metrics"
    return ("read" if is_read else "edit"), "tree"


def lasting(access: Access, clock: Clock, request: web.Request) -> Lasting:
    """What a request that lasts asks at every event and heartbeat. It raises `Unauthorized` once the credential is
    revoked or expired, its owner disabled, or may no longer ask for that."""

    def question() -> Identity:
        caller, reason = _identify(access, request)
        right = needed(request.method, request.path)
        if caller is None or caller.name != identity(request).name:
            raise Unauthorized(reason, hint="sign in again, with another credential")
        if right is not None and not may(caller, *right):
            raise Unauthorized(f"{caller.name} may no longer {right[0]} that", hint="ask an administrator")
        return caller

    return Lasting(access, clock, question)


def guard(access: Access, failures: Failures) -> Middleware:
    """The middleware. It belongs outside of those that turn errors into problems: it makes its own."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not request.path.startswith("/api/") and request.path != "/metrics":
            return await handler(request)
        caller, reason = _identify(access, request)
        if caller is None:
            _LOG.info("head.refused", path=request.path, remote=request.remote, reason=reason)
            if "Authorization" in request.headers:
                await failures.slow(request.remote or "an unknown address")
            return _problem(HTTPStatus.UNAUTHORIZED, reason, "give a bearer token or a client certificate of this head")
        right = needed(request.method, request.path)
        try:
            if right is not None:
                demand(caller, *right)
            _refuse_foreign_pages(request, caller)
        except errors.Denied as err:
            _LOG.info("head.denied", path=request.path, user=caller.name, role=caller.role, reason=str(err))
            return _problem(HTTPStatus.FORBIDDEN, str(err), err.hint)
        request[_IDENTITY] = caller
        return await handler(request)

    return check


def _identify(access: Access, request: web.Request) -> tuple[Identity | None, str]:
    """Who is asking, or why nobody is. A token counts before a certificate; a wrong one is not made good by it."""
    header = request.headers.get("Authorization", "").strip()
    if header:
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return None, "the Authorization header contains no bearer token"
        return access.by_token(
            token.strip()
        ), "the bearer token is unknown, revoked or expired, or its owner no longer exists"
    connection, der = _connection(request), presented(request)
    if connection is None or der is None:
        return None, "the request carries no credential"
    subject = subject_of(connection.getpeercert() or {})
    reason = "the client certificate was revoked, or does not belong to an enabled user or a node"
    return access.by_certificate(subject, der), reason


def presented(request: web.Request) -> bytes | None:
    """The client certificate of the connection; None where there is none."""
    connection = _connection(request)
    return connection.getpeercert(binary_form=True) if connection is not None else None


def _connection(request: web.Request) -> ssl.SSLObject | None:
    connection = request.transport.get_extra_info("ssl_object") if request.transport is not None else None
    return connection if isinstance(connection, ssl.SSLObject) else None


def _refuse_foreign_pages(request: web.Request, caller: Identity) -> None:
    """A browser sends its certificate along with whatever another site's page asks for; such a request says its origin.

    A token is never sent by accident, so it needs no such check.
    """
    origin = request.headers.get("Origin", "")
    if (
        caller.via == "certificate"
        and request.method not in _SAFE
        and origin
        and urlsplit(origin).netloc != request.host
    ):
        raise errors.Denied(
            f"requests from pages of {origin} may not write", hint="use the head's own page, or a token"
        )


def _problem(status: HTTPStatus, detail: str, hint: str) -> web.Response:
    headers = {"WWW-Authenticate": 'Bearer realm="bedplate"'} if status == HTTPStatus.UNAUTHORIZED else {}
    problem = Problem(type=TYPES["denied"], title=status.phrase, status=int(status), detail=detail, hint=hint)
    return answer(problem, headers)
