"""Why a pod or a claim is refused, and the names of the rules.

In: nothing. Out: values with the rule, the field, what is wrong and what would make it right. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = ["Refusal", "summary"]

HOST_PATHS = "limit-hostpath-vols"
IDENTITY = "drop-privs-w-hostpath"
IDENTITY_CONTAINERS = f"{IDENTITY}-containers"
IDENTITY_INIT = f"{IDENTITY}-initcontainers"
IDENTITY_EPHEMERAL = f"{IDENTITY}-ephemeralcontainers"
PRIVILEGES = "limit-privileges"
BASELINE = "pod-security-baseline"
HOST_PORTS = "limit-host-ports"
PRIORITY = "limit-priority"
VOLUMES = "limit-volumes"
SIZE = "limit-size"

_SHOWN = 20
"""How many reasons a message has: a user reads no more, and each is sent through the API server."""


class Refusal(msgspec.Struct, frozen=True):
    """One reason."""

    rule: str
    """`<user>-<suffix>-<rule>`."""
    field: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.field}: {self.message}; {self.remedy}"


def summary(refusals: Sequence[Refusal]) -> str:
    """The reasons as one message; of very many the first ones."""
    more = ["there are more reasons"] if len(refusals) > _SHOWN else []
    return ". ".join([*map(str, refusals[:_SHOWN]), *more])
