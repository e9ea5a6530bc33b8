"""Who is asking: users, the groups everyone is in, and impersonation.

In: what a connection or a header proves (a certificate's subject, a bearer token's owner, Impersonate-* headers).
Out: a `User`. Checking certificates and tokens is done before; deciding what a user may do is `rbac`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from bedplate.apiserver.access import subjects
from bedplate.apiserver.access.subjects import ANONYMOUS, User

__all__ = ["ImpersonationWish", "authenticated", "from_certificate", "impersonation", "info", "service_account"]

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
