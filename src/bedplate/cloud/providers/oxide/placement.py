"""On which node a Service's floating IPs go. Pure.

The fabric translates a floating IP to the private address of the instance that has it, and kube-proxy answers there;
so two Services with one port and protocol cannot share a node. Among the nodes that can serve best (ready, with local
endpoints where the policy asks for them) the present one is kept while nothing speaks against it; else one without a
clash is chosen: those ready at this moment first, because the fail-over delay is for Services that are being served,
then fewest floating IPs, then by a hash of Service and node, which spreads them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bedplate.api import core
from bedplate.cloud.interface import Target
from bedplate.cloud.providers.oxide import providerid
from bedplate.core import errors

__all__ = [
    "LIMIT",
    "Asker",
    "Candidate",
    "Choice",
    "Occupant",
    "candidates",
    "choose",
    "obstacles",
    "ports_of",
    "seniority",
]

LIMIT = 32
"""External IPs that one instance may have, an ephemeral one included."""
Port = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node of ours.

    `tier`: 0 can serve now, 1 is ready but has no endpoint, 2 is not ready. `is_refused`: it has lately refused an
    address.
    """

    node: core.Node
    instance: str
    tier: int = 0
    is_refused: bool = False

    @property
    def families(self) -> frozenset[str]:
        """Those of its private addresses; empty when they are not known."""
        return frozenset(
            "v6" if ":" in address.address else "v4"
            for address in self.node.status.addresses
            if address.type == "InternalIP"
        )


@dataclass(frozen=True, slots=True)
class Occupant:
    """Another Service: where the cloud says that it is, and where this process has put it last, if it has."""

    uid: str
    ports: frozenset[Port]
    seniority: tuple[str, str]
    attached: frozenset[str] = frozenset()
    reserved: str = ""

    @property
    def stays(self) -> frozenset[str]:
        """Where it will be soon: what this process decided is newer than what a list says."""
        return frozenset({self.reserved}) if self.reserved else self.attached

    @property
    def touches(self) -> frozenset[str]:
        """Where it is or will be."""
        return self.attached | self.stays


@dataclass(frozen=True, slots=True)
class Asker:
    """The Service to be placed. `current`: instances that have its floating IPs, the primary one's first.

    `needs`: how many floating IPs it wants; `families`: what a node must have a private address of.
    """

    uid: str
    ports: frozenset[Port]
    seniority: tuple[str, str]
    current: tuple[str, ...] = ()
    needs: int = 1
    families: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Choice:
    """The node, or why there is none: `is_clash` when only ports speak against it."""

    candidate: Candidate | None = None
    reason: str = ""
    is_clash: bool = False
    clashing: tuple[str, ...] = field(default=())


def ports_of(service: core.Service) -> frozenset[Port]:
    """What the Service answers on."""
    return frozenset((port.port, port.protocol or "TCP") for port in service.spec.ports)


def seniority(service: core.Service) -> tuple[str, str]:
    """Sorts older Services first; one without a date of creation is the youngest."""
    created = service.metadata.creation_timestamp
    return (created.isoformat() if created is not None else "9999", service.metadata.uid)


def candidates(targets: Iterable[Target], refused: frozenset[str] = frozenset()) -> tuple[Candidate, ...]:
    """The nodes that may carry a floating IP; one without a provider ID of ours is none and blocks nobody."""
    nodes = []
    for target in targets:
        try:
            instance = providerid.fold(providerid.instance_id(target.node.spec.provider_id))
        except errors.Invalid:
            continue
        tier = 2 if not target.is_ready else 0 if target.has_endpoints else 1
        nodes.append(Candidate(target.node, instance, tier, instance in refused))
    return tuple(nodes)


def choose(
    asker: Asker,
    nodes: Sequence[Candidate],
    occupants: Sequence[Occupant],
    used: Mapping[str, int],
    own: Mapping[str, int],
) -> Choice:
    """The node for a Service. `used`: external IPs by instance; `own`: those of them that are this Service's."""
    if not nodes:
        return Choice(reason="no nodes for service")
    # The fabric refuses an address on an instance that has no private one of its family.
    if asker.families:
        nodes = [node for node in nodes if not node.families or node.families >= asker.families] or nodes
    best = min(node.tier for node in nodes)
    able = [node for node in nodes if node.tier == best]
    roomy = [node for node in able if used.get(node.instance, 0) - own.get(node.instance, 0) + asker.needs <= LIMIT]
    if not roomy:
        return Choice(reason=f"every node has {LIMIT} external IPs already")
    rivals = [node for node in occupants if node.uid != asker.uid and node.ports & asker.ports]
    current = _present(asker, roomy)
    # A Service that is about to leave its node no longer blocks a place there.
    at_current = [node for node in rivals if current is not None and current.instance in node.stays]
    if current is not None and not at_current:
        return Choice(current)
    blocked = frozenset().union(*(node.touches for node in rivals))
    free = [node for node in roomy if node.instance not in blocked]
    if free:
        return Choice(min(free, key=lambda node: _rank(asker, node, used)))
    if current is not None and all(asker.seniority < node.seniority for node in at_current):
        # Both are there and neither can leave: the older one stays, the younger one hears of it.
        return Choice(current)
    reachable = {node.instance for node in roomy}
    return Choice(
        reason="every node that could serve it already answers on one of its ports",
        is_clash=True,
        clashing=tuple(sorted(node.uid for node in rivals if node.touches & reachable)),
    )


def obstacles(
    asker: Asker,
    nodes: Sequence[Candidate],
    occupants: Sequence[Occupant],
    used: Mapping[str, int],
    own: Mapping[str, int],
) -> dict[str, tuple[str, tuple[str, ...]]]:
    """By the names of nodes: why the Service cannot be put there, and the Services that are in its way."""
    reasons: dict[str, tuple[str, tuple[str, ...]]] = {}
    rivals = [other for other in occupants if other.uid != asker.uid and other.ports & asker.ports]
    for node in nodes:
        there = [other for other in rivals if node.instance in other.touches]
        if there:
            ports = sorted({port for other in there for port in other.ports & asker.ports})
            shown = ", ".join(f"{port}/{protocol}" for port, protocol in ports)
            reasons[node.node.name] = (f"port {shown} is taken there by", tuple(other.uid for other in there))
        elif used.get(node.instance, 0) - own.get(node.instance, 0) + asker.needs > LIMIT:
            reasons[node.node.name] = (f"its instance has {LIMIT} external IPs already", ())
    return reasons


def _present(asker: Asker, nodes: Sequence[Candidate]) -> Candidate | None:
    by_instance = {node.instance: node for node in nodes}
    return next((by_instance[instance] for instance in asker.current if instance in by_instance), None)


def _rank(asker: Asker, node: Candidate, used: Mapping[str, int]) -> tuple[bool, bool, int, str]:
    spread = hashlib.sha256(f"{asker.uid}\0{node.node.name}".encode()).hexdigest()
    return (not node.node.is_ready, node.is_refused, used.get(node.instance, 0), spread)
