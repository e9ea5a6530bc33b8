"""Why a node cannot be initialised, in words for its Node: the reason of an Event, and what an operator can do.

In: a Node and the error that kept it from being initialised. Out: a `Refusal`; and, from `Refusals`, whether it is to
be told now and when the cloud is asked again. Pure but for what `Refusals` remembers. `explain` and `doctor` show the
same remedies.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from bedplate.api import core
from bedplate.cloud.errors import AmbiguousInstance, InstanceNotFound, NoAddresses
from bedplate.core import errors

__all__ = [
    "REASON_AMBIGUOUS",
    "REASON_FOREIGN_ID",
    "REASON_NOT_INITIALIZED",
    "REASON_NO_ADDRESSES",
    "REASON_NO_INSTANCE",
    "Refusal",
    "Refusals",
    "refusal",
    "remedy",
    "remedy_for",
]

REASON_NO_INSTANCE, REASON_INVALID_ID, REASON_FOREIGN_ID = "InstanceNotFound", "InvalidProviderID", "ForeignProviderID"
REASON_NO_ADDRESSES, REASON_AMBIGUOUS, REASON_NOT_INITIALIZED = (
    "NoAddressesYet",
    "AmbiguousInstance",
    "InitializationFailed",
)
PATIENCE_S = 30.0
"""A cloud or API server that fails is told after this time: most failures are over by then."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 60.0, 3600.0
"""The same refusal is told again after a pause that doubles."""
FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 300.0
"""A machine that does not exist is looked for again after a pause that doubles."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One Event: its reason and its message."""

    reason: str
    message: str


def refusal(node: core.Node, error: BaseException) -> Refusal:
    """What an error means for the node."""
    reason = _reason(node, error)
    return Refusal(reason, f"{str(error) or type(error).__name__}; {remedy(node, reason)}")


def remedy_for(node: core.Node, error: BaseException) -> str:
    """What an operator can do about an error."""
    return remedy(node, _reason(node, error))


def _reason(node: core.Node, error: BaseException) -> str:
    # The controller's own error says which node it is, and carries the provider's.
    for cause in (error, error.__cause__):
        match cause:
            case InstanceNotFound():
                return REASON_NO_INSTANCE
            case NoAddresses():
                return REASON_NO_ADDRESSES
            case AmbiguousInstance():
                return REASON_AMBIGUOUS
            case errors.Invalid() if node.spec.provider_id:
                return REASON_INVALID_ID
    return REASON_NOT_INITIALIZED


def remedy(node: core.Node, reason: str) -> str:
    """What an operator can do about a refusal of that reason."""
    if reason == REASON_NO_ADDRESSES:
        return "check the machine's network interfaces in the cloud, or start its kubelet with --node-ip"
    if reason in (REASON_NO_INSTANCE, REASON_AMBIGUOUS) and not node.spec.provider_id:
        return "start its kubelet with --provider-id, or give the node the name of its machine in the cloud"
    if reason in (REASON_NO_INSTANCE, REASON_INVALID_ID, REASON_FOREIGN_ID):
        return (
            f"if the machine exists, correct --provider-id of its kubelet, kubectl delete node {node.name}, and "
            "restart the kubelet (a provider ID cannot be changed)"
        )
    return "it is tried again; bedplate doctor checks the cloud and its credentials"


@dataclass(slots=True)
class _Told:
    reason: str
    since: float
    told_at: float | None = None
    pause_s: float = FIRST_PAUSE_S
    retry_s: float = FIRST_RETRY_S


class Refusals:
    """What was told about each node, by uid."""

    def __init__(self) -> None:
        self._told: dict[str, _Told] = {}

    def is_due(self, uid: str, reason: str, now: float) -> bool:
        """Note a refusal; whether its Event is to be written: at once, and then with pauses that double."""
        told = self._of(uid, reason, now)
        if told.told_at is None:
            if reason == REASON_NOT_INITIALIZED and now - told.since < PATIENCE_S:
                return False
        elif now - told.told_at < told.pause_s:
            return False
        else:
            told.pause_s = min(LONGEST_PAUSE_S, told.pause_s * 2)
        told.told_at = now
        return True

    def retry_s(self, uid: str, reason: str, now: float) -> float:
        """When to try again; longer from time to time."""
        told = self._of(uid, reason, now)
        seconds, told.retry_s = told.retry_s, min(LONGEST_RETRY_S, told.retry_s * 2)
        return seconds

    def forget(self, uid: str) -> None:
        """The node is initialised."""
        self._told.pop(uid, None)

    def keep(self, uids: Collection[str]) -> None:
        """Forget all other nodes."""
        self._told = {uid: told for uid, told in self._told.items() if uid in uids}

    def _of(self, uid: str, reason: str, now: float) -> _Told:
        told = self._told.get(uid)
        if told is None or told.reason != reason:
            told = self._told[uid] = _Told(reason, now)
        return told
