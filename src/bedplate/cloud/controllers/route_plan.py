"""Which routes to pods a cloud's network must have, lose or get, and what to say of it on the nodes. Pure.

In: nodes with their pod CIDRs, the routes a cloud has, the cluster's CIDRs. Out: a `RoutePlan` whose every entry has a
sentence. A route whose destination lies outside the cluster's CIDRs is never touched. Nodes that are not this cloud's
are left alone: their routes are neither made nor removed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bedplate.api import core
from bedplate.cloud.interface import Address, Route
from bedplate.core import clock, errors

__all__ = [
    "Creation",
    "Deletion",
    "Network",
    "RoutePlan",
    "condition_patch",
    "is_responsible",
    "parse_cluster_cidrs",
    "plan",
    "unavailable_condition",
]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
CONDITION = "NetworkUnavailable"


def parse_cluster_cidrs(text: str) -> tuple[Network, ...]:
    """`--cluster-cidr`: one network, or two of different families."""
    networks: list[Network] = []
    problems = []
    for part in text.split(","):
        try:
            networks.append(ipaddress.ip_network(part.strip(), strict=False))
        except ValueError as err:
            problems.append(f"{part.strip()!r} is not a CIDR: {err}" if part.strip() else "a CIDR is missing")
    if len(networks) > 2:
        problems.append(f"{len(networks)} CIDRs are given, at most two are allowed")
    elif len(networks) == 2 and networks[0].version == networks[1].version:
        problems.append("two CIDRs must be of different families, one IPv4 and one IPv6")
    if problems:
        raise errors.Invalid(
            "--cluster-cidr",
            problems=problems,
            hint="the route controller needs it; --configure-cloud-routes=false switches that off",
        )
    return tuple(networks)


@dataclass(frozen=True, slots=True)
class Deletion:
    """A route to remove."""

    route: Route
    why: str


@dataclass(frozen=True, slots=True)
class Creation:
    """A route to make; `replaces` is the one that must be gone before."""

    node: core.Node
    route: Route
    why: str
    replaces: Route | None = None


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """What to do with one cloud's routes."""

    deletions: tuple[Deletion, ...] = ()
    creations: tuple[Creation, ...] = ()
    notes: tuple[str, ...] = ()
    """What is left as it is, and why."""
    deletes_first: bool = False
    judged: Mapping[str, bool] = field(default_factory=dict)
    """Nodes whose condition is ours to set → whether they have pod CIDRs: without, no route can be called made."""


def plan(
    nodes: Sequence[core.Node],
    routes: Sequence[Route],
    cluster_cidrs: Sequence[Network],
    *,
    spared: Collection[str] = (),
    judges: Collection[str] | None = None,
) -> RoutePlan:
    """`spared`: nodes of others. `judges`: names whose absence we may conclude; None means every name."""
    by_node: dict[str, list[Route]] = {}
    for route in routes:
        by_node.setdefault(route.target_node, []).append(route)
    creations: list[Creation] = []
    notes: list[str] = []
    kept: set[Route] = set()
    judged: dict[str, bool] = {}
    for node in nodes:
        own = by_node.get(node.name, [])
        if not node.spec.pod_cidrs:
            notes.append(f"node {node.name} has no pod CIDR yet")
            if own:
                judged[node.name] = False
            continue
        judged[node.name] = True
        for cidr in node.spec.pod_cidrs:
            matching = [candidate for candidate in own if _network(candidate.destination_cidr) == _network(cidr)]
            # Of two good ones none is removed: a cloud may delete by destination.
            if good := [candidate for candidate in matching if not _fault(candidate, node)]:
                kept.update(good)
                notes.append(f"node {node.name} has its route to {cidr}")
            else:
                creations.append(_creation(node, cidr, matching[0] if matching else None))
    known = {node.name for node in nodes}
    deletions: list[Deletion] = []
    for route in routes:
        verdict = _deletion(route, known, kept, cluster_cidrs, spared, judges)
        if isinstance(verdict, Deletion):
            deletions.append(verdict)
        elif verdict:
            notes.append(verdict)
    deletes_first = any(candidate.enable_node_addresses for candidate in routes) or any(
        candidate.replaces for candidate in creations
    )
    return RoutePlan(tuple(deletions), tuple(creations), tuple(notes), deletes_first, judged)


def _addresses(node: core.Node) -> tuple[Address, ...]:
    return tuple(Address(address.type, address.address) for address in node.status.addresses)


def _fault(route: Route, node: core.Node) -> str:
    """Why a route to the right place will not do; empty when it will."""
    if route.is_blackhole:
        return f"the route of node {node.name} to {route.destination_cidr} leads nowhere"
    if route.enable_node_addresses and set(route.target_node_addresses) != set(_addresses(node)):
        return f"the addresses of node {node.name} changed"
    return ""


def _creation(node: core.Node, cidr: str, replaced: Route | None) -> Creation:
    route = Route(target_node=node.name, destination_cidr=cidr, target_node_addresses=_addresses(node))
    why = _fault(replaced, node) if replaced is not None else f"node {node.name} has no route to its pods {cidr}"
    return Creation(node, route, why, replaced)


def _deletion(
    route: Route,
    known: Collection[str],
    kept: Collection[Route],
    cluster_cidrs: Sequence[Network],
    spared: Collection[str],
    judges: Collection[str] | None,
) -> Deletion | str:
    """The deletion, or why there is none; empty for a route that is needed and was spoken of already."""
    if not is_responsible(route, cluster_cidrs):
        return f"route {route.name} to {route.destination_cidr} is outside the cluster's CIDRs: not ours"
    if route in kept:
        return ""
    if route.is_blackhole:
        return Deletion(route, "it leads nowhere")
    if not route.target_node:
        return Deletion(route, "it leads to a node that does not exist")
    if route.target_node in spared:
        return f"route {route.name} leads to node {route.target_node}, which is not of this cloud: left alone"
    if route.target_node in known:
        return Deletion(route, f"node {route.target_node} no longer needs it, or needs another")
    if judges is not None and route.target_node not in judges:
        return f"route {route.name} leads to {route.target_node}, perhaps a node outside --node-selector: left alone"
    return Deletion(route, f"node {route.target_node} not found")


def is_responsible(route: Route, cluster_cidrs: Iterable[Network]) -> bool:
    """Whether the first or the last address of a route's destination is the cluster's."""
    network = _network(route.destination_cidr)
    if network is None:
        return False
    ends = (network[0], network[-1])
    return any(end in cidr for cidr in cluster_cidrs for end in ends)


def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def unavailable_condition(node: core.Node, has_routes: bool) -> tuple[str, str, str] | None:
    """Status, reason and message of the condition to set; None when it says so already."""
    condition = (
        ("False", "RouteCreated", "RouteController created a route")
        if has_routes
        else ("True", "NoRouteCreated", "RouteController failed to create a route")
    )
    now = node.condition(CONDITION)
    return None if now is not None and (now.status, now.reason) == condition[:2] else condition


def condition_patch(content: tuple[str, str, str], now: datetime) -> dict[str, Any]:
    """A strategic merge patch of `nodes/status`; conditions are merged by type."""
    status, reason, message = content
    condition = {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": clock.rfc3339(now),
        "lastHeartbeatTime": clock.rfc3339(now),
    }
    return {"status": {"conditions": [condition]}}
