"""Signing in and out.

In: a token that somebody typed, or the client certificate of the connection. Out: a login with its cookie. The form
carries a number that also stands in a cookie, so that no other site's page can sign somebody in.
"""

from __future__ import annotations

import hmac
import secrets
import ssl
from collections.abc import Awaitable, Callable

from aiohttp import web

from bedplate.core import errors
from bedplate.core.logging import get_logger
from bedplate.head import Identity, Secret, subject_of
from bedplate.head.daemon import Service
from bedplate.ui.web import engine, links
from bedplate.ui.web.logins import Logins, Proof
from bedplate.ui.web.visit import PEOPLE, Visit, cookie, is_foreign, set_cookie, typed_in

__all__ = ["Signing"]

_LOG = get_logger("head.page")
_LONGEST = 4096


class Signing:
    """The handlers of the login page."""

    def __init__(self, service: Service, logins: Logins, number: Callable[[], str] = lambda: secrets.token_urlsafe(24)):
        self._service = service
        self._logins = logins
        self._number = number

    async def form(self, request: web.Request) -> web.StreamResponse:
        """The page that asks for a token, or offers the certificate's user."""
        return self._page(request, links.local(request.query.get("next", "/")))

    async def sign_in(self, request: web.Request) -> web.StreamResponse:
        """Take the token, or the certificate."""
        try:
            limits = self._service.limits
            typed = await typed_in(request, limits.login_bytes, limits.body_s)
        except errors.Invalid as err:
            is_large = isinstance(err.__cause__, web.HTTPRequestEntityTooLarge)
            return self._page(request, "/", f"{err.message.capitalize()}.", 413 if is_large else 400)
        onward = links.local(typed.get("next", "/"))
        expected = request.cookies.get(cookie(request, "form"), "")
        if not expected or is_foreign(request) or not _same(expected, typed.get("form_token", "")):
            return self._page(request, onward, "The form has expired; try again.", 400)
        token = typed.get("token", "").strip()[:_LONGEST]
        proof = _presented(request) if "certificate" in typed else Proof(Secret(token))
        person = self._identity(proof)
        if person is None:
            _LOG.info("head.page_refused", remote=request.remote)
            await self._service.failures.slow(request.remote or "an unknown address")
            return self._page(request, onward, "The token is not valid: it is unknown, revoked or expired.", 401)
        login = await self._logins.begin(person.name, proof, self._service.head.tree)
        _LOG.info("head.page_login", user=person.name, role=person.role, remote=request.remote)
        answer = _redirect(onward)
        set_cookie(request, answer, "login", login.number)
        set_cookie(request, answer, "form", "")
        return answer

    def sign_out(self) -> Callable[[Visit], Awaitable[web.StreamResponse]]:
        """The handler behind the button; staged changes go with the login, so it asks first where there are some."""

        async def handler(visit: Visit) -> web.StreamResponse:
            edits = visit.session.edits()
            if edits and visit.request.query.get("staged") != "discard":
                places = [(edit.mode, edit.key) for edit in edits]
                staged = [
                    (links.title(place), links.show(place if edit.new is not None else place[:1]))
                    for place, edit in zip(places, edits, strict=True)
                ]
                return visit.page("signout.html", "Sign out?", staged=staged)
            await self._logins.end(visit.login)
            answer = _redirect("/login")
            set_cookie(visit.request, answer, "login", "")
            return answer

        return handler

    def _identity(self, proof: Proof) -> Identity | None:
        access = self._service.access
        if proof.token is not None:
            identity = access.by_token(proof.token.reveal())
        else:
            identity = access.by_certificate(proof.subject, proof.der)
        return identity if identity is not None and identity.role in PEOPLE else None

    def _page(self, request: web.Request, onward: str, problem: str = "", status: int = 200) -> web.Response:
        form_token = self._number()
        values = {
            "site": self._service,
            "title": "Sign in",
            "form_token": form_token,
            "onward": onward,
            "problem": problem,
            "certified": self._identity(_presented(request)),
        }
        answer = engine.respond("login.html", values, status)
        set_cookie(request, answer, "form", form_token)
        return answer


def _presented(request: web.Request) -> Proof:
    """The client certificate of the connection; without one, what proves nothing."""
    connection = request.transport.get_extra_info("ssl_object") if request.transport is not None else None
    der = connection.getpeercert(binary_form=True) if isinstance(connection, ssl.SSLObject) else None
    if connection is None or der is None:
        return Proof()
    return Proof(subject=subject_of(connection.getpeercert() or {}), der=der)


def _redirect(address: str) -> web.Response:
    return web.Response(status=303, headers={**engine.SECURITY, "Location": address, "Cache-Control": "no-store"})


def _same(text: str, other: str) -> bool:
    return hmac.compare_digest(text.encode(), other.encode())
