"""Makes `Instances` out of `LegacyInstances`: the old interface, asked by provider ID first and then by name.

In: calls of the controllers with a Node. Out: calls of the old interface. It keeps nothing: every answer is fresh, and
it never has a complete list.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from bedplate.api import core
from bedplate.cloud.errors import CloudError, InstanceNotFound, NotImplementedByCloud
from bedplate.cloud.interface import InstanceMetadata, LegacyInstances, Listing, Zone

__all__ = ["AdaptedInstances"]

T = TypeVar("T")


class AdaptedInstances:
    """The instances of a provider that offers the old interface alone."""

    def __init__(self, provider_name: str, legacy: LegacyInstances) -> None:
        self._provider = provider_name
        self._legacy = legacy

    async def exists(self, node: core.Node, *, fresh: bool = False) -> bool:
        """By provider ID; a node without one is looked up by name, which may raise `InstanceNotFound`."""
        return await self._legacy.exists_by_provider_id(await self._provider_id(node))

    async def is_shutdown(self, node: core.Node, *, fresh: bool = False) -> bool:
        """A provider that cannot tell says no."""
        try:
            return await self._legacy.is_shutdown_by_provider_id(await self._provider_id(node))
        except NotImplementedByCloud:
            return False

    async def metadata(self, node: core.Node) -> InstanceMetadata | None:
        """Addresses, type and zone, each by provider ID and, where that fails, by name."""
        provider_id = await self._provider_id(node)
        old = self._legacy
        addresses = await self._ask(
            "addresses", node, provider_id, old.node_addresses_by_provider_id, old.node_addresses
        )
        type_ = await self._ask("instance type", node, provider_id, old.instance_type_by_provider_id, old.instance_type)
        return InstanceMetadata(provider_id, type_, tuple(addresses), *await self._zone(node, provider_id))

    def was_absent(self, name: str, within_s: float) -> bool:
        """Never known: the old interface has no list."""
        return False

    async def listing(self, nodes: Sequence[core.Node]) -> Listing:
        """The old interface has no list."""
        raise NotImplementedByCloud(f"{self._provider} cannot list its machines")

    async def _zone(self, node: core.Node, provider_id: str) -> tuple[str, str]:
        try:
            zone = await self._ask(
                "zone", node, provider_id, self._legacy.zone_by_provider_id, self._legacy.zone_by_node_name
            )
        except NotImplementedByCloud:
            zone = Zone()
        return zone.failure_domain, zone.region

    async def _provider_id(self, node: core.Node) -> str:
        if node.spec.provider_id:
            return node.spec.provider_id
        return f"{self._provider}://{await self._legacy.instance_id(node.name)}"

    async def _ask(
        self,
        what: str,
        node: core.Node,
        provider_id: str,
        by_provider_id: Callable[[str], Awaitable[T]],
        by_name: Callable[[str], Awaitable[T]],
    ) -> T:
        try:
            return await by_provider_id(provider_id)
        except Exception as err:
            first = err
        try:
            return await by_name(node.name)
        except Exception as second:
            raise _both(what, node, first, second) from second


def _both(what: str, node: core.Node, first: Exception, second: Exception) -> Exception:
    """One error with both causes; absent or not offered only when both say so."""
    causes = [str(err) or type(err).__name__ for err in (first, second)]
    text = f"no {what} of node {node.name}: by provider ID: {causes[0]}; by name: {causes[1]}"
    for kind in (InstanceNotFound, NotImplementedByCloud):
        if isinstance(first, kind) and isinstance(second, kind):
            return kind(text)
    return CloudError(text, retry_after_s=getattr(second, "retry_after_s", None))
