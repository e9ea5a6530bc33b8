"""authentication.k8s.io and authorization.k8s.io: the answers of reviews and token requests.

Requests are plain mappings (see `token_review` and `subject_access_review`); only answers are models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    "subject_access_review",
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


def subject_access_review(
    user: UserInfo, *, resource: Mapping[str, str] | None = None, path: str = "", verb: str = ""
) -> dict[str, Any]:
    """The body that asks whether a user may act: on `resource` (resourceAttributes), else on `path` with `verb`."""
    spec: dict[str, Any] = {"user": user.username, "groups": list(user.groups)}
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = {key: list(values) for key, values in user.extra.items()}
    if resource is not None:
        spec["resourceAttributes"] = dict(resource)
    else:
        spec["nonResourceAttributes"] = {"path": path, "verb": verb}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
