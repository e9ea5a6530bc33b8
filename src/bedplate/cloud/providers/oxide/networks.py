"""Private and external addresses of instances, read with as few calls as the API allows.

In: an instance. Out: its network interfaces and external IPs. Private addresses come from one list per subnet once
five instances have been asked for within a TTL. For external ones there is no list: one call per instance the first
time; later only when the instance's `time_modified` changed, and for the tenth that was read longest ago, so that in
ten refreshes every one has been looked at again. A list says nothing of an instance that is not in it: that one is
asked for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bedplate.cloud.errors import CloudError
from bedplate.cloud.http import errors as http_errors
from bedplate.cloud.instancecache import LIST_FROM, SingleFlight
from bedplate.cloud.providers.oxide import models, providerid
from bedplate.cloud.providers.oxide.api import Api
from bedplate.core import clock
from bedplate.core.logging import get_logger

__all__ = ["Networks"]

log = get_logger("cloud.oxide")
MANY_SUBNETS = 20
ROTATION = 10
BULK_PAUSE_S = 600.0
_COMMON_FATE = (
    http_errors.Transport,
    http_errors.Unavailable,
    http_errors.RateLimited,
    http_errors.Unauthorized,
)
Interfaces = tuple[models.NetworkInterface, ...]


@dataclass(frozen=True, slots=True)
class _Read:
    """What an instance's external IPs were, when it was as of `modified`."""

    modified: str
    ips: tuple[models.ExternalIp, ...]
    at: float


class Networks:
    """What is known of instances' addresses. `expected` says how many instances are of interest."""

    def __init__(self, api: Api, time: clock.Clock, ttl_s: float, expected: Callable[[], int]) -> None:
        self._api = api
        self._time = time
        self._ttl_s = ttl_s
        self._expected = expected
        self._flights = SingleFlight()
        self._interfaces: dict[str, tuple[Interfaces, float]] = {}
        self._asked: dict[str, float] = {}
        self._bulk: Mapping[str, Interfaces] = {}
        self._bulk_until = self._no_bulk_before = float("-inf")
        self._external: dict[str, _Read] = {}
        self._due: set[str] = set()

    async def interfaces(self, instance: str) -> Interfaces:
        """The network interfaces of an instance."""
        key = providerid.fold(instance)
        if (known := self._known(key)) is not None:
            return known
        is_list_allowed = self._time.monotonic() >= max(self._bulk_until, self._no_bulk_before)
        if self._count_asked(key) >= LIST_FROM and is_list_allowed:
            await self._flights.run("bulk", self._read_bulk)
            if (known := self._known(key)) is not None:
                return known
        return await self._flights.run(("interfaces", key), lambda: self._read_interfaces(key))

    async def external_ips(self, instance: models.Instance) -> tuple[models.ExternalIp, ...]:
        """The external IPs of an instance."""
        key = providerid.fold(instance.id)
        read = self._external.get(key)
        if read is not None and read.modified == instance.time_modified and not self._is_due(key, read):
            return read.ips
        # Taken out before the call, so that the next one who asks meanwhile does not ask the cloud as well.
        self._due.discard(key)
        try:
            return await self._flights.run(("external", key), lambda: self._read_external(key, instance))
        except CloudError:
            if read is not None:
                self._due.add(key)
            raise

    def ephemeral_ips(self, instance: str) -> int:
        """How many ephemeral IPs an instance has, as far as is known."""
        read = self._external.get(providerid.fold(instance))
        return 0 if read is None else sum(ip.kind == "ephemeral" for ip in read.ips)

    def _known(self, key: str) -> Interfaces | None:
        now = self._time.monotonic()
        if now < self._bulk_until and key in self._bulk:
            return self._bulk[key]
        interfaces, until = self._interfaces.get(key, ((), float("-inf")))
        return interfaces if now < until else None

    def _is_due(self, key: str, read: _Read) -> bool:
        now = self._time.monotonic()
        if now < self._bulk_until and key in self._bulk:
            return key in self._due
        return now >= read.at + self._ttl_s

    async def _read_interfaces(self, key: str) -> Interfaces:
        interfaces = tuple(await self._api.instance_network_interface_list(key))
        now = self._time.monotonic()
        self._interfaces.pop(key, None)
        self._interfaces[key] = (interfaces, now + self._ttl_s)
        while self._interfaces[first := next(iter(self._interfaces))][1] <= now:
            del self._interfaces[first]
        return interfaces

    async def _read_external(self, key: str, instance: models.Instance) -> tuple[models.ExternalIp, ...]:
        at = self._time.monotonic()
        ips = tuple(await self._api.instance_external_ip_list(key))
        self._external[key] = _Read(instance.time_modified, ips, at)
        return ips

    def _count_asked(self, key: str) -> int:
        """Note the question; how many different ones there were within a TTL."""
        now = self._time.monotonic()
        # Kept in the order of asking, so that the outdated ones stand in front.
        self._asked.pop(key, None)
        self._asked[key] = now
        while self._asked[first := next(iter(self._asked))] <= now - self._ttl_s:
            del self._asked[first]
        return len(self._asked)

    async def _read_bulk(self) -> None:
        """Read all interfaces of the project, subnet by subnet, unless there are too many of these."""
        try:
            subnets = await self._subnets()
            if subnets is None:
                return
            by_instance: dict[str, Interfaces] = {}
            for subnet in subnets:
                for interface in await self._api.vpc_subnet_list_network_interfaces(subnet.id):
                    key = providerid.fold(interface.instance_id)
                    by_instance[key] = (*by_instance.get(key, ()), interface)
        except _COMMON_FATE:
            raise
        except CloudError as err:
            log.warning("oxide.subnets_unusable", reason=str(err), next="one instance at a time")
            self._no_bulk_before = self._time.monotonic() + self._ttl_s
            return
        self._bulk, self._bulk_until = by_instance, self._time.monotonic() + self._ttl_s
        self._rotate()

    async def _subnets(self) -> list[models.Subnet] | None:
        limit = max(MANY_SUBNETS, self._expected())
        vpcs = await self._api.vpc_list()
        subnets: list[models.Subnet] = []
        for vpc in vpcs if len(vpcs) <= limit else ():
            subnets += await self._api.vpc_subnet_list(vpc.id)
        if len(vpcs) > limit or len(subnets) > limit:
            log.info("oxide.subnets_many", vpcs=len(vpcs), subnets=len(subnets), next="one instance at a time")
            self._no_bulk_before = self._time.monotonic() + BULK_PAUSE_S
            return None
        return subnets

    def _rotate(self) -> None:
        """Forget instances that are gone; choose those whose external IPs are read again in this refresh."""
        self._external = {key: read for key, read in self._external.items() if key in self._bulk}
        oldest = sorted(self._external, key=lambda key: self._external[key].at)
        self._due = set(oldest[: max(1, len(oldest) // ROTATION)]) if oldest else set()
