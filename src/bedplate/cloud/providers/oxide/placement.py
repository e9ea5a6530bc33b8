"""On which node a Service's floating IPs go. Pure.

The fabric translates a floating IP to the private address of the instance that has it, and kube-proxy answers there;
so two Services with one port and protocol cannot share a node. Among the nodes that can serve best (ready, with local
endpoints where the policy asks for them) the present one is kept while nothing speaks against it; else one without a
clash is chosen: fewest floating IPs first, then by a hash of Service and node, which spreads them.
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
            "v6" if ":" in one.address else "v4" for one in self.node.status.addresses if one.type == "InternalIP"
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
    made = service.metadata.creation_timestamp
    return (made.isoformat() if made is not None else "9999", service.metadata.uid)


def candidates(targets: Iterable[Target], refused: frozenset[str] = frozenset()) -> tuple[Candidate, ...]:
    """The nodes that may carry a floating IP; one without a provider ID of ours is none and blocks nobody."""
    found = []
    for target in targets:
        try:
            instance = providerid.fold(providerid.instance_id(target.node.spec.provider_id))
        except errors.Invalid:
            continue
        tier = 2 if not target.is_ready else 0 if target.has_endpoints else 1
        found.append(Candidate(target.node, instance, tier, instance in refused))
    return tuple(found)


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
        nodes = [one for one in nodes if not one.families or one.families >= asker.families] or nodes
    best = min(one.tier for one in nodes)
    able = [one for one in nodes if one.tier == best]
    roomy = [one for one in able if used.get(one.instance, 0) - own.get(one.instance, 0) + asker.needs <= LIMIT]
    if not roomy:
        return Choice(reason=f"every node has {LIMIT} external IPs already")
    rivals = [one for one in occupants if one.uid != asker.uid and one.ports & asker.ports]
    current = _present(asker, roomy)
    # A Service that is about to leave its node no longer blocks a place there.
    at_current = [one for one in rivals if current is not None and current.instance in one.stays]
    if current is not None and not at_current:
        return Choice(current)
    blocked = frozenset().union(*(one.touches for one in rivals))
    free = [one for one in roomy if one.instance not in blocked]
    if free:
        return Choice(min(free, key=lambda one: _rank(asker, one, used)))
    if current is not None and all(asker.seniority < one.seniority for one in at_current):
        # Both are there and neither can leave: the older one stays, the younger one hears of it.
        return Choice(current)
    reachable = {one.instance for one in roomy}
    return Choice(
        reason="every node that could serve it already answers on one of its ports",
        is_clash=True,
        clashing=tuple(sorted(one.uid for one in rivals if one.touches & reachable)),
    )


def _present(asker: Asker, nodes: Sequence[Candidate]) -> Candidate | None:
    by_instance = {one.instance: one for one in nodes}
    return next((by_instance[instance] for instance in asker.current if instance in by_instance), None)


def _rank(asker: Asker, node: Candidate, used: Mapping[str, int]) -> tuple[bool, int, str]:
    spread = hashlib.sha256(f"{asker.uid}\0{node.node.name}".encode()).hexdigest()
    return (node.is_refused, used.get(node.instance, 0), spread)
