"""Which nodes may carry a load balancer's traffic, and whether they could do so now.

In: changes of nodes, in the order of the cache; EndpointSlices of a Service. Out: per provider one book of
targets, and whether a change is one that load balancers must hear of. Nothing here asks anybody anything.

The stable set is what a node is in or out of for good reasons: deletion, the exclude label, the autoscaler's
taint, another cloud's provider ID or none. Readiness is not among them. It is a property of a target, and losing it
counts only after the fail-over delay, so that a flap shorter than that moves nothing.

A heartbeat of one node costs one look at that node, whatever the number of nodes and Services: the book keeps one
entry per node and a version that grows only when an entry's identity changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from bedplate.api import core, discovery, names
from bedplate.cloud import routing
from bedplate.cloud.interface import Target
from bedplate.core import clock
from bedplate.runtime.cache import Change

__all__ = [
    "BY_SERVICE",
    "Fingerprint",
    "Identity",
    "Readiness",
    "TargetBook",
    "Verdict",
    "is_excluded",
    "is_local",
    "nodes_with_endpoints",
    "service_of_slice",
    "verdict",
]

TAINT_TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
BY_SERVICE = "service"
"""The index of EndpointSlices by `namespace/name` of their Service."""
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


Place = Callable[[core.Node], routing.Place]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a node is a target of a provider's load balancers, and why."""

    is_target: bool
    why: str


def is_excluded(node: core.Node) -> bool:
    """Whether the exclude label keeps a node out: any value that Go does not read as false, the empty one too."""
    value = node.metadata.labels.get(names.LABEL_EXCLUDE_FROM_LOAD_BALANCERS)
    return value is not None and value not in _FALSE


def verdict(node: core.Node, provider: str, place: Place) -> Verdict:
    """Whether a node is in the stable set of that provider."""
    if node.metadata.is_deleting:
        return Verdict(False, "the node is being deleted")
    if is_excluded(node):
        value = node.metadata.labels[names.LABEL_EXCLUDE_FROM_LOAD_BALANCERS]
        return Verdict(False, f"the label {names.LABEL_EXCLUDE_FROM_LOAD_BALANCERS}={value!r} excludes it")
    if any(taint.key == TAINT_TO_BE_DELETED for taint in node.spec.taints):
        return Verdict(False, f"the taint {TAINT_TO_BE_DELETED} says that the autoscaler is about to remove it")
    match place(node):
        case routing.Owned(owner) if owner.name == provider:
            return Verdict(True, f"it is a machine of {provider} and nothing excludes it")
        case routing.Owned(owner):
            return Verdict(False, f"it is a machine of {owner.name}, not of {provider}")
        case routing.Foreign(reason):
            return Verdict(False, reason)
        case routing.Unplaced():
            return Verdict(False, "it has no provider ID yet")


class Readiness:
    """Remembers for how long a node that stopped being ready still counts as ready."""

    def __init__(self, delay_s: float, time: clock.Clock) -> None:
        self._delay_s = delay_s
        self._time = time
        self._until: dict[str, float] = {}
        """Node name → the monotonic time until which it counts as ready although it is not."""

    def judge(self, node: core.Node, was_ready: bool | None) -> bool:
        """Whether the node counts as ready; `was_ready` is the last judgement, None at first sight."""
        if node.is_ready:
            self._until.pop(node.name, None)
            return True
        if node.name in self._until:
            return True
        left_s = self._delay_s if was_ready else self._left_at_first_sight(node) if was_ready is None else 0.0
        if left_s <= 0:
            return False
        self._until[node.name] = self._time.monotonic() + left_s
        return True

    def _left_at_first_sight(self, node: core.Node) -> float:
        # After a restart the condition says since when it is not ready. A node that was never ready has been in that
        # condition since it joined, and gets no grace.
        ready, created = node.condition("Ready"), node.metadata.creation_timestamp
        if ready is None or ready.last_transition_time is None or created is None:
            return 0.0
        if (ready.last_transition_time - created).total_seconds() <= self._delay_s:
            return 0.0
        return self._delay_s - max(0.0, (self._time.now() - ready.last_transition_time).total_seconds())

    def forget(self, name: str) -> None:
        self._until.pop(name, None)

    def expire(self) -> list[str]:
        """The nodes whose delay is over: they are not ready from now on."""
        now = self._time.monotonic()
        over = [name for name, until in self._until.items() if until <= now]
        for name in over:
            del self._until[name]
        return over

    def next_due_s(self) -> float | None:
        """In how many seconds the next delay is over; None when none runs."""
        if not self._until:
            return None
        return max(0.0, min(self._until.values()) - self._time.monotonic())


Identity = tuple[str, bool, tuple[core.NodeAddress, ...]]
"""What load balancers must hear of: provider ID; and for providers that need ready nodes, readiness and addresses."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a load balancer knows of its targets. Equal versions mean equal identities."""

    version: int
    identities: Mapping[str, Identity]
    endpoints: frozenset[str] | None = None
    """Nodes with local endpoints, where they matter."""
    hosts: int = 0
    """Another version: of names and provider IDs alone."""

    def is_same(self, other: Fingerprint, carriers: frozenset[str] = frozenset()) -> bool:
        """Whether there is nothing to tell: all is as it was, or the nodes are the same and all is well with those
        that carry the traffic."""
        if carriers and self.hosts == other.hosts and all(self._is_well(other, name) for name in carriers):
            return True
        if self.endpoints != other.endpoints:
            return False
        return self.version == other.version or self.identities == other.identities

    def _is_well(self, now: Fingerprint, name: str) -> bool:
        identity = now.identities.get(name)
        if identity is None or identity != self.identities.get(name):
            return False
        _, is_ready, _ = identity
        return is_ready and (now.endpoints is None or name in now.endpoints)

    def difference(self, other: Fingerprint) -> str:
        """In words: how `other` differs."""
        parts = []
        if joined := sorted(other.identities.keys() - self.identities.keys()):
            parts.append("new: " + _few(joined))
        if left := sorted(self.identities.keys() - other.identities.keys()):
            parts.append("gone: " + _few(left))
        common = self.identities.keys() & other.identities.keys()
        if changed := sorted(name for name in common if self.identities[name] != other.identities[name]):
            parts.append("changed: " + _few(changed))
        if self.endpoints != other.endpoints:
            parts.append("nodes with local endpoints: " + (_few(sorted(other.endpoints or ())) or "none"))
        return "; ".join(parts)


def _few(texts: list[str]) -> str:
    return ", ".join(texts[:5]) + (f" and {len(texts) - 5} more" if len(texts) > 5 else "")


class TargetBook:
    """The targets of one provider's load balancers, kept up to date node by node."""

    def __init__(self, provider: str, *, needs_ready: bool, delay_s: float, place: Place, time: clock.Clock) -> None:
        self.provider = provider
        self.needs_ready = needs_ready
        self._place = place
        self._readiness = Readiness(delay_s, time)
        self._targets: dict[str, Target] = {}
        self._identities: dict[str, Identity] = {}
        self._version = 0
        self._hosts = 0
        self._frozen: Mapping[str, Identity] | None = None
        """The identities of this version, shared by all fingerprints; None until first used."""
        self._sorted: tuple[Target, ...] | None = None

    def observe(self, change: Change[core.Node]) -> bool:
        """Take in a change of a node; whether load balancers must hear of it."""
        name, node = change.key, change.new
        if node is None or not verdict(node, self.provider, self._place).is_target:
            return self._drop(name)
        before = self._targets.get(name)
        is_ready = self._readiness.judge(node, before.is_ready if before is not None else None)
        return self._put(name, Target(node, is_ready))

    def expire(self) -> None:
        """Let nodes that have been unready for the whole delay count as such."""
        for name in self._readiness.expire():
            self._put(name, Target(self._targets[name].node, False))

    def next_due_s(self) -> float | None:
        """When to call `expire` next."""
        return self._readiness.next_due_s() if self.needs_ready else None

    def fingerprint(self, endpoints: frozenset[str] | None = None) -> Fingerprint:
        """What a load balancer with these targets would know; `endpoints` counts only where readiness does."""
        if self._frozen is None:
            self._frozen = dict(self._identities)
        return Fingerprint(self._version, self._frozen, endpoints if self.needs_ready else None, self._hosts)

    def targets(self, endpoints: frozenset[str] | None = None) -> tuple[Target, ...]:
        """All targets by name; with `endpoints`, those on other nodes are marked as having none."""
        if self._sorted is None:
            self._sorted = tuple(self._targets[name] for name in sorted(self._targets))
        if endpoints is None:
            return self._sorted
        return tuple(Target(member.node, member.is_ready, member.node.name in endpoints) for member in self._sorted)

    def _put(self, name: str, target: Target) -> bool:
        self._targets[name] = target
        self._sorted = None
        before, identity = self._identities.get(name), self._identity(target)
        if before == identity:
            return False
        self._identities[name] = identity
        self._advance(is_other_host=before is None or before[0] != identity[0])
        return True

    def _drop(self, name: str) -> bool:
        self._readiness.forget(name)
        if self._targets.pop(name, None) is None:
            return False
        del self._identities[name]
        self._sorted = None
        self._advance(is_other_host=True)
        return True

    def _advance(self, *, is_other_host: bool) -> None:
        self._version += 1
        self._hosts += is_other_host
        self._frozen = None

    def _identity(self, target: Target) -> Identity:
        provider_id = target.node.spec.provider_id
        if not self.needs_ready:
            return provider_id, True, ()
        return provider_id, target.is_ready, target.node.status.addresses


def service_of_slice(obj: discovery.EndpointSlice) -> Iterable[str]:
    """The index function of `BY_SERVICE`."""
    name = obj.metadata.labels.get(names.LABEL_SERVICE_NAME)
    return (f"{obj.namespace}/{name}",) if name else ()


def is_local(service: core.Service) -> bool:
    """Whether traffic must stay on the node it arrives at: only nodes with endpoints can serve (NeedsHealthCheck)."""
    return service.spec.type == "LoadBalancer" and service.spec.external_traffic_policy == "Local"


def nodes_with_endpoints(slices: Iterable[discovery.EndpointSlice]) -> frozenset[str]:
    """The nodes that have a ready endpoint in any of these slices."""
    return frozenset(
        endpoint.node_name
        for obj in slices
        for endpoint in obj.endpoints or ()
        if endpoint.node_name and endpoint.conditions.ready is not False
    )
