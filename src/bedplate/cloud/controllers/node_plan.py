"""What the cloud node controller does with one node: initialise it, correct it, or leave it, and why.

In: a Node, and what its cloud said about it. Out: a `Verdict` that carries the patches to send and a sentence for
people, whether or not there is anything to send. Pure: `node.py` asks and writes, `bedplate ccm explain` only shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bedplate.api import core, names
from bedplate.cloud import labels, node_addresses, taints
from bedplate.cloud.interface import Address, InstanceMetadata
from bedplate.cloud.routing import Clouds, Foreign, Owned, Unplaced

__all__ = [
    "Kind",
    "Verdict",
    "initialise",
    "is_of_interest",
    "needs_work",
    "reconcile_beta_labels",
    "refresh",
]

REASON_SYNCED, MESSAGE_SYNCED = "Synced", "Node synced successfully"
REASON_INVALID_NODE_IP = "InvalidNodeIP"
REASON_WAITING = "WaitingForClouds"


class Kind(StrEnum):
    """What becomes of the node."""

    INITIALISE = "initialise"
    CORRECT = "correct"
    LEAVE = "leave"
    REFUSE = "refuse"
    """It should be initialised and cannot be: an operator has to act, here or in the cloud."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One decision. `patch` is for the Node itself, `addresses` for its status; None where nothing is to be written."""

    kind: Kind
    reason: str
    patch: Mapping[str, Any] | None = None
    addresses: tuple[Address, ...] | None = None
    event_reason: str = ""
    """The Warning event that goes with a refusal."""
    warnings: tuple[str, ...] = ()


def needs_work(node: core.Node) -> bool:
    """Whether the node itself shows that something is to be done; a refresh may find more."""
    return taints.is_uninitialized(node) or bool(labels.from_beta(node.metadata.labels))


def is_of_interest(old: core.Node | None, new: core.Node | None) -> bool:
    """Whether a change of a node is worth a look: a heartbeat, a condition or a pod more or less is not."""
    if new is None or new.metadata.is_deleting or not needs_work(new):
        return False
    return old is None or _concern(old) != _concern(new)


def _concern(node: core.Node) -> tuple[object, ...]:
    """All that initialisation and label reconciliation depend on."""
    meta, spec = node.metadata, node.spec
    node_ip = meta.annotations.get(names.ANNOTATION_PROVIDED_NODE_IP)
    return meta.uid, meta.labels, node_ip, spec.provider_id, spec.taints, node.status.node_info.system_uuid


def initialise(node: core.Node, metadata: InstanceMetadata | None, clouds: Clouds, provider_name: str) -> Verdict:
    """The one write that makes a tainted node usable: provider ID, labels, and no taint, together or not at all."""
    if not taints.is_uninitialized(node):
        return Verdict(Kind.LEAVE, "it is initialised: it does not have the uninitialized taint")
    if metadata is None:
        return Verdict(Kind.LEAVE, f"{provider_name} does not handle it: it keeps its taint")
    provider_id = node.spec.provider_id or metadata.provider_id
    if refusal := _provider_id_problem(node, metadata, clouds, provider_name):
        return Verdict(Kind.REFUSE, refusal)
    try:
        node_addresses.check_node_ip(node, metadata.addresses)
    except node_addresses.InvalidNodeIP as err:
        return Verdict(
            Kind.REFUSE, f"node {node.name}: {err.message}; it stays tainted", event_reason=REASON_INVALID_NODE_IP
        )
    desired = labels.from_cloud(node.metadata.labels, metadata)
    spec: dict[str, Any] = {
        "taints": taints.on_the_wire(taints.without_key(node.spec.taints, names.TAINT_UNINITIALIZED))
    }
    if not node.spec.provider_id:
        spec["providerID"] = provider_id
    patch = {"metadata": _metadata(node, desired.labels, is_exact=True), "spec": spec}
    reason = f"{provider_name} knows it as {provider_id}: provider ID and labels are set, the taint is removed"
    return Verdict(Kind.INITIALISE, reason, patch, warnings=desired.warnings)


def _provider_id_problem(node: core.Node, metadata: InstanceMetadata, clouds: Clouds, provider_name: str) -> str:
    """Why a node may not be initialised under this provider ID; it could never be changed again."""
    match clouds.place(node, metadata.provider_id):
        case Owned(provider) if provider.name == provider_name:
            return ""
        case Unplaced():
            return f"node {node.name} has no provider ID, and {provider_name} does not provide one; it stays tainted"
        case Foreign(reason):
            return f"node {node.name} is not {provider_name}'s: {reason}"
    provider_id = node.spec.provider_id or metadata.provider_id
    return f"node {node.name} is not {provider_name}'s: its provider ID is {provider_id!r}"


def reconcile_beta_labels(node: core.Node) -> Verdict:
    """New topology labels follow the old ones."""
    desired = labels.from_beta(node.metadata.labels)
    if not desired:
        return Verdict(Kind.LEAVE, "its deprecated and current topology labels agree")
    shown = ", ".join(f"{key}={value}" for key, value in desired.items())
    return Verdict(
        Kind.CORRECT,
        f"labels are copied from their deprecated counterparts: {shown}",
        {"metadata": _metadata(node, desired)},
    )


def refresh(node: core.Node, metadata: InstanceMetadata | None, *, reconciles_labels: bool) -> Verdict:
    """Addresses and labels of an initialised node, as the cloud says now; the addresses alone right after that."""
    if taints.is_uninitialized(node):
        return Verdict(Kind.LEAVE, "it must be initialised first")
    if metadata is None:
        return Verdict(Kind.LEAVE, "its cloud does not handle it")
    chosen = node_addresses.decide(node, metadata.addresses)
    desired = labels.at_refresh(node.metadata.labels, metadata) if reconciles_labels else labels.Wanted()
    warnings = (*((chosen.reason,) if chosen.is_refusal else ()), *desired.warnings)
    if chosen.addresses is None and not desired.labels:
        return Verdict(Kind.LEAVE, f"its labels are right; {chosen.reason}", warnings=warnings)
    shown = ", ".join(f"{key}={value}" for key, value in desired.labels.items()) or "none"
    patch = {"metadata": _metadata(node, desired.labels)} if desired.labels else None
    return Verdict(Kind.CORRECT, f"labels to set: {shown}; {chosen.reason}", patch, chosen.addresses, warnings=warnings)


def _metadata(node: core.Node, desired: Mapping[str, str], *, is_exact: bool = False) -> dict[str, Any]:
    """A patch's metadata: labels, and what the object must still be: this very one or this very version of it."""
    fields: dict[str, Any] = {"uid": node.metadata.uid}
    if is_exact:
        fields["resourceVersion"] = node.metadata.resource_version
    if desired:
        fields["labels"] = dict(desired)
    return fields
