"""Floating IPs of this cluster whose Service is gone: counted, told, and deleted only when configured so.

In: the project's floating IPs and the cluster's Services. Out: a metric, a log line for each new one, and, with
`loadBalancer.deleteOrphans`, their deletion. Two scans in a row must agree before one is deleted, and it is read again
before that. Retained ones have no owner and stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Gauge

from bedplate.api import core
from bedplate.cloud.providers.oxide import models, ownership
from bedplate.cloud.providers.oxide.api import Api
from bedplate.cloud.providers.oxide.carrying import Carrier, Seen
from bedplate.cloud.registry import Setting
from bedplate.core import errors
from bedplate.core.logging import get_logger
from bedplate.core.metrics import shared

__all__ = ["PERIOD_S", "OrphanMetrics", "Orphans", "find"]

log = get_logger("cloud.oxide")
PERIOD_S = 600.0


class OrphanMetrics:
    """How many floating IPs were left behind."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.count = Gauge(
            "ccm_oxide_orphaned_floating_ips",
            "Floating IPs that carry this cluster's record and whose Service no longer exists.",
            registry=registry,
        )


def find(
    clusters: frozenset[str], services: Iterable[core.Service], ips: Sequence[models.FloatingIp]
) -> list[models.FloatingIp]:
    """Those that belong to this cluster, by any of its ids, and to no Service that it has."""
    alive = {item.metadata.uid for item in services}
    orphans = []
    for item in ips:
        record = ownership.parse(item.description)
        if record is None or record.role == "retained" or record.owner.cluster not in clusters:
            continue
        if record.owner.service not in alive:
            orphans.append(item)
    return orphans


class Orphans:
    """The scan, and what it remembers of the last one."""

    def __init__(self, api: Api, setting: Setting, carrier: Carrier, *, deletes: bool) -> None:
        self._api = api
        self._setting = setting
        self._carrier = carrier
        self._deletes = deletes
        self._metrics = shared(setting.registry, OrphanMetrics)
        self._last: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Scan every ten minutes without end; a scan that fails is followed by the next one."""
        await self._setting.services.synced.wait()
        while True:
            try:
                await self.scan()
            except errors.BedplateError as err:
                log.warning("oxide.orphans.unknown", reason=str(err))
            except Exception:
                # A look for what was left behind is not worth the work of the provider that looks.
                log.exception("oxide.orphans.bug")
            await self._setting.time.sleep(PERIOD_S)

    async def scan(self) -> list[models.FloatingIp]:
        """Look once; returns those that are orphans now."""
        cluster = self._setting.cluster_id()
        if not cluster or not self._setting.services.synced.is_set():
            return []
        seen = Seen(await self._api.floating_ip_list())
        # The Services are read after the list: one created meanwhile is known, and its floating IP no orphan.
        orphans = find(self._setting.cluster_aliases() | {cluster}, self._setting.services, seen.ips)
        self._metrics.count.set(len(orphans))
        for ip in orphans:
            if ip.id not in self._last:
                log.warning("oxide.orphan", floating_ip=ip.name, address=ip.ip, description=ip.description)
        confirmed = [ip for ip in orphans if ip.id in self._last]
        self._last = frozenset(ip.id for ip in orphans)
        if self._deletes:
            for ip in confirmed:
                await self._delete(ip, seen)
        return orphans

    async def _delete(self, ip: models.FloatingIp, seen: Seen) -> None:
        record = ownership.parse(ip.description)
        if record is None or any(record.owner.service == service.metadata.uid for service in self._setting.services):
            return
        log.warning("oxide.orphan.deleting", floating_ip=ip.name, address=ip.ip)
        await self._carrier.remove(record.owner, ip, seen)
