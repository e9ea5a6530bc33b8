"""Instances of Oxide as nodes see them.

In: Nodes. Out: existence, shutdown, metadata. A node is found by its provider ID, else by its name in the project.
Absence is what the API says of this specific instance, and only while the same credentials are known to work: the token
must have been accepted by this process, and the project must be readable at that moment, because Oxide shows what one
may not see as if it were not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from bedplate.api import core
from bedplate.cloud.errors import CloudError, InstanceNotFound
from bedplate.cloud.instancecache import InstanceCache
from bedplate.cloud.interface import Address, InstanceMetadata, Listing
from bedplate.cloud.metrics import InstanceCacheMetrics
from bedplate.cloud.providers.oxide import models, names, ownership, providerid
from bedplate.cloud.providers.oxide.api import Api, Credentials
from bedplate.cloud.providers.oxide.config import LABELS, Config
from bedplate.cloud.providers.oxide.networks import Networks
from bedplate.core import clock, errors

__all__ = ["OxideInstances"]

_DESTROYED = "destroyed"
_GIB = 2**30


class _Source:
    """How the cache asks: one instance, all of the project, those of a name (at most one)."""

    def __init__(self, api: Api, credentials: Credentials) -> None:
        self._api = api
        self._credentials = credentials

    async def get(self, key: str) -> models.Instance:
        instance = await self._api.instance_view(key)
        if instance is None:
            await self._credentials.verify()
            await self._api.project_view()
            raise InstanceNotFound(f"there is no instance {key}")
        if not providerid.same(instance.id, key):
            raise CloudError(f"asked for the instance {key}, the cloud returned {instance.id}")
        return instance

    async def list(self) -> Sequence[models.Instance]:
        return await self._api.instance_list()

    async def search(self, name: str) -> Sequence[models.Instance]:
        instance = await self._api.instance_view(name, is_name=True)
        if instance is None:
            await self._api.project_view()
            return ()
        if instance.name != name:
            raise CloudError(f"asked for the instance named {name}, the cloud returned {instance.name}")
        return (instance,)

    def key(self, instance: models.Instance) -> str:
        return providerid.fold(instance.id)

    def name(self, instance: models.Instance) -> str:
        return instance.name


class OxideInstances:
    """The instances of one project."""

    def __init__(
        self,
        api: Api,
        config: Config,
        credentials: Credentials,
        *,
        time: clock.Clock,
        ttl_s: float,
        metrics: InstanceCacheMetrics,
        expected: Callable[[], int],
    ) -> None:
        self._config = config
        self._source = _Source(api, credentials)
        self._cache = InstanceCache(self._source, provider="oxide", ttl_s=ttl_s, time=time, metrics=metrics)
        self._networks = Networks(api, time, ttl_s, expected)

    async def exists(self, node: core.Node, *, fresh: bool = False) -> bool:
        try:
            instance = await self._find(node, fresh=fresh)
        except InstanceNotFound:
            return False
        if instance.run_state == _DESTROYED and not fresh:
            # A list or cached answer does not prove absence; ask for the instance itself.
            return await self.exists(node, fresh=True)
        return instance.run_state != _DESTROYED

    async def is_shutdown(self, node: core.Node, *, fresh: bool = False) -> bool:
        try:
            instance = await self._find(node, fresh=fresh)
        except InstanceNotFound:
            return True
        return instance.run_state == "stopped" or (instance.run_state == "failed" and not instance.auto_restart_enabled)

    async def metadata(self, node: core.Node) -> InstanceMetadata | None:
        if not node.spec.provider_id and not names.is_legal(node.name):
            raise InstanceNotFound(f"{node.name!r} cannot be the name of an instance")
        instance = await self._find(node, fresh=False)
        interfaces = await self._networks.interfaces(instance.id)
        external = await self._networks.external_ips(instance)
        return InstanceMetadata(
            provider_id=node.spec.provider_id or providerid.format_id(instance.id),
            instance_type=_instance_type(instance),
            addresses=_node_addresses(instance, interfaces, external),
            zone=self._config.zone,
            region=self._config.region,
            labels=_labels(instance, self._config.labels),
        )

    def was_absent(self, name: str, within_s: float) -> bool:
        return not names.is_legal(name) or self._cache.was_absent(name, within_s)

    async def listing(self, nodes: Sequence[core.Node]) -> Listing:
        there = [instance for instance in await self._cache.all() if instance.run_state != _DESTROYED]
        keys, named = {self._source.key(instance) for instance in there}, {instance.name for instance in there}

        def is_among(node: core.Node) -> bool:
            if not node.spec.provider_id:
                return node.name in named
            try:
                return providerid.fold(providerid.instance_id(node.spec.provider_id)) in keys
            except errors.Invalid:
                return False

        return Listing(len(there), frozenset(node.name for node in nodes if is_among(node)))

    def ephemeral_ips(self, instance: str) -> int:
        """How many ephemeral IPs an instance has, as far as is known; asks nobody."""
        return self._networks.ephemeral_ips(instance)

    async def _find(self, node: core.Node, *, fresh: bool) -> models.Instance:
        if node.spec.provider_id:
            return await self._cache.get(providerid.fold(providerid.instance_id(node.spec.provider_id)), fresh=fresh)
        if not names.is_legal(node.name):
            raise CloudError(f"node {node.name}: no provider ID, and its name cannot be that of an instance")
        instances = await self._source.search(node.name) if fresh else await self._cache.find(node.name)
        if not instances:
            raise InstanceNotFound(f"there is no instance named {node.name} in the project")
        return instances[0]


def _node_addresses(
    instance: models.Instance,
    interfaces: Iterable[models.NetworkInterface],
    external: Iterable[models.ExternalIp],
) -> tuple[Address, ...]:
    """The addresses a Node shows, each once: host name, private ones (the primary interface first), external ones.

    Left out are source NAT addresses, which nobody can reach, and floating IPs that serve a Service, which move.
    """
    listed = [Address("Hostname", instance.hostname)] if instance.hostname else []
    # By name, which is unique within an instance: lists come in different orders, and a Node must not change for that.
    for interface in sorted(interfaces, key=lambda item: (not item.primary, item.name)):
        listed += [Address("InternalIP", address) for address in interface.addresses]
    for item in external:
        if item.kind == "ephemeral" or (item.kind == "floating" and not ownership.is_managed_address(item.description)):
            listed.append(Address("ExternalIP", item.ip))
    return tuple(dict.fromkeys(listed))


def _instance_type(instance: models.Instance) -> str:
    """CPUs and whole GiB of memory, such as `4-16`."""
    return f"{instance.ncpus}-{instance.memory // _GIB}"


def _labels(instance: models.Instance, keys: Sequence[str]) -> dict[str, str]:
    """The labels asked for, those that the instance has a value for."""
    values = {"project-id": instance.project_id, "cpu-platform": instance.cpu_platform or ""}
    return {LABELS[name]: values[name] for name in keys if values.get(name)}
