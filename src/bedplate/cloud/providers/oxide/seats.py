"""Who sits where: the placements of all Services, as the cloud shows them and as this process has decided them.

Choosing and noting the choice happen without an `await` in between, so two Services placed at the same time never get
clashing nodes, and nobody waits for anybody's cloud calls. A choice is remembered until the Service is deleted: a list
read before it was carried out does not show it yet. Instances that refused an address are remembered for a while.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bedplate.api import core
from bedplate.cloud.interface import Target
from bedplate.cloud.providers.oxide import models, names, ownership, placement, plan, providerid
from bedplate.core import clock

__all__ = ["Refusals", "Request", "Seats"]

REMEMBERED_S = 120.0


@dataclass(frozen=True, slots=True)
class Request:
    """A Service to be placed, and what is known of the project's floating IPs."""

    owner: ownership.Owner
    service: core.Service
    targets: Sequence[Target]
    ips: Sequence[models.FloatingIp]
    slots: int = 1
    families: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Seat:
    instance: str
    service: core.Service
    slots: int


class Seats:
    """All placements of one process. `services` gives every Service of the cluster."""

    def __init__(
        self,
        services: Callable[[], Iterable[core.Service]],
        ephemeral_ips: Callable[[str], int],
        refusals: Refusals,
    ) -> None:
        self._services = services
        self._ephemeral_ips = ephemeral_ips
        self._refusals = refusals
        self._seats: dict[str, _Seat] = {}

    def take(self, request: Request, cluster_name: str) -> placement.Choice:
        """Choose a node for a Service and note it."""
        own = plan.owned(request.owner, request.ips)
        nodes = placement.candidates(request.targets, self._refusals.current())
        asker = self._asker(request, own)
        occupants = self._occupants(request, cluster_name)
        choice = placement.choose(asker, nodes, occupants, self.used(request, nodes), _count(own))
        if choice.candidate is not None:
            self._seats[request.owner.service] = _Seat(choice.candidate.instance, request.service, request.slots)
        return choice

    def obstacles(self, request: Request, cluster_name: str) -> dict[str, str]:
        """By the names of nodes: why a Service cannot be put there. Nothing is noted."""
        own = plan.owned(request.owner, request.ips)
        nodes = placement.candidates(request.targets)
        occupants = self._occupants(request, cluster_name)
        names_by_uid = {other.metadata.uid: f"{other.namespace}/{other.name}" for other in self._services()}
        reasons = placement.obstacles(
            self._asker(request, own), nodes, occupants, self.used(request, nodes), _count(own)
        )
        return {
            node: " ".join(filter(None, (text, ", ".join(sorted(names_by_uid.get(uid, uid) for uid in rivals)))))
            for node, (text, rivals) in reasons.items()
        }

    def _asker(self, request: Request, own: Sequence[models.FloatingIp]) -> placement.Asker:
        return placement.Asker(
            uid=request.owner.service,
            ports=placement.ports_of(request.service),
            seniority=placement.seniority(request.service),
            current=self._current(request.owner, own),
            needs=max(request.slots, len(own)),
            families=request.families,
        )

    def instance(self, service: str) -> str:
        """Where the Service of this UID sits; empty when this process has not placed it."""
        seat = self._seats.get(service)
        return seat.instance if seat is not None else ""

    def leave(self, service: str) -> None:
        """The Service has no load balancer any more."""
        self._seats.pop(service, None)

    def used(self, request: Request, nodes: Iterable[placement.Candidate]) -> Counter[str]:
        """External IPs by instance: attached ones, ephemeral ones, and those that are about to come."""
        counts = _count(request.ips)
        for node in nodes:
            counts[node.instance] += self._ephemeral_ips(node.instance)
        there = {
            (record.owner.service, providerid.fold(ip.instance_id))
            for ip in request.ips
            if ip.instance_id and (record := ownership.parse(ip.description)) is not None
        }
        for uid, seat in self._seats.items():
            if uid != request.owner.service and (uid, seat.instance) not in there:
                counts[seat.instance] += seat.slots
        return counts

    def _current(self, owner: ownership.Owner, own: Sequence[models.FloatingIp]) -> tuple[str, ...]:
        attached = [providerid.fold(ip.instance_id) for ip in own if ip.instance_id]
        seat = self._seats.get(owner.service)
        if attached or seat is None or seat.instance in self._refusals.current():
            return tuple(attached)
        # On its way it is nowhere; then it is where it was going to.
        return (seat.instance,)

    def _occupants(self, request: Request, cluster_name: str) -> list[placement.Occupant]:
        services = {other.metadata.uid: other for other in self._services()}
        for uid, known in self._seats.items():
            services.setdefault(uid, known.service)
        attached = self._attached(request, cluster_name, services)
        occupants = []
        for uid in {*attached, *self._seats} - {request.owner.service}:
            service = services.get(uid)
            if service is None:
                # A Service that is gone answers on no port.
                continue
            seat = self._seats.get(uid)
            occupants.append(
                placement.Occupant(
                    uid=uid,
                    ports=placement.ports_of(service),
                    seniority=placement.seniority(service),
                    attached=frozenset(attached.get(uid, ())),
                    reserved=seat.instance if seat is not None else "",
                )
            )
        return occupants

    def _attached(
        self, request: Request, cluster_name: str, services: Mapping[str, core.Service]
    ) -> dict[str, set[str]]:
        """Instances by Service, from records and, for what the original manager left, from names."""
        legacy = {
            names.legacy_name(cluster_name, item.metadata.namespace, item.metadata.name): uid
            for uid, item in services.items()
            if item.spec.type == "LoadBalancer"
        }
        attached: dict[str, set[str]] = {}
        for item in request.ips:
            record = ownership.parse(item.description)
            uid = ""
            if record is not None and record.owner.is_same_cluster(request.owner):
                uid = record.owner.service
            elif plan.is_legacy(item, item.name):
                uid = legacy.get(item.name, "")
            if uid and item.instance_id:
                attached.setdefault(uid, set()).add(providerid.fold(item.instance_id))
        return attached


def _count(ips: Iterable[models.FloatingIp]) -> Counter[str]:
    return Counter(providerid.fold(ip.instance_id) for ip in ips if ip.instance_id)


class Refusals:
    """Instances that lately refused a floating IP, remembered for a while so that another node is tried first."""

    def __init__(self, time: clock.Clock) -> None:
        self._time = time
        self._until: dict[str, float] = {}

    def add(self, instance: str) -> None:
        self._until[providerid.fold(instance)] = self._time.monotonic() + REMEMBERED_S

    def current(self) -> frozenset[str]:
        """Those that still count; others are forgotten."""
        now = self._time.monotonic()
        self._until = {instance: until for instance, until in self._until.items() if until > now}
        return frozenset(self._until)
