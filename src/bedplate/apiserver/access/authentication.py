"""Which user a credential belongs to, as of now.

In: certificates and tokens as presented, and the service accounts, pods and nodes that tokens are bound to, read from
the registry. Out: users. What a user may do is decided by `authorization`.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence

from bedplate.apiserver import hooks
from bedplate.apiserver.access import identity, subjects, tokens
from bedplate.core import errors

__all__ = ["Identities"]

Lookup = Callable[[str, str, str, str], hooks.Object | None]
"""(group, resource, namespace, name) -> object, as `hooks.Client.get`."""


class Identities:
    """Recognises client certificates (verified by TLS before), service account tokens and fixed tokens."""

    def __init__(self, signer: tokens.Signer, lookup: Lookup, fixed: Mapping[str, subjects.User] | None = None) -> None:
        self._signer = signer
        self._lookup = lookup
        self._fixed = dict(fixed or {})

    def by_certificate(self, subject: Mapping[str, Sequence[str]]) -> subjects.User | None:
        return identity.from_certificate(subject)

    def by_token(self, token: str) -> tuple[subjects.User, float] | None:
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

    def review(self, token: str, audiences: Sequence[str]) -> tuple[subjects.User, list[str]]:
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

    def _fixed_user(self, token: str) -> subjects.User | None:
        for known, user in self._fixed.items():
            if hmac.compare_digest(known.encode(), token.encode()):
                return user
        return None

    def user_of(self, claims: tokens.Claims) -> subjects.User | None:
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
        return identity.service_account(claims.namespace, claims.name, claims.uid, extra)
