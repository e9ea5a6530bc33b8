"""Who is asking: users by certificate and by token, the groups everyone is in, and impersonation.

In: what a connection or a header presents (the subject of a certificate that TLS has verified, a bearer token,
Impersonate-* headers), and the service accounts, pods and nodes that tokens are bound to, read from the registry.
Out: a `User`. Deciding what a user may do is `rbac`.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from bedplate.apiserver import hooks
from bedplate.apiserver.access import subjects, tokens
from bedplate.apiserver.access.subjects import ANONYMOUS, User
from bedplate.core import errors

__all__ = [
    "Identities",
    "ImpersonationWish",
    "authenticated",
    "from_certificate",
    "impersonation",
    "info",
    "service_account",
]

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
SERVICE_ACCOUNTS = "system:serviceaccounts"
Extra = Mapping[str, Iterable[str]]


def info(user: User) -> dict[str, Any]:
    """The `UserInfo` of reviews."""
    fields: dict[str, Any] = {"username": user.name}
    if user.uid:
        fields["uid"] = user.uid
    if user.groups:
        fields["groups"] = list(user.groups)
    if user.extra:
        fields["extra"] = {key: list(values) for key, values in user.extra}
    return fields


def _extra(extra: Extra | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple(sorted((key, tuple(values)) for key, values in (extra or {}).items()))


def authenticated(name: str, groups: Iterable[str] = (), uid: str = "", extra: Extra | None = None) -> User:
    """A proven user: the groups given, and the one that all proven users are in."""
    ordered = dict.fromkeys([*groups, AUTHENTICATED])
    return User(name, uid, tuple(ordered), _extra(extra))


def from_certificate(subject: Mapping[str, Iterable[str]]) -> User | None:
    """The user in a verified client certificate: common name, organizations as groups. None without a common name."""
    names = [name for name in subject.get("commonName", ()) if name]
    return authenticated(names[0], subject.get("organizationName", ())) if names else None


def service_account(namespace: str, name: str, uid: str, extra: Extra | None = None) -> User:
    """The user a service account token stands for."""
    groups = (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}")
    return authenticated(f"system:serviceaccount:{namespace}:{name}", groups, uid, extra)


@dataclass(frozen=True, slots=True)
class ImpersonationWish:
    """A request to act as `user`, and every permission (verb `impersonate`) the asker needs for it."""

    user: User
    needs: tuple[subjects.Attributes, ...]


def impersonation(headers: Mapping[str, list[str]]) -> ImpersonationWish | None:
    """Read Impersonate-* headers (names in lower case); raises ValueError when they do not name a user."""
    names = headers.get("impersonate-user", [])
    groups = list(headers.get("impersonate-group", []))
    uids = headers.get("impersonate-uid", [])
    extra: dict[str, tuple[str, ...]] = {}
    for header, values in headers.items():
        if header.startswith("impersonate-extra-"):
            extra[unquote(header.removeprefix("impersonate-extra-"))] = tuple(values)
    if not names or not names[0]:
        if groups or uids or extra:
            requested = ", ".join(map(repr, [*groups, *uids, *extra]))
            raise ValueError(f"requested [{requested}] without impersonating a user")
        return None
    name = names[0]
    account = (
        name.removeprefix("system:serviceaccount:").split(":") if name.startswith("system:serviceaccount:") else []
    )
    if len(account) == 2:
        needs = [_need("serviceaccounts", account[1], namespace=account[0])]
    else:
        needs = [_need("users", name)]
    needs += [_need("groups", group) for group in groups]
    needs += [_need("uids", uid, group="authentication.k8s.io") for uid in uids]
    for key, wanted_values in extra.items():
        needs += [_need("userextras", value, group="authentication.k8s.io", subresource=key) for value in wanted_values]
    if len(account) == 2 and not groups:
        groups = [SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{account[0]}"]
    everyone = UNAUTHENTICATED if name == ANONYMOUS.name else AUTHENTICATED
    if UNAUTHENTICATED not in groups:
        groups = [*groups, everyone]
    user = User(name, uids[0] if uids else "", tuple(dict.fromkeys(groups)), _extra(extra))
    return ImpersonationWish(user, tuple(needs))


def _need(
    resource: str, name: str, *, group: str = "", namespace: str = "", subresource: str = ""
) -> subjects.Attributes:
    return subjects.Attributes("impersonate", group, "v1", resource, subresource, namespace, name)


Lookup = Callable[[str, str, str, str], hooks.Object | None]
"""(group, resource, namespace, name) -> object, as `hooks.Client.get`."""


class Identities:
    """Recognises client certificates (verified by TLS before), service account tokens and fixed tokens."""

    def __init__(self, signer: tokens.Signer, lookup: Lookup, fixed: Mapping[str, User] | None = None) -> None:
        self._signer = signer
        self._lookup = lookup
        self._fixed = dict(fixed or {})

    def by_certificate(self, subject: Mapping[str, Sequence[str]]) -> User | None:
        return from_certificate(subject)

    def by_token(self, token: str) -> tuple[User, float] | None:
        fixed = self._fixed_user(token)
        if fixed is not None:
            return fixed, float("inf")
        try:
            claims = self._signer.check(token)
        except errors.Denied:
            return None
        if tokens.DEFAULT_AUDIENCE not in claims.audiences:
            return None
        user = self.user_of(claims)
        # Not to be cached: the account or the pod it is bound to may be deleted at any time.
        return None if user is None else (user, 0.0)

    def review(self, token: str, audiences: Sequence[str]) -> tuple[User, list[str]]:
        """For TokenReview: the user, and which of the asked audiences the token is good for; `Denied` otherwise."""
        fixed = self._fixed_user(token)
        if fixed is not None:
            return fixed, list(audiences)
        claims = self._signer.check(token)
        common = [audience for audience in audiences or (tokens.DEFAULT_AUDIENCE,) if audience in claims.audiences]
        if not common:
            raise errors.Denied("the token is not meant for any of the audiences asked for")
        user = self.user_of(claims)
        if user is None:
            raise errors.Denied("the service account of the token, or what it is bound to, is gone")
        return user, common

    def _fixed_user(self, token: str) -> User | None:
        for known, user in self._fixed.items():
            if hmac.compare_digest(known.encode(), token.encode()):
                return user
        return None

    def user_of(self, claims: tokens.Claims) -> User | None:
        """The user of verified claims, if account and bound object are still the ones the token was made for."""
        account = self._lookup("", "serviceaccounts", claims.namespace, claims.name)
        if account is None or account["metadata"]["uid"] != claims.uid:
            return None
        extra: dict[str, tuple[str, ...]] = {"authentication.kubernetes.io/credential-id": (f"JTI={claims.token_id}",)}
        if claims.bound is not None:
            kind, name, uid = claims.bound
            namespace = "" if kind == "Node" else claims.namespace
            holder = self._lookup("", kind.lower() + "s", namespace, name)
            if holder is None or (uid and holder["metadata"]["uid"] != uid):
                return None
            if kind != "Secret":
                extra[f"authentication.kubernetes.io/{kind.lower()}-name"] = (name,)
                extra[f"authentication.kubernetes.io/{kind.lower()}-uid"] = (uid,)
        return service_account(claims.namespace, claims.name, claims.uid, extra)
