"""First stage: who asks.

In: a request with its connection. Out: a `User`; 401 where a token is refused. Tokens are remembered for as long as
the authenticator allows, the user of a certificate for the life of the connection.
"""

from __future__ import annotations

from bedplate.apiserver import hooks, status
from bedplate.apiserver.access import subjects
from bedplate.apiserver.wire import http
from bedplate.core import clock as clocks

__all__ = ["Credentials"]


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
