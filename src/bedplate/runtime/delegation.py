"""Asks the API server who may read a program's metrics: TokenReview for the identity, SubjectAccessReview for the
right.

In: a bearer token, or a user with a method and a path. Out: the user, or the `Access` that the program's port acts on.
Answers are kept for a short time (10 s by default), so that a scrape does not cost two requests each time. An API
server that cannot be asked is an error of the client, never an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from bedplate.api.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from bedplate.core import clock
from bedplate.kube.client import Client

__all__ = ["ANONYMOUS", "Access", "DelegatedGate", "Keep", "User"]

_KEPT_ANSWERS = 1024
User = dict[str, Any]
ANONYMOUS: User = {"username": "system:anonymous", "groups": ["system:unauthenticated"]}


class Access(NamedTuple):
    """Whether a request may pass: 200, or 401 or 403 with a sentence."""

    status: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Keep:
    """How long answers are used again."""

    users_s: float = 10.0
    allowed_s: float = 10.0
    denied_s: float = 10.0


class DelegatedGate:
    """Users and their rights, as an API server knows them."""

    def __init__(
        self,
        client: Client,
        *,
        access_client: Client | None = None,
        keep: Keep | None = None,
        time: clock.Clock | None = None,
    ) -> None:
        """`access_client`: asks about rights, where another cluster than that of `client` knows them."""
        self._client = client
        self._access_client = access_client if access_client is not None else client
        self._keep = keep if keep is not None else Keep()
        self._time = time if time is not None else clock.SystemClock()
        self._users: dict[str, tuple[float, User | None]] = {}
        self._rights: dict[tuple[str, str, str], tuple[float, Access]] = {}

    async def authenticate(self, token: str) -> User | None:
        """Who a token belongs to; None when the server does not know it."""
        known = self._users.get(token)
        if known is not None and known[0] > self._time.monotonic():
            return known[1]
        review = await self._client.create(TOKEN_REVIEWS.raw(), {"spec": {"token": token}})
        status = review.get("status") or {}
        user = status.get("user") if status.get("authenticated") else None
        _keep(self._users, token, (self._time.monotonic() + self._keep.users_s, user))
        return user

    async def authorise(self, user: User, method: str, path: str) -> Access:
        """Whether a user may ask for a path."""
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
        review = await self._access_client.create(SUBJECT_ACCESS_REVIEWS.raw(), {"spec": spec})
        if (review.get("status") or {}).get("allowed"):
            access, kept_s = Access(200), self._keep.allowed_s
        else:
            name = user.get("username", "")
            access = Access(403, f'forbidden: User "{name}" cannot {method} path "{path}"')
            kept_s = self._keep.denied_s
        _keep(self._rights, key, (self._time.monotonic() + kept_s, access))
        return access


def _keep(memory: dict[Any, Any], key: Any, value: Any) -> None:
    if len(memory) >= _KEPT_ANSWERS:
        memory.clear()
    memory[key] = value
