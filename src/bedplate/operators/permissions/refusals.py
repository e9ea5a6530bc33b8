"""Why a pod or a claim is refused, and the names of the rules.

In: nothing. Out: values with the rule, the field, what is wrong and what would make it right. Pure.
"""

from __future__ import annotations

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


class Refusal(msgspec.Struct, frozen=True):
    """One reason."""

    rule: str
    """`<user>-<suffix>-<rule>`."""
    field: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.field}: {self.message}; {self.remedy}"


def summary(refusals: tuple[Refusal, ...]) -> str:
    """All reasons as one message."""
    return ". ".join(map(str, refusals))
