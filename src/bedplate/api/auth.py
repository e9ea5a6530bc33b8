"""authentication.k8s.io and authorization.k8s.io: the answers of reviews and token requests.

Requests are plain mappings (see `token_review`); only answers are models.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from bedplate.api import meta

__all__ = [
    "SelfSubjectAccessReview",
    "SubjectAccessReview",
    "SubjectAccessReviewStatus",
    "TokenRequest",
    "TokenRequestStatus",
    "TokenReview",
    "TokenReviewStatus",
    "UserInfo",
    "token_review",
]


class UserInfo(meta.Model, frozen=True):
    """Who a request comes from."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class TokenReviewStatus(meta.Model, frozen=True):
    """Whether the token is good, for whom and for which audiences."""

    authenticated: bool = False
    user: UserInfo = UserInfo()
    audiences: tuple[str, ...] = ()
    error: str = ""


class TokenReview(meta.Object, frozen=True):
    """The answer to "whose token is this?"."""

    status: TokenReviewStatus = TokenReviewStatus()


class SubjectAccessReviewStatus(meta.Model, frozen=True):
    """Allowed, explicitly denied, or neither; `evaluation_error` says what could not be looked at."""

    allowed: bool = False
    denied: bool = False
    reason: str = ""
    evaluation_error: str = ""


class SubjectAccessReview(meta.Object, frozen=True):
    """The answer to "may that user do this?"."""

    status: SubjectAccessReviewStatus = SubjectAccessReviewStatus()


class SelfSubjectAccessReview(meta.Object, frozen=True):
    """The answer to "may I do this?"."""

    status: SubjectAccessReviewStatus = SubjectAccessReviewStatus()


class TokenRequestStatus(meta.Model, frozen=True):
    """A fresh service account token."""

    token: str = ""
    expiration_timestamp: datetime | None = None


class TokenRequest(meta.Object, frozen=True):
    """The answer to a request for a service account token."""

    status: TokenRequestStatus = TokenRequestStatus()


def token_review(token: str, audiences: Sequence[str] = ()) -> dict[str, Any]:
    """The body that asks whose token this is."""
    spec: dict[str, Any] = {"token": token}
    if audiences:
        spec["audiences"] = list(audiences)
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
