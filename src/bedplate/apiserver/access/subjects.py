"""Who asks, what for, and the verdict: the values that authentication and authorization exchange.

Only values; who makes them is in `identity` and `rbac`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["ANONYMOUS", "LOOPBACK", "MASTERS", "Attributes", "Decision", "User"]

MASTERS = "system:masters"


@dataclass(frozen=True, slots=True)
class User:
    """Who asks. Frozen and hashable, so decisions can be cached by it."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


ANONYMOUS = User("system:anonymous", groups=("system:unauthenticated",))
LOOPBACK = User("system:apiserver", groups=(MASTERS, "system:authenticated"))
"""The server itself: what its own controllers act as."""


class Attributes(NamedTuple):
    """What is to be allowed: one verb on one resource, or on a path that is none (`resource` empty)."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Decision(NamedTuple):
    allowed: bool
    reason: str = ""
