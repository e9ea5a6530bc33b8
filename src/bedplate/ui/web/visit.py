"""One request of somebody who is signed in, and the door in front of every handler.

In: requests with a login's cookie. Out: the handler's answer with the page's headers; the page for signing in; errors
as pages that say what to do next. A form is taken only with the token of the login it was made for, and only from
somebody who may edit. Writes of one login wait for each other.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from aiohttp import web

from bedplate.core import errors
from bedplate.core.logging import get_logger
from bedplate.head import Identity, Path, Session, Stale, Tree, may
from bedplate.head.daemon import Service
from bedplate.ui.web import engine
from bedplate.ui.web.links import navigation
from bedplate.ui.web.logins import IDLE_S, Login, Logins

__all__ = [
    "PEOPLE",
    "Door",
    "Visit",
    "cookie",
    "has_ended",
    "is_foreign",
    "is_secure",
    "person_of",
    "set_cookie",
    "typed_in",
]

_LOG = get_logger("head.page")
_STATUS = {
    errors.NotFound: (404, "Not found"),
    errors.Denied: (403, "Forbidden"),
    errors.AlreadyExists: (409, "Already exists"),
    errors.Conflict: (409, "Conflict"),
    errors.Invalid: (400, "Invalid"),
    errors.Unavailable: (503, "Unavailable"),
}
PEOPLE = ("admin", "operator", "auditor")


@dataclass(slots=True)
class Visit:
    """One request of somebody who is signed in.

    `tree` is what the login sees: the head's newest, with its own staged edits in it."""

    service: Service
    request: web.Request
    login: Login
    person: Identity
    typed: Mapping[str, str]

    @property
    def session(self) -> Session:
        return self.login.session

    @property
    def tree(self) -> Tree:
        return self.login.session.tree

    @property
    def may_edit(self) -> bool:
        """Whether edits are offered: to those who may, by the head that writes."""
        return may(self.person, "edit", "tree") and self.service.head.standing.is_active

    def path(self) -> Path:
        """The path of the tree in the address. Raises `NotFound` for a mode that is none."""
        parts = tuple(part for part in self.request.match_info["path"].split("/") if part)
        if not parts:
            raise errors.NotFound("the address does not contain a mode")
        return (self.tree.schema.mode(parts[0]).shell, *parts[1:])

    def number(self) -> int:
        """The revision in the address."""
        return int(self.request.match_info["number"])

    def page(self, template: str, title: str, status: int = 200, **values: Any) -> web.Response:
        """A page of the site, with its frame."""
        frame = {
            "title": title,
            "site": self.service,
            "person": self.person,
            "may_edit": self.may_edit,
            "form_token": self.login.form_token,
            "flashes": [] if is_renewal(self.request) else self.login.take_flashes(),
            "staged_count": len(self.session.edits()),
            "revision": self.service.head.revision,
            "standing": self.service.head.standing,
            "notice": self.service.notices.last,
            "navigation": navigation(self.tree.schema, self.request.path),
            "query": "",
        }
        return engine.respond(template, frame | values, status)

    def go(self, address: str) -> web.Response:
        """On to another page, after a form."""
        return web.Response(status=303, headers={**engine.SECURITY, "Location": address, "Cache-Control": "no-store"})


Handler = Callable[[Visit], Awaitable[web.StreamResponse]]


class Door:
    """Lets those in who are signed in."""

    def __init__(self, service: Service, logins: Logins) -> None:
        self._service = service
        self._logins = logins

    def page(self, handler: Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """A page that anybody who is signed in may read."""

        async def answer(request: web.Request) -> web.StreamResponse:
            pair = await self._signed_in(request)
            if pair is None:
                location = f"/login?next={quote(request.path_qs, safe='/')}"
                return web.Response(status=303, headers={**engine.SECURITY, "Location": location})
            return await self._answered(Visit(self._service, request, *pair, {}), handler)

        return answer

    def editor(self, handler: Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """A page for those who may edit."""

        async def checked(visit: Visit) -> web.StreamResponse:
            _refuse_readers(visit)
            visit.service.head.standing.refuse_writes()
            return await handler(visit)

        return self.page(checked)

    def form(self, handler: Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """What a form of somebody who may edit asks for."""

        async def checked(visit: Visit) -> web.StreamResponse:
            _refuse_readers(visit)
            async with visit.login.lock:
                try:
                    return await handler(visit)
                finally:
                    await self._logins.keep(visit.login)

        return self.own_form(checked)

    def own_form(self, handler: Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """What a form of anybody who is signed in asks for, such as signing out."""

        async def answer(request: web.Request) -> web.StreamResponse:
            pair = await self._signed_in(request)
            if pair is None:
                return _alone(
                    self._service,
                    401,
                    "Your session has expired",
                    "nothing was changed",
                    "sign in again; your input is still in the form on the previous page",
                )
            try:
                limits = self._service.limits
                typed = await typed_in(request, limits.form_bytes, limits.body_s)
            except errors.Invalid as err:
                return _error_page(Visit(self._service, request, *pair, {}), err)
            visit = Visit(self._service, request, *pair, typed)
            if not visit.login.is_form_of(typed.get("form_token", "")) or is_foreign(request):
                visit = Visit(self._service, request, *pair, {})
                wrong = errors.Denied(
                    "the form does not belong to this session", hint="load the page again and send it once more"
                )
                return _error_page(visit, wrong)
            return await self._answered(visit, handler)

        return answer

    async def _signed_in(self, request: web.Request) -> tuple[Login, Identity] | None:
        number = request.cookies.get(cookie(request), "")
        login = await self._logins.find(number, self._service.head.tree, is_seen=not is_renewal(request))
        if login is None:
            return None
        person = person_of(self._service, login)
        if person is None:
            await self._logins.end(login)
            return None
        login.session.follow(self._service.head.tree)
        return login, person

    async def _answered(self, visit: Visit, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(visit)
        except errors.BedplateError as err:
            return _error_page(visit, err)
        except web.HTTPException:
            raise
        except Exception as err:
            # Without the values of variables: what was typed may be secret.
            where = "".join(traceback.format_exception(err))
            _LOG.error("head.page_failed", path=visit.request.path, traceback=where)
            broken = errors.Terminal("the page could not be rendered", hint="see the daemon's log")
            return _error_page(visit, broken)


def _refuse_readers(visit: Visit) -> None:
    if not may(visit.person, "edit", "tree"):
        raise errors.Denied(
            f"{visit.person.name} (role {visit.person.role}) has read-only access",
            hint="ask an administrator for the role operator",
        )


def has_ended(service: Service, login: Login) -> bool:
    """Whether somebody signed out, or was not heard of for too long."""
    return login.is_over or service.clock.monotonic() - login.seen_s > IDLE_S


def person_of(service: Service, login: Login) -> Identity | None:
    """Who a login is by now: asked again at every request, so that whoever is shut out is out."""
    if has_ended(service, login):
        return None
    proof = login.proof
    if proof.token is not None:
        identity = service.access.by_token(proof.token.reveal())
    else:
        identity = service.access.by_certificate(proof.subject, proof.der)
    return identity if identity is not None and identity.role in PEOPLE and identity.name == login.user else None


async def typed_in(request: web.Request, largest: int, within_s: float) -> dict[str, str]:
    """The texts of a form; those of several inputs of one name, boxes that are ticked, are lines. Raises `Invalid` for
    what is none, is larger than that, or takes longer to arrive."""
    request._client_max_size = largest
    try:
        if (request.content_length or 0) > largest:
            raise web.HTTPRequestEntityTooLarge(largest, request.content_length or 0)
        async with asyncio.timeout(within_s):
            posted = await request.post()
    except TimeoutError as err:
        request.protocol.close()
        raise errors.Invalid("the form did not arrive in time", hint="send it again") from err
    except web.HTTPRequestEntityTooLarge as err:
        raise errors.Invalid("the form is too large", hint="cmsh takes large files: set NAME FILE") from err
    except (ValueError, LookupError) as err:
        raise errors.Invalid("this form was not sent by a page of this head") from err
    typed: dict[str, list[str]] = {}
    for name, text in posted.items():
        if isinstance(text, str):
            typed.setdefault(name, []).append(text)
    return {name: "\n".join(texts) for name, texts in typed.items()}


def cookie(request: web.Request, what: str = "login") -> str:
    """The name of a cookie. Browsers do not keep the ports of a host apart, and two heads may be on one. Over TLS the
    prefix keeps other hosts of the domain, and plain http, from setting one."""
    return f"{'__Host-' if is_secure(request) else ''}bedplate_{what}_{request.url.port}"


def set_cookie(request: web.Request, answer: web.Response, what: str, value: str) -> None:
    """Give the browser a cookie that is sent to this head alone, and shown to no script; an empty one is taken back."""
    secure = is_secure(request)
    if value:
        answer.set_cookie(cookie(request, what), value, path="/", httponly=True, samesite="Strict", secure=secure)
    else:
        answer.del_cookie(cookie(request, what), path="/", httponly=True, samesite="Strict", secure=secure)


def is_secure(request: web.Request) -> bool:
    """Whether the browser speaks TLS with us; then cookies must not travel without it."""
    return request.scheme == "https"


def is_renewal(request: web.Request) -> bool:
    """Whether the script of an open page asks for its parts again: nobody did anything, and nobody reads messages."""
    return request.headers.get("Bedplate-Renewal") == "yes"


def is_foreign(request: web.Request) -> bool:
    """Whether a page of another host sent the form, as far as the browser says."""
    origin = request.headers.get("Origin", "")
    return bool(origin) and urlsplit(origin).netloc != request.host


def _error_page(visit: Visit, err: errors.BedplateError) -> web.Response:
    status, title = next((answer for kind, answer in _STATUS.items() if isinstance(err, kind)), (500, "Internal error"))
    problems = err.problems if isinstance(err, errors.Invalid) else ()
    author = err.author if isinstance(err, Stale) else ""
    return visit.page("error.html", title, status, message=err.message, hint=err.hint, problems=problems, author=author)


def _alone(service: Service, status: int, title: str, message: str, hint: str) -> web.Response:
    values = {"site": service, "title": title, "message": message, "hint": hint}
    return engine.respond("alone.html", values, status)
