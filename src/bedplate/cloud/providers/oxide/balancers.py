"""Load balancers of Oxide: one floating IP (one per family) attached to one node of the cluster.

In: Services and targets from the service controller. Out: floating IPs in the project, the status to publish, events.
What to do is decided in `wants`, `seats` (with `placement`) and `plan`; `carrying` does it. Calls for one Service run
one after the other, calls for different ones never wait for each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace

from bedplate.api import core
from bedplate.api.resources import SERVICES
from bedplate.cloud.errors import CloudError, RetryError
from bedplate.cloud.interface import Target, same_status
from bedplate.cloud.providers.oxide import models, names, ownership, placement, plan, providerid, seats, wants
from bedplate.cloud.providers.oxide.api import Api
from bedplate.cloud.providers.oxide.carrying import Carrier, Seen
from bedplate.cloud.registry import Setting
from bedplate.core import errors
from bedplate.core.logging import get_logger
from bedplate.runtime import events

__all__ = ["FloatingIpBalancers", "status_of", "unless_same"]

log = get_logger("cloud.oxide")
CONFLICT_RETRY_S = 30.0
UNANSWERED_RETRY_S = 15.0
NOT_OWNED, PORT_CONFLICT, RANGES = "FloatingIPNotOwned", "PortConflict", "SourceRangesNotEnforced"
_BY_INSTANCE = "oxide instance"


def _instances_of(node: core.Node) -> list[str]:
    """The index of nodes by their instance."""
    return [candidate.instance for candidate in placement.candidates([Target(node)])]


class FloatingIpBalancers:
    """The load balancers of one cluster."""

    needs_ready_nodes = True

    def __init__(self, api: Api, setting: Setting, carrier: Carrier, seating: seats.Seats) -> None:
        self._api = api
        self._setting = setting
        self._carrier = carrier
        self._seats = seating
        setting.nodes.add_indexes({_BY_INSTANCE: _instances_of})
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._ranges_told: dict[str, tuple[str, ...]] = {}

    def name(self, cluster: str, service: core.Service) -> str:
        return names.main_name(cluster, service.namespace, service.name)

    def carriers(self, service: core.Service) -> frozenset[str]:
        """The node that carries it: a change of any other node does not lead to `update`."""
        node = self._node(self._seats.instance(service.metadata.uid))
        return frozenset({node.name}) if node is not None else frozenset()

    async def get(self, cluster: str, service: core.Service) -> core.LoadBalancerStatus | None:
        owner = self._owner(service)
        seen = await self._look(cluster, owner, service)
        ips = self._published(cluster, owner, service, seen)
        if not ips:
            ips = self._left_by_original(cluster, service, seen)
        return self._status(ips, service, ()) if ips else None

    async def ensure(
        self, cluster: str, service: core.Service, targets: Sequence[Target]
    ) -> core.LoadBalancerStatus | None:
        owner = self._owner(service)
        async with self._alone(owner):
            self._warn_of_ranges(service)
            ask = wants.read(service)
            seen = Seen(await self._api.floating_ip_list())
            pool = await self._pool(ask.pool)
            adopted = {name: await self._named(name, seen) for name in ask.adopt}
            want = plan.Want(
                owner,
                wants.slots(ask, service, cluster, owner, pool, adopted),
                nodes=self._nodes(seen),
                legacy_name=names.legacy_name(cluster, service.namespace, service.name),
                is_retained=ask.is_retained,
                published=frozenset(ingress.ip for ingress in service.status.load_balancer.ingress),
            )
            try:
                await self._carrier.claim(lambda: plan.next_claim(want, seen.ips), seen)
                want = self._place(want, service, targets, seen, cluster)
                self._tell_of_collision(want, service, seen)
                want = await self._carrier.settle(want, seen)
            except plan.FloatingIpNotOwned as err:
                self._event(service, NOT_OWNED, "; ".join(filter(None, (str(err), err.hint))))
                raise
            finally:
                if not plan.owned(owner, seen.ips):
                    # It has nothing that could be attached: it must not keep others off a node.
                    self._seats.leave(owner.service)
            return self._settled_status(want, service, targets, seen)

    async def update(
        self, cluster: str, service: core.Service, targets: Sequence[Target]
    ) -> core.LoadBalancerStatus | None:
        """Only move what there is: a change of annotations that cannot be carried out must not stop a fail-over."""
        owner = self._owner(service)
        async with self._alone(owner):
            seen = await self._look(cluster, owner, service)
            if not plan.owned(owner, seen.ips):
                raise CloudError(f"{service.namespace}/{service.name} has no floating IP yet")
            want = plan.Want(
                owner, self._kept_slots(cluster, owner, service, seen), nodes=self._nodes(seen), is_settled=True
            )
            want = self._place(want, service, targets, seen, cluster)
            want = await self._carrier.settle(want, seen)
            if not plan.owned(owner, seen.ips):
                raise CloudError(f"the floating IP of {service.namespace}/{service.name} is gone")
            return self._settled_status(want, service, targets, seen)

    async def delete(self, cluster: str, service: core.Service) -> None:
        """Remove everything that carries this Service's record, under whatever name."""
        owner = self._owner(service)
        async with self._alone(owner):
            seen = await self._look(cluster, owner, service, is_thorough=True)
            await self._carrier.claim(lambda: self._next_legacy(cluster, owner, service, seen), seen)
            is_retained = wants.must_retain(service)
            lasting = {names.names_of(cluster, owner, suffix).main for suffix in ("", "v6")}
            for ip in plan.owned(owner, seen.ips):
                is_renamed = ip.name not in lasting
                await self._carrier.remove(owner, ip, seen, is_retained=is_retained, is_renamed=is_renamed)
            if self._carrier.may_have_made(owner):
                raise RetryError(
                    f"a request to create a floating IP for {service.namespace}/{service.name} has no response yet",
                    UNANSWERED_RETRY_S,
                )
            self._seats.leave(owner.service)
            self._ranges_told.pop(owner.service, None)

    async def obstacles(self, cluster: str, service: core.Service, targets: Sequence[Target]) -> dict[str, str]:
        """Nodes on which the Service's ports are taken, or that have no room for another address."""
        owner = self._owner(service)
        seen = await self._look(cluster, owner, service)
        return self._seats.obstacles(seats.Request(owner, service, targets, seen.ips), cluster)

    # Looking

    def _owner(self, service: core.Service) -> ownership.Owner:
        cluster_id = self._setting.cluster_id()
        if not cluster_id:
            raise RetryError("the id of this cluster is not known yet, so nothing can be marked as owned by it", 5.0)
        aliases = self._setting.cluster_aliases()
        return ownership.Owner(cluster_id, service.metadata.uid, service.namespace, service.name, aliases)

    @contextlib.asynccontextmanager
    async def _alone(self, owner: ownership.Owner) -> AsyncIterator[None]:
        lock = self._locks.setdefault(owner.service, asyncio.Lock())
        async with lock:
            yield

    async def _look(
        self, cluster: str, owner: ownership.Owner, service: core.Service, *, is_thorough: bool = False
    ) -> Seen:
        """The project's floating IPs. As lists lag, this Service's are also looked for by name, unless one is there."""
        seen = Seen(await self._api.floating_ip_list())
        if plan.owned(owner, seen.ips) and not is_thorough:
            return seen
        adopted = [part.strip() for part in service.metadata.annotation(wants.NAME).split(",") if part.strip()]
        for name in (*names.all_names(cluster, owner), *adopted):
            if seen.named(name) is None:
                ip = await self._api.floating_ip_view(name, is_name=not providerid.is_uuid(name))
                if ip is not None:
                    seen.put(ip)
        if is_thorough:
            # Oxide hides what one may not see: what is missing is gone only while the project is there.
            await self._api.project_view()
        return seen

    async def _named(self, name: str, seen: Seen) -> models.FloatingIp:
        ip = seen.named(name)
        if ip is None:
            ip = await self._api.floating_ip_view(name, is_name=not providerid.is_uuid(name))
            if ip is None:
                raise plan.FloatingIpMissing(f"there is no floating IP {name!r} in the project")
            seen.put(ip)
        return ip

    async def _pool(self, name: str) -> models.Pool | None:
        if not name:
            return None
        pool = await self._api.ip_pool_view(name)
        if pool is None:
            raise errors.Invalid(f"there is no IP pool {name!r}", hint=f"correct the annotation {wants.POOL}")
        return pool

    def _nodes(self, seen: Seen) -> frozenset[str]:
        """The instances of this cluster's nodes, those of them that have a floating IP."""
        attached = {providerid.fold(ip.instance_id) for ip in seen.ips if ip.instance_id}
        return frozenset(instance for instance in attached if self._node(instance) is not None)

    def _node(self, instance: str | None) -> core.Node | None:
        nodes = self._setting.nodes.by_index(_BY_INSTANCE, providerid.fold(instance or ""))
        return nodes[0] if nodes else None

    def _left_by_original(self, cluster: str, service: core.Service, seen: Seen) -> list[models.FloatingIp]:
        """What the original manager made for this very Service: it is on a node of ours, or the status shows it."""
        name = names.legacy_name(cluster, service.namespace, service.name)
        published = {ip.ip for ip in service.status.load_balancer.ingress}
        return [
            ip
            for ip in seen.ips
            if plan.is_legacy(ip, name)
            and (self._node(ip.instance_id) is not None if ip.instance_id else ip.ip in published)
        ]

    def _next_legacy(
        self, cluster: str, owner: ownership.Owner, service: core.Service, seen: Seen
    ) -> plan.Update | None:
        left = self._left_by_original(cluster, service, seen)
        record = ownership.Record(owner, "managed")
        return plan.Update(left[0], description=ownership.write(record)) if left else None

    def _kept_slots(
        self, cluster: str, owner: ownership.Owner, service: core.Service, seen: Seen
    ) -> tuple[wants.Slot, ...]:
        """One slot per family that the Service has, its primary family first."""
        order = [*service.spec.ip_families[:1], "IPv4", "IPv6"]
        families = {ip.family for ip in plan.owned(owner, seen.ips)}
        order_of_families = dict.fromkeys("v6" if name == "IPv6" else "v4" for name in order)
        return tuple(
            wants.Slot(names.names_of(cluster, owner, "v6" if family == "v6" else ""), family, family, takes_any=True)
            for family in order_of_families
            if family in families
        )

    # Deciding

    def _place(
        self, want: plan.Want, service: core.Service, targets: Sequence[Target], seen: Seen, cluster: str
    ) -> plan.Want:
        """Choose the node; no `await` here, see `seats`."""
        needed = frozenset(slot.family for slot in want.slots if slot.is_required and slot.family)
        request = seats.Request(want.owner, service, targets, seen.ips, len(want.slots), needed)
        choice = self._seats.take(request, cluster)
        if choice.candidate is None:
            if choice.is_clash:
                self._event(service, PORT_CONFLICT, self._conflict(choice))
            raise RetryError(choice.reason, CONFLICT_RETRY_S)
        node = choice.candidate
        used = self._seats.used(request, (node,))
        optional = [slot for slot in want.slots if not slot.is_required and node.families]
        return replace(
            want,
            instance=node.instance,
            full=frozenset(instance for instance, count in used.items() if count >= placement.LIMIT),
            failed=frozenset(slot for slot in optional if slot.family not in node.families),
        )

    def _conflict(self, choice: placement.Choice) -> str:
        known = {other.metadata.uid: f"{other.namespace}/{other.name}" for other in self._setting.services}
        others = ", ".join(known.get(uid, uid) for uid in choice.clashing[:5])
        return f"{choice.reason}: {others}; add a node, or use other ports"

    def _tell_of_collision(self, want: plan.Want, service: core.Service, seen: Seen) -> None:
        step = plan.next_step(want, seen.ips)
        if isinstance(step, plan.Create) and step.passed_over is not None:
            theirs = step.passed_over
            self._event(
                service,
                NOT_OWNED,
                f"the floating IP {theirs.name} ({theirs.ip}) belongs to another Service; using the name {step.name}",
            )

    def _warn_of_ranges(self, service: core.Service) -> None:
        ranges = wants.source_ranges(service)
        if ranges and self._ranges_told.get(service.metadata.uid) != ranges:
            self._event(
                service,
                RANGES,
                "the floating IP itself is reachable from any address; kube-proxy "
                f"enforces {', '.join(ranges)} on the nodes",
            )
        self._ranges_told[service.metadata.uid] = ranges

    # Telling

    def _published(
        self, cluster: str, owner: ownership.Owner, service: core.Service, seen: Seen
    ) -> list[models.FloatingIp]:
        want = plan.Want(owner, self._kept_slots(cluster, owner, service, seen))
        return list(plan.assign(want, plan.owned(owner, seen.ips)).values())

    def _settled_status(
        self, want: plan.Want, service: core.Service, targets: Sequence[Target], seen: Seen
    ) -> core.LoadBalancerStatus:
        assigned = plan.assign(want, plan.owned(want.owner, seen.ips))
        ips = [assigned[slot] for slot in want.slots if slot in assigned and slot not in want.failed]
        if not ips:
            return service.status.load_balancer
        return self._status(ips, service, targets)

    def _status(
        self, ips: Sequence[models.FloatingIp], service: core.Service, targets: Sequence[Target]
    ) -> core.LoadBalancerStatus:
        where = ips[0].instance_id
        node = self._node(where)
        if node is None:
            given = (
                candidate for candidate in placement.candidates(targets) if providerid.same(candidate.instance, where)
            )
            node = next((candidate.node for candidate in given), None)
        is_hidden = service.metadata.annotation(wants.HIDE_INTERNAL) in wants.TRUE
        status = status_of(ips, node, hides_internal=is_hidden)
        return unless_same(status, service.status.load_balancer)

    def _event(self, service: core.Service, reason: str, message: str) -> None:
        log.warning("oxide.service", service=f"{service.namespace}/{service.name}", reason=reason, message=message)
        if self._setting.recorder is not None:
            self._setting.recorder.event(events.reference(SERVICES, service), events.WARNING, reason, message)


def status_of(
    ips: Iterable[models.FloatingIp], node: core.Node | None, *, hides_internal: bool = False
) -> core.LoadBalancerStatus:
    """The status for these floating IPs on that node (None: on none that we know).

    The fabric translates a floating IP to the node's private address, so kube-proxy has to answer there: that is why
    the private ones are listed. The floating IP has `ipMode: Proxy`, or kube-proxy would short-circuit traffic to it.
    """
    ingress = [core.LoadBalancerIngress(ip=item.ip, ip_mode="Proxy") for item in ips]
    if node is not None and not hides_internal:
        ingress += [
            core.LoadBalancerIngress(ip=item.address) for item in node.status.addresses if item.type == "InternalIP"
        ]
    return core.LoadBalancerStatus(ingress=tuple(ingress))


def unless_same(status: core.LoadBalancerStatus, published: core.LoadBalancerStatus) -> core.LoadBalancerStatus:
    """What is published, to the letter, when it says the same: then nobody has a reason to write it again."""
    return published if same_status(status, published) else status
