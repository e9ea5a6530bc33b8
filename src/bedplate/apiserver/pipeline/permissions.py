"""Second stage: whether the user may do what the request asks for, and as whom.

In: a user and a request. Out: the user to act as (the same, or the impersonated one); 403 where RBAC refuses. Answers
of the authorizer are remembered until one of them may have become wrong.
"""

from __future__ import annotations

import re

from bedplate.apiserver import hooks, status
from bedplate.apiserver.access import identity, subjects
from bedplate.apiserver.pipeline import routes
from bedplate.apiserver.wire import http

__all__ = ["Permissions"]

_ALLOWED_KEPT = 10_000
_ONE_NAME = re.compile(r"metadata\.name==?([^,=!]+)\Z")


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
