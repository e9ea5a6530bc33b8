"""Cloudlycke's load balancers: an address of the pool for each Service.

In: Services, and the manager's caches of Services and Nodes. Out: statuses with one address. What is given out stands
in the Services' statuses, so nothing is stored elsewhere: a restarted manager reads them back. In memory is only what
was given out and may not stand in the cache yet, and the hosts of each balancer.

Traffic is not handled here: the agents (`agent`) bring an address to a node, where kube-proxy balances. Without agents
the address is only a number.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from bedplate.api import core
from bedplate.cloud.errors import CloudError
from bedplate.cloud.interface import Target
from bedplate.cloud.providers.cloudlycke import pool as pools
from bedplate.cloud.providers.cloudlycke.instances import said
from bedplate.cloud.providers.cloudlycke.inventory import Inventory
from bedplate.cloud.registry import Setting
from bedplate.core import logging

__all__ = ["Balancers"]

log = logging.get_logger("cloud.cloudlycke")


@dataclass(frozen=True, slots=True)
class _Balancer:
    name: str
    address: pools.Address
    hosts: tuple[str, ...]


class Balancers:
    """Load balancers by Service UID."""

    # Agents find out by themselves which nodes can carry an address, sooner than the kubelet's silence would tell.
    needs_ready_nodes = False

    def __init__(self, setting: Setting, inventory: Inventory, pool: pools.Network) -> None:
        self._setting = setting
        self._inventory = inventory
        self._pool = pool
        self._known: dict[str, _Balancer] = {}

    def name(self, cluster: str, service: core.Service) -> str:
        text = f"{cluster}-{service.namespace}-{service.name}"
        return f"cloudlycke-{hashlib.sha256(text.encode()).hexdigest()[:20]}"

    def hosts(self, service: core.Service) -> tuple[str, ...]:
        """The nodes a balancer was last given."""
        known = self._known.get(service.metadata.uid)
        return known.hosts if known is not None else ()

    async def get(self, cluster: str, service: core.Service) -> core.LoadBalancerStatus | None:
        said("get_load_balancer", _key(service))
        await self._inventory.refresh()
        known = self._known.get(service.metadata.uid)
        address = known.address if known is not None else pools.published(service, self._pool)
        return None if address is None else _status(address)

    async def ensure(
        self, cluster: str, service: core.Service, targets: Sequence[Target]
    ) -> core.LoadBalancerStatus | None:
        said("ensure_load_balancer", _key(service))
        await self._inventory.refresh()
        await self._until_synced()
        # From here to the note in memory nothing waits: two Services asked for at once never choose the same address.
        address = pools.choose(service, self._taken(service), self._pool)
        self._note(cluster, service, address, targets)
        return _status(address)

    async def update(
        self, cluster: str, service: core.Service, targets: Sequence[Target]
    ) -> core.LoadBalancerStatus | None:
        said("update_load_balancer", _key(service))
        await self._inventory.refresh()
        known = self._known.get(service.metadata.uid)
        address = known.address if known is not None else pools.published(service, self._pool)
        if address is None:
            raise CloudError(f"Service {_key(service)} has no load balancer to update")
        self._note(cluster, service, address, targets)
        return None

    async def delete(self, cluster: str, service: core.Service) -> None:
        said("ensure_load_balancer_deleted", _key(service))
        await self._inventory.refresh()
        if self._setting.is_dry_run:
            log.info("cloudlycke.would_free", service=_key(service))
            return
        self._setting.guard()
        known = self._known.pop(service.metadata.uid, None)
        if known is not None:
            log.info("cloudlycke.address_freed", service=_key(service), address=str(known.address))

    def _note(self, cluster: str, service: core.Service, address: pools.Address, targets: Sequence[Target]) -> None:
        hosts = tuple(sorted(target.node.name for target in targets))
        if self._setting.is_dry_run:
            log.info("cloudlycke.would_give", service=_key(service), address=str(address), hosts=len(hosts))
            return
        self._setting.guard()
        before = self._known.get(service.metadata.uid)
        self._known[service.metadata.uid] = _Balancer(self.name(cluster, service), address, hosts)
        if before is None or before.address != address:
            log.info("cloudlycke.address_given", service=_key(service), address=str(address))

    def _taken(self, service: core.Service) -> dict[pools.Address, str]:
        """The statuses, then what memory knows better; the Service itself comes as it is now, not as cached."""
        own = service.metadata.uid
        others = [each for each in self._setting.services if each.metadata.uid != own]
        taken = pools.holders([service, *others], self._setting.nodes, self._pool)
        for uid, known in self._known.items():
            taken = {address: holder for address, holder in taken.items() if holder != uid}
            taken[known.address] = uid
        return taken

    async def _until_synced(self) -> None:
        """An address must not be given before it is known which ones are taken."""
        try:
            async with asyncio.timeout(self._setting.timeout_s):
                await self._setting.services.synced.wait()
        except TimeoutError:
            raise CloudError("the Services have not been listed yet, so the addresses in use are not known") from None


def _key(service: core.Service) -> str:
    return f"{service.namespace}/{service.name}"


def _status(address: pools.Address) -> core.LoadBalancerStatus:
    return core.LoadBalancerStatus(ingress=(core.LoadBalancerIngress(ip=str(address)),))
