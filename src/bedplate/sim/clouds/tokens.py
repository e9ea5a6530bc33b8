"""Bearer tokens of a simulated cloud: issued, expired, told apart from made-up ones.

In: who may do what and for how long. Out: signed JSON web tokens (or opaque ones), and for a request's header either
the grant or the reason why there is none.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import hmac
import random
import uuid
from dataclasses import dataclass

from bedplate.core import clock
from bedplate.sim.clouds.exchange import encode

__all__ = ["Grant", "Problem", "Tokens"]


class Problem(enum.Enum):
    """Why a request is not let in."""

    MISSING = "missing"
    MALFORMED = "malformed"
    UNKNOWN = "unknown"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token allows, until when (monotonic; None: it never expires)."""

    roles: frozenset[str]
    until: float | None


class Tokens:
    """All tokens of one cloud."""

    def __init__(self, time: clock.Clock, rng: random.Random, *, prefix: str = "") -> None:
        self._time = time
        self._rng = rng
        self._prefix = prefix
        self._key = rng.randbytes(32)
        self._grants: dict[str, Grant] = {}

    def issue(self, roles: frozenset[str], life_s: float | None) -> str:
        """A new token: opaque with a prefix when the cloud has one, else a JWT with `iat` and `exp`."""
        name = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        token = self._prefix + name.replace("-", "") if self._prefix else self._jwt(name, roles, life_s)
        until = None if life_s is None else self._time.monotonic() + life_s
        self._grants[token] = Grant(roles, until)
        return token

    def expire(self) -> None:
        """All tokens issued so far have had their time."""
        now = self._time.monotonic()
        self._grants = {token: Grant(grant.roles, now) for token, grant in self._grants.items()}

    def check(self, header: str | None) -> Grant | Problem:
        """What an Authorization header is worth."""
        if not header:
            return Problem.MISSING
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return Problem.MALFORMED
        grant = self._grants.get(token.strip())
        if grant is None:
            return Problem.UNKNOWN
        if grant.until is not None and grant.until <= self._time.monotonic():
            return Problem.EXPIRED
        return grant

    def _jwt(self, name: str, roles: frozenset[str], life_s: float | None) -> str:
        issued = int(self._time.now().timestamp())
        claims = {"iss": "simulated", "sub": "bedplate", "jti": name, "iat": issued, "roles": sorted(roles)}
        if life_s is not None:
            claims["exp"] = issued + int(life_s)
        signed = f"{_text({'alg': 'HS256', 'typ': 'JWT'})}.{_text(claims)}"
        return f"{signed}.{_base64(hmac.digest(self._key, signed.encode(), hashlib.sha256))}"


def _text(value: object) -> str:
    return _base64(encode(value))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
