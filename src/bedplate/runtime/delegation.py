"""Asks the API server who may read a program's metrics: TokenReview for the identity, SubjectAccessReview for the
right.

In: a bearer token or a verified client certificate, a method and a path. Out: the `Access` that `serving` acts on.
Answers are kept for a short time (10 s good, 10 s bad, as Kubernetes components do), so that a scrape does not cost
two requests each time. When the API server cannot be asked, nobody gets in (500 is said, not 403: it is not a
verdict).
"""

from __future__ import annotations

from typing import Any

from bedplate.api.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from bedplate.core import clock, errors, logging
from bedplate.kube.client import Client
from bedplate.serving.server import Access

__all__ = ["DelegatedGate"]

log = logging.get_logger("runtime.delegation")
_KEPT_S = 10.0
_KEPT_ANSWERS = 1024
User = dict[str, Any]
ANONYMOUS: User = {"username": "system:anonymous", "groups": ["system:unauthenticated"]}


class DelegatedGate:
    """A `serving.Gate` over an API server."""

    def __init__(self, client: Client, *, time: clock.Clock | None = None) -> None:
        self._client = client
        self._time = time if time is not None else clock.SystemClock()
        self._users: dict[str, tuple[float, User | None]] = {}
        self._rights: dict[tuple[str, str, str], tuple[float, Access]] = {}

    async def admit(self, method: str, path: str, token: str, certificate: dict[str, object] | None) -> Access:
        try:
            user = await self._user(token, certificate)
            if user is None:
                return Access(401, "Unauthorized")
            return await self._right(user, method, path)
        except errors.BedplateError as err:
            log.warning("delegation.failed", path=path, error=str(err))
            return Access(500, "Internal Server Error: the API server could not be asked")

    async def _user(self, token: str, certificate: dict[str, object] | None) -> User | None:
        if certificate:
            return _certificate_user(certificate)
        if not token:
            return ANONYMOUS
        known = self._users.get(token)
        if known is not None and known[0] > self._time.monotonic():
            return known[1]
        review = await self._client.create(TOKEN_REVIEWS.raw(), {"spec": {"token": token}})
        status = review.get("status") or {}
        user = status.get("user") if status.get("authenticated") else None
        _keep(self._users, token, (self._time.monotonic() + _KEPT_S, user))
        return user

    async def _right(self, user: User, method: str, path: str) -> Access:
        key = (str(user), method, path)
        known = self._rights.get(key)
        if known is not None and known[0] > self._time.monotonic():
            return known[1]
        spec = {
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups") or [],
            "extra": user.get("extra") or {},
            "nonResourceAttributes": {"path": path, "verb": method},
        }
        review = await self._client.create(SUBJECT_ACCESS_REVIEWS.raw(), {"spec": spec})
        if (review.get("status") or {}).get("allowed"):
            access = Access(200)
        else:
            name = user.get("username", "")
            access = Access(403, f'forbidden: User "{name}" cannot {method} path "{path}"')
        _keep(self._rights, key, (self._time.monotonic() + _KEPT_S, access))
        return access


def _keep(memory: dict[Any, Any], key: Any, value: Any) -> None:
    if len(memory) >= _KEPT_ANSWERS:
        memory.clear()
    memory[key] = value


def _certificate_user(certificate: dict[str, object]) -> User | None:
    subject: Any = certificate.get("subject") or ()
    pairs = [pair for part in subject for pair in part]
    names = [value for key, value in pairs if key == "commonName"]
    if not names:
        return None
    groups = [value for key, value in pairs if key == "organizationName"]
    return {"username": names[0], "groups": [*groups, "system:authenticated"]}
