"""Judges every node by what its object says: kubelet flags, provider ID, addresses. Pure.

In: nodes and the process's `Clouds`. Out: findings. A kubelet's flags cannot be read, but what it wrote tells them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from bedplate.api import core, names
from bedplate.cloud import node_addresses
from bedplate.cloud.doctor import Finding, fine, note, problem
from bedplate.cloud.routing import Clouds, Foreign, Owned, scheme_of

__all__ = ["check_nodes"]

PATIENCE = timedelta(minutes=2)


def check_nodes(nodes: Sequence[core.Node], clouds: Clouds, now: datetime) -> list[Finding]:
    """All checks of node objects; one good line stands for all that are well."""
    findings = [finding for node in nodes for finding in _check(node, clouds, now)]
    bad = {finding.about for finding in findings}
    if not nodes:
        return [note("kubelet", "nodes", "the cluster has no nodes")]
    well = len(nodes) - len(bad)
    if well:
        findings.append(
            fine("kubelet", "nodes", f"{well} of {len(nodes)} are initialised, with valid provider IDs and addresses")
        )
    return findings


def _check(node: core.Node, clouds: Clouds, now: datetime) -> Iterator[Finding]:
    about = f"Node {node.name}"
    place = clouds.place(node)
    if isinstance(place, Foreign):
        yield _foreign(node, place, clouds)
        return
    is_waiting = any(taint.key == names.TAINT_UNINITIALIZED for taint in node.spec.taints)
    if is_waiting:
        born = node.metadata.creation_timestamp
        if born is None or now - born > PATIENCE:
            text = f"still has the taint {names.TAINT_UNINITIALIZED}: no manager has initialised it"
            yield problem("kubelet", about, text, f"bedplate ccm explain node {node.name}")
        else:
            yield note("kubelet", about, f"joined {(now - born).total_seconds():.0f} s ago and is not initialised yet")
    elif not isinstance(place, Owned):
        text = "has no provider ID and no uninitialized taint: its kubelet does not run with --cloud-provider=external"
        fix = (
            f"add --cloud-provider=external to the kubelet of {node.name}, kubectl delete node {node.name}, and "
            "restart the kubelet"
        )
        yield problem("kubelet", about, text, fix)
    else:
        yield from _addresses(node, about)


def _foreign(node: core.Node, place: Foreign, clouds: Clouds) -> Finding:
    about = f"Node {node.name}"
    schemes = [scheme for provider in clouds for scheme in provider.schemes]
    if scheme_of(node.spec.provider_id) in schemes:
        fix = (
            f"correct --provider-id of its kubelet, kubectl delete node {node.name}, restart the kubelet "
            "(a provider ID cannot be changed)"
        )
        return problem("provider-id", about, place.reason, fix)
    return note("provider-id", about, f"is not managed here: {place.reason}")


def _addresses(node: core.Node, about: str) -> Iterator[Finding]:
    kinds = {address.type for address in node.status.addresses}
    if "InternalIP" not in kinds:
        yield problem("addresses", about, "has no InternalIP", f"bedplate ccm explain node {node.name}")
    node_ip = node.metadata.annotations.get(names.ANNOTATION_PROVIDED_NODE_IP)
    if node_ip is not None:
        try:
            node_addresses.parse_node_ips(node_ip)
        except node_addresses.InvalidNodeIP as err:
            fix = f"correct --node-ip of the kubelet on {node.name} and restart it"
            yield problem("addresses", about, f"its kubelet's --node-ip is invalid: {err}", fix)
