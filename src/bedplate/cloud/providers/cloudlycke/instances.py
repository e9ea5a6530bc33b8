"""Cloudlycke's machines as the controllers ask for them: the present interface, and the old one with zones.

In: nodes, names, provider IDs; answers come from `inventory`. Out: `interface` values. Every call is logged at
verbosity 5 with its name and argument, as the original does: that is what its walk-through shows. Whether a node
belongs to this cloud at all is decided before (`routing`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bedplate.api import core
from bedplate.cloud.errors import InstanceNotFound
from bedplate.cloud.interface import Address, InstanceMetadata, Listing, Zone
from bedplate.cloud.providers.cloudlycke import config
from bedplate.cloud.providers.cloudlycke.inventory import Inventory, instance_id
from bedplate.core import errors, logging

__all__ = ["LegacyMachines", "Machines", "addresses_of", "said"]

log = logging.get_logger("cloud.cloudlycke")


def said(method: str, argument: str) -> None:
    """The line of a provider call."""
    log.v(5).info("cloudlycke.call", method=method, argument=argument)


def addresses_of(instance: config.Instance) -> tuple[Address, ...]:
    """Internal, external, then the host name."""
    return (
        *(Address("InternalIP", text) for text in instance.internal_ips),
        *(Address("ExternalIP", text) for text in instance.external_ips),
        Address("Hostname", instance.hostname or instance.name),
    )


class Machines:
    """InstancesV2: by provider ID where the node has one, else by name."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    async def exists(self, node: core.Node, *, fresh: bool = False) -> bool:
        said("instance_exists", node.name)
        await self._instance(node)
        return True

    async def is_shutdown(self, node: core.Node, *, fresh: bool = False) -> bool:
        said("instance_shutdown", node.name)
        return (await self._instance(node)).state == "stopped"

    async def metadata(self, node: core.Node) -> InstanceMetadata | None:
        said("instance_metadata", node.name)
        instance = await self._instance(node)
        return InstanceMetadata(
            provider_id=instance.provider_id,
            instance_type=instance.type,
            addresses=addresses_of(instance),
            zone=instance.zone,
            region=instance.region,
        )

    def was_absent(self, name: str, within_s: float) -> bool:
        return self._inventory.lacks(name)

    async def listing(self, nodes: Sequence[core.Node]) -> Listing:
        said("instance_list", "")
        machines = [each for each in (await self._inventory.refresh()).instances if each.state != "terminated"]
        ids, named = {each.id for each in machines}, {each.name for each in machines}
        return Listing(len(machines), frozenset(node.name for node in nodes if _is_among(node, ids, named)))

    async def _instance(self, node: core.Node) -> config.Instance:
        if node.spec.provider_id:
            return await self._inventory.by_id(instance_id(node.spec.provider_id))
        return await self._inventory.by_name(node.name)


class LegacyMachines:
    """Instances (v1) and Zones; unlike the original's, `instance_id` is the bare ID, which the caller prefixes."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    async def node_addresses(self, name: str) -> Sequence[Address]:
        return addresses_of(await self._named("node_addresses", name))

    async def node_addresses_by_provider_id(self, provider_id: str) -> Sequence[Address]:
        return addresses_of(await self._identified("node_addresses_by_provider_id", provider_id))

    async def instance_id(self, name: str) -> str:
        return (await self._named("instance_id", name)).id

    async def instance_type(self, name: str) -> str:
        return (await self._named("instance_type", name)).type

    async def instance_type_by_provider_id(self, provider_id: str) -> str:
        return (await self._identified("instance_type_by_provider_id", provider_id)).type

    async def exists_by_provider_id(self, provider_id: str) -> bool:
        try:
            await self._identified("instance_exists_by_provider_id", provider_id)
        except InstanceNotFound:
            return False
        return True

    async def is_shutdown_by_provider_id(self, provider_id: str) -> bool:
        return (await self._identified("instance_shutdown_by_provider_id", provider_id)).state == "stopped"

    async def zone_by_node_name(self, name: str) -> Zone:
        return _zone_of(await self._named("get_zone_by_node_name", name))

    async def zone_by_provider_id(self, provider_id: str) -> Zone:
        return _zone_of(await self._identified("get_zone_by_provider_id", provider_id))

    async def _named(self, method: str, name: str) -> config.Instance:
        said(method, name)
        return await self._inventory.by_name(name)

    async def _identified(self, method: str, provider_id: str) -> config.Instance:
        said(method, provider_id)
        return await self._inventory.by_id(instance_id(provider_id))


def _is_among(node: core.Node, ids: Collection[str], named: Collection[str]) -> bool:
    try:
        return instance_id(node.spec.provider_id) in ids if node.spec.provider_id else node.name in named
    except errors.Invalid:
        return False


def _zone_of(instance: config.Instance) -> Zone:
    return Zone(instance.zone, instance.region)
