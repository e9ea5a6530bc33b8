"""First and second stage: who asks, whether they may have what the request asks for, and as whom.

In: a request with its connection. Out: the user to act as (the one who asks, or the impersonated one); 401 where a
token is refused, 403 where RBAC refuses. Tokens are remembered for as long as the authenticator allows, the user of a
certificate for the life of the connection, answers of the authorizer until one of them may have become wrong.
"""

from __future__ import annotations

import re

from bedplate.apiserver import hooks, status
from bedplate.apiserver.access import identity, subjects
from bedplate.apiserver.pipeline import routes
from bedplate.core import clock as clocks
from bedplate.serving import http

__all__ = ["Credentials", "Permissions"]

_ALLOWED_KEPT = 10_000
_ONE_NAME = re.compile(r"metadata\.name==?([^,=!]+)\Z")


class Credentials:
    """Reads the credentials of requests."""

    def __init__(self, authenticator: hooks.Authenticator, clock: clocks.Clock) -> None:
        self._authenticator = authenticator
        self._clock = clock
        self._tokens: dict[str, tuple[subjects.User, float]] = {}

    def user(self, incoming: http.Request) -> subjects.User:
        authorization = incoming.headers.get(b"authorization")
        if authorization is not None:
            scheme, _, token = authorization.decode("latin-1").partition(" ")
            if scheme.lower() == "bearer" and token:
                return self._by_token(token.strip())
        connection = incoming.connection
        if connection.identity is None:
            connection.identity = self._by_certificate(connection) or subjects.ANONYMOUS
        user: subjects.User = connection.identity
        return user

    def _by_token(self, token: str) -> subjects.User:
        now = self._clock.now().timestamp()
        cached = self._tokens.get(token)
        if cached is not None and now < cached[1]:
            return cached[0]
        proven = self._authenticator.by_token(token)
        if proven is None:
            raise status.unauthorized()
        user, until = proven
        if until > now:
            self._tokens[token] = proven
        return user

    def _by_certificate(self, connection: http.Connection) -> subjects.User | None:
        certificate = connection.transport.get_extra_info("peercert")
        if not certificate:
            return None
        subject: dict[str, list[str]] = {}
        for names in certificate.get("subject", ()):
            for key, value in names:
                subject.setdefault(key, []).append(value)
        return self._authenticator.by_certificate(subject)


class Permissions:
    """Asks the authorizer about requests."""

    def __init__(self, authorizer: hooks.Authorizer) -> None:
        self._authorizer = authorizer
        self._allowed: dict[tuple[subjects.User, subjects.Attributes], bool] = {}
        self._generation = -1

    def acting_user(self, incoming: http.Request, user: subjects.User) -> subjects.User:
        """Whom the Impersonate-* headers name, or the user itself."""
        if b"impersonate-user" not in incoming.headers and b"impersonate-group" not in incoming.headers:
            return user
        headers: dict[str, list[str]] = {}
        for name, value in incoming.all_headers():
            headers.setdefault(name, []).append(value)
        try:
            wish = identity.impersonation(headers)
        except ValueError as err:
            raise status.StatusError(500, "InternalError", f"Internal error occurred: {err}") from None
        if wish is None:
            return user
        for attributes in wish.needs:
            if not self._is_allowed(user, attributes):
                raise status.not_allowed(user.name, attributes)
        return wish.user

    def check(self, user: subjects.User, info: routes.RequestInfo, incoming: http.Request) -> None:
        name = info.name
        if not name and info.resource and incoming.raw_query:
            # Who asks for a list of one name needs no more than the right to that name.
            selector = _ONE_NAME.match(incoming.query.get("fieldSelector", ""))
            name = selector[1] if selector else ""
        attributes = subjects.Attributes(
            info.verb, info.group, info.version, info.resource, info.subresource, info.namespace, name,
            "" if info.resource else info.path,
        )  # fmt: skip
        is_trusted = subjects.MASTERS in user.groups
        if not is_trusted and not self._is_allowed(user, attributes):
            reason = self._authorizer.authorize(user, attributes).reason
            raise status.not_allowed(user.name, attributes, reason)

    def _is_allowed(self, user: subjects.User, attributes: subjects.Attributes) -> bool:
        authorizer = self._authorizer
        if self._generation != authorizer.generation or len(self._allowed) > _ALLOWED_KEPT:
            self._allowed = {}
            self._generation = authorizer.generation
        key = (user, attributes)
        known = self._allowed.get(key)
        if known is None:
            known = self._allowed[key] = authorizer.authorize(user, attributes).allowed
        return known
