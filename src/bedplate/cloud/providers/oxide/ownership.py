"""The record in a floating IP's description that says whose it is: the only proof of ownership there is.

Oxide has no tags, so the record stands at the end of the description, behind the words people see:
`Managed by oxide-cloud-controller-manager. [bedplate cluster=UID service=UID name=NAMESPACE/NAME role=managed]`.

Roles: `managed` was made by us and is deleted with its Service; `adopted` was made by another user and lent to the
Service, and keeps its maker's words in front; `retained` was made by us and outlives its Service, free to be taken by
the next one that asks for it. A description without a record proves nothing. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from bedplate.core import errors

__all__ = ["LEGACY_DESCRIPTION", "Owner", "Record", "Role", "is_managed_address", "parse", "write"]

Role = Literal["managed", "adopted", "retained"]
LEGACY_DESCRIPTION = "Managed by oxide-cloud-controller-manager."
"""What the original manager writes, and all that it writes: it says what made the address, not for whom."""
MAX_LENGTH = 512
_RECORD = re.compile(
    r"(?P<words>.*?)\s?\[bedplate cluster=(?P<cluster>\S+) service=(?P<service>\S+) "
    r"name=(?P<namespace>[^\s/]+)/(?P<name>[^\s/]+) role=(?P<role>managed|adopted|retained)\]",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Owner:
    """A Service of a cluster. `cluster` is the UID of its namespace kube-system, `service` the Service's UID."""

    cluster: str
    service: str
    namespace: str
    name: str
    aliases: frozenset[str] = field(default=frozenset(), compare=False)
    """What the cluster has called itself while the manager was not allowed to read that UID."""

    def is_same_service(self, other: Owner) -> bool:
        return self.is_same_cluster(other) and self.service == other.service

    def is_same_place(self, other: Owner) -> bool:
        """The same namespace and name in the same cluster: perhaps an earlier Service of that name."""
        return self.is_same_cluster(other) and (self.namespace, self.name) == (other.namespace, other.name)

    def is_same_cluster(self, other: Owner) -> bool:
        """Whether both are of one cluster, by whichever of its ids."""
        return self.cluster == other.cluster or other.cluster in self.aliases or self.cluster in other.aliases


@dataclass(frozen=True, slots=True)
class Record:
    """Whose a floating IP is, and what for; `words` are what stood there before (adopted ones only)."""

    owner: Owner
    role: Role
    words: str = ""


@lru_cache(maxsize=8192)
def parse(description: str) -> Record | None:
    """The record in a description; None when there is none."""
    match = _RECORD.fullmatch(description)
    if match is None:
        return None
    owner = Owner(match["cluster"], match["service"], match["namespace"], match["name"])
    role: Role = "managed" if match["role"] == "managed" else "adopted" if match["role"] == "adopted" else "retained"
    return Record(owner, role, match["words"] if role == "adopted" else "")


def write(record: Record) -> str:
    """The description that carries a record; raises `Invalid` when it would not fit or would prove nothing."""
    owner = record.owner
    if not all((owner.cluster, owner.service, owner.namespace, owner.name)):
        raise errors.Invalid("a floating IP needs a cluster and a Service to belong to")
    mark = (
        f"[bedplate cluster={owner.cluster} service={owner.service} "
        f"name={owner.namespace}/{owner.name} role={record.role}]"
    )
    words = record.words if record.role == "adopted" else LEGACY_DESCRIPTION
    text = f"{words} {mark}" if words else mark
    if len(text) > MAX_LENGTH:
        raise errors.Invalid(
            f"the description of the floating IP has no room for the record of {owner.namespace}/{owner.name}",
            hint=f"shorten it: description and record together may have {MAX_LENGTH} characters",
        )
    return text


def is_managed_address(description: str) -> bool:
    """Whether a manager of Services (this one, of any cluster, or the original) uses the address."""
    return description == LEGACY_DESCRIPTION or parse(description) is not None
