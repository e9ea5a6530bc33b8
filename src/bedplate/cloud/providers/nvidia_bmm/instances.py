"""The machines of BMM as the controllers see them: `Instances` of the provider interface.

In: Nodes. Out: whether a machine exists, is switched off, and what it means for the Node. A Node is found by its
provider ID; without one by its name at the configured site, then by its IP addresses. A Node that cannot be found so is
unknown, but never absent: only an answer about one instance ID is proof (`source`).
"""

from __future__ import annotations

from collections.abc import Sequence

from bedplate.api import core, names
from bedplate.cloud.errors import AmbiguousInstance, CloudError, InstanceNotFound, NoAddresses
from bedplate.cloud.http import errors as http_errors
from bedplate.cloud.instancecache import InstanceCache
from bedplate.cloud.interface import Address, InstanceMetadata, Listing
from bedplate.cloud.node_addresses import parse_node_ips
from bedplate.cloud.providers.nvidia_bmm import metadata, providerid
from bedplate.cloud.providers.nvidia_bmm.api import Api
from bedplate.cloud.providers.nvidia_bmm.config import Config
from bedplate.cloud.providers.nvidia_bmm.models import Instance, Machine
from bedplate.cloud.providers.nvidia_bmm.source import SITE_S, BmmSource, Shelf
from bedplate.core import clock, duration
from bedplate.core import errors as core_errors
from bedplate.core.logging import get_logger

__all__ = ["BmmInstances"]

log = get_logger("cloud.nvidia-bmm")
TYPE_S = 3600.0
MACHINE_S = 24 * 3600.0
NO_ADDRESSES_RETRY_S = 30.0
TERMINATED_GAP_S = 600.0
# The API will not tell, now or later: go on without. Anything else is worth waiting for.
_REFUSALS = (http_errors.NotFound, http_errors.Forbidden, http_errors.Invalid)


class BmmInstances:
    """Machines of one organisation and tenant."""

    def __init__(
        self,
        api: Api,
        source: BmmSource,
        cache: InstanceCache[Instance],
        config: Config,
        time: clock.Clock,
        *,
        terminated_grace_s: float = 0.0,
    ) -> None:
        self._config = config
        self._time = time
        self._terminated_grace_s = terminated_grace_s
        self._terminated: dict[str, tuple[float, float]] = {}
        """Instances seen as Terminated: since when without interruption, and when last."""
        self._source = source
        self._cache = cache
        self._api = api
        self._types = Shelf(self._read_type, keep_s=TYPE_S, time=time)
        self._regions = Shelf(self._read_region, keep_s=SITE_S, time=time)
        self._told: set[str] = set()
        self._machines = Shelf(self._read_machine, keep_s=MACHINE_S, time=time)

    async def exists(self, node: core.Node, *, fresh: bool = False) -> bool:
        """Whether the machine is there. Raises `InstanceNotFound` when it is not, or is listed as Terminated for so
        long that it will not come back."""
        instance = await self._instance(node, fresh=fresh)
        if self._is_over(instance):
            grace = duration.format_duration(self._terminated_grace_s)
            raise InstanceNotFound(
                f"instance {instance.key} is listed as Terminated for more than {grace} "
                "(--node-terminated-grace-period)"
            )
        return True

    def _is_over(self, instance: Instance) -> bool:
        """Note whether the instance is Terminated; whether it has been that for the whole grace period."""
        if not metadata.is_terminated(instance) or self._terminated_grace_s <= 0:
            self._terminated.pop(instance.key, None)
            return False
        now = self._time.monotonic()
        since, last = self._terminated.get(instance.key, (now, now))
        if now - last > TERMINATED_GAP_S:
            # Nobody looked for a while: it may have been anything in between.
            since = now
        self._terminated[instance.key] = (since, now)
        return now - since >= self._terminated_grace_s

    async def is_shutdown(self, node: core.Node, *, fresh: bool = False) -> bool:
        """Whether the machine is there and off; an absent one is the business of `exists`."""
        try:
            return metadata.is_shutdown(await self._instance(node, fresh=fresh))
        except InstanceNotFound:
            log.debug("bmm.absent_is_not_shutdown", node=node.name)
            return False

    def was_absent(self, name: str, within_s: float) -> bool:
        return self._cache.was_absent(name, within_s)

    async def listing(self, nodes: Sequence[core.Node]) -> Listing:
        """Those that are not switched off; a machine that is being taken down shows nothing about the others."""
        instances = [instance for instance in await self._cache.all() if not self._is_known_over(instance)]
        keys, named = {instance.key for instance in instances}, {instance.name for instance in self._ours(instances)}

        def is_among(node: core.Node) -> bool:
            if not node.spec.provider_id:
                return node.name in named
            try:
                return providerid.parse(node.spec.provider_id).instance in keys
            except core_errors.Invalid:
                return False

        there = sum(not metadata.is_shutdown(instance) for instance in instances)
        return Listing(there, frozenset(node.name for node in nodes if is_among(node)))

    def _is_known_over(self, instance: Instance) -> bool:
        since, _ = self._terminated.get(instance.key, (self._time.monotonic(), 0.0))
        return metadata.is_terminated(instance) and 0 < self._terminated_grace_s <= self._time.monotonic() - since

    async def metadata(self, node: core.Node) -> InstanceMetadata | None:
        """What BMM knows of the node's machine; None when names are not to be looked up and it has no provider ID."""
        if not node.spec.provider_id and self._config.node_name_match == "none":
            if node.name not in self._told:
                self._told.add(node.name)
                log.warning("bmm.unnamed_node", node=node.name, reason="node has no provider ID, nodeNameMatch is none")
            return None
        if node.spec.provider_id:
            instance = await self._by_id(node, fresh=False)
        else:
            match = await self._by_name(node)
            if match is None:
                raise InstanceNotFound(
                    f"node {node.name}: node has no provider ID, and {self._where_searched()} has it"
                )
            instance = match
        site_id = instance.site_id or self._config.site_id
        return InstanceMetadata(
            provider_id=node.spec.provider_id or self._provider_id(instance, site_id),
            instance_type=await self._type(instance),
            addresses=self._addresses(node, instance),
            zone=metadata.zone(site_id, self._config),
            region=await self._region(site_id),
            labels=metadata.labels(instance, await self._machine(instance), self._config),
        )

    # Finding the instance

    async def _instance(self, node: core.Node, *, fresh: bool) -> Instance:
        """The node's machine, for a question about life and death."""
        if node.spec.provider_id:
            return await self._by_id(node, fresh=fresh)
        instance = await self._by_name(node) if self._config.node_name_match != "none" else None
        if instance is None:
            # Not InstanceNotFound: a search that finds nothing says nothing about a machine we cannot name.
            raise CloudError(f"node {node.name}: node has no provider ID, and {self._where_searched()} has it")
        try:
            return await self._cache.get(instance.key, fresh=fresh)
        except InstanceNotFound as err:
            # That one is gone, but another of the same name may have come: the node itself is not proven absent.
            raise CloudError(f"node {node.name}: node has no provider ID, and its instance is gone: {err}") from err

    async def _by_id(self, node: core.Node, *, fresh: bool) -> Instance:
        parsed = providerid.parse(node.spec.provider_id)
        if parsed.org != self._config.org:
            raise core_errors.Invalid(f"node {node.name} is of organisation {parsed.org}, not {self._config.org}")
        return await self._cache.get(parsed.instance, fresh=fresh)

    async def _by_name(self, node: core.Node) -> Instance | None:
        """The one instance of the node's name, or of its addresses; None when there is none."""
        if self._config.node_name_match == "instance-name":
            named = self._ours(await self._cache.find(node.name))
            if named:
                return _one(node, named, "its name")
        ips = _node_ips(node)
        if not ips:
            return None
        candidates = self._ours(await self._source.search_ips(ips))
        return _one(node, [candidate for candidate in candidates if _has_ip(candidate, ips)], "its addresses")

    def _ours(self, candidates: Sequence[Instance]) -> list[Instance]:
        """Those of the configured tenant and site: a list may hold others."""
        config = self._config
        is_at_home = [
            candidate
            for candidate in candidates
            if (candidate.site_id or config.site_id).lower() == config.site_id.lower()
        ]
        return [candidate for candidate in is_at_home if candidate.tenant_id == config.tenant_id]

    def _where_searched(self) -> str:
        return f"no instance of tenant {self._config.tenant_id} at site {self._config.site_id}"

    def _provider_id(self, instance: Instance, site_id: str) -> str:
        return str(providerid.ProviderID(self._config.org, self._config.tenant_id, site_id, instance.key))

    # What the instance says

    def _addresses(self, node: core.Node, instance: Instance) -> tuple[Address, ...]:
        addresses = metadata.addresses(metadata.instance_ips(instance), node.name, self._config)
        if addresses or not _is_uninitialised(node):
            return addresses
        provided = node.metadata.annotations.get(names.ANNOTATION_PROVIDED_NODE_IP)
        if provided is None:
            raise NoAddresses(
                f"node {node.name}: instance {instance.key} has no addresses yet", after_s=NO_ADDRESSES_RETRY_S
            )
        # The kubelet was told its address: that is as good until BMM knows one.
        return metadata.addresses(parse_node_ips(provided), node.name, self._config)

    async def _type(self, instance: Instance) -> str:
        if self._config.instance_type_source == "legacy":
            return metadata.LEGACY_TYPE
        type_id = instance.instance_type_id or ""
        name = await self._types.get(type_id) if type_id else ""
        return metadata.label_value(name) or metadata.label_value(type_id) or metadata.LEGACY_TYPE

    async def _read_type(self, type_id: str) -> str:
        try:
            return (await self._api.instance_type(type_id)).name or ""
        except _REFUSALS as err:
            log.warning("bmm.type_unreadable", instance_type=type_id, reason=str(err))
            return ""

    async def _region(self, site_id: str) -> str:
        is_located = metadata.needs_location(site_id, self._config)
        return metadata.region(site_id, self._config, await self._regions.get(site_id) if is_located else "")

    async def _read_region(self, site_id: str) -> str:
        return metadata.location_region((await self._api.site(site_id)).location)

    async def _machine(self, instance: Instance) -> Machine | None:
        if not instance.machine_id or not {"vendor", "product-name"} & set(self._config.labels):
            return None
        return await self._machines.get(instance.machine_id)

    async def _read_machine(self, machine_id: str) -> Machine | None:
        try:
            return await self._api.machine(machine_id)
        except _REFUSALS as err:
            log.warning("bmm.machine_unreadable", machine=machine_id, reason=str(err))
            return None


def _one(node: core.Node, candidates: Sequence[Instance], by: str) -> Instance | None:
    if len(candidates) > 1:
        ids = ", ".join(sorted(instance.key for instance in candidates))
        raise AmbiguousInstance(
            f"node {node.name}: several instances are found by {by}: {ids}", hint="start the kubelet with --provider-id"
        )
    return candidates[0] if candidates else None


def _node_ips(node: core.Node) -> list[str]:
    """The addresses by which a node may be known: what its kubelet was told, else what it says."""
    provided = node.metadata.annotations.get(names.ANNOTATION_PROVIDED_NODE_IP)
    if provided is not None:
        return [str(ip) for ip in parse_node_ips(provided) if not ip.is_unspecified]
    reported = (metadata.parse_ip(address.address) for address in node.status.addresses if address.type == "InternalIP")
    return [str(ip) for ip in reported if ip is not None]


def _has_ip(instance: Instance, ips: Sequence[str]) -> bool:
    return bool({str(ip) for ip in metadata.instance_ips(instance)} & set(ips))


def _is_uninitialised(node: core.Node) -> bool:
    return any(taint.key == names.TAINT_UNINITIALIZED for taint in node.spec.taints)
