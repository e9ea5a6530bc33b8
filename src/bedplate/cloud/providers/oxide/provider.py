"""The provider `oxide`: everything wired together.

In: a `Setting`. Out: a `Provider` with instances and load balancers. Nothing is asked of the cloud before `start`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from bedplate.api import core
from bedplate.cloud.doctor import Finding
from bedplate.cloud.errors import CloudError
from bedplate.cloud.http.client import Client, Options
from bedplate.cloud.http.transport import Reach
from bedplate.cloud.interface import Instances, LegacyInstances, LoadBalancers, Routes
from bedplate.cloud.metrics import CloudApiMetrics, InstanceCacheMetrics
from bedplate.cloud.providers.oxide import config, doctor, providerid
from bedplate.cloud.providers.oxide.api import Api, Credentials
from bedplate.cloud.providers.oxide.balancers import FloatingIpBalancers
from bedplate.cloud.providers.oxide.carrying import Carrier
from bedplate.cloud.providers.oxide.instances import OxideInstances
from bedplate.cloud.providers.oxide.orphans import Orphans
from bedplate.cloud.providers.oxide.seats import Refusals, Seats
from bedplate.cloud.registry import Setting
from bedplate.core.logging import get_logger
from bedplate.core.metrics import shared

__all__ = ["Oxide", "create"]

log = get_logger("cloud.oxide")


class Oxide:
    """One project of one silo."""

    name = "oxide"
    schemes: tuple[str, ...] = (providerid.SCHEME,)
    instances: Instances | None
    load_balancers: LoadBalancers | None
    has_cluster_id = False
    legacy: LegacyInstances | None = None
    routes: Routes | None = None

    def __init__(self, setting: Setting, settings: config.Config) -> None:
        metrics = shared(setting.registry, CloudApiMetrics)
        self._client = Client(
            Options(
                provider=self.name,
                endpoint=settings.host,
                reach=Reach(settings.ca_file, settings.is_insecure, setting.environ),
                version=setting.version,
                headers={"API-Version": settings.api_version},
                qps=setting.qps,
                burst=setting.burst,
                timeout_s=setting.timeout_s,
                is_dry_run=setting.is_dry_run,
                guard=setting.guard,
            ),
            settings.token_source(lambda result: metrics.reloaded(self.name, result)),
            metrics=metrics,
            time=setting.time,
        )
        self._settings = settings
        self._api = api = Api(self._client, settings.project)
        refusals = Refusals(setting.time)
        carrier = Carrier(api, setting.time, refusals, is_dry_run=setting.is_dry_run)
        self._credentials = Credentials(api, setting.time, settings.project)
        instances = OxideInstances(
            api,
            settings,
            self._credentials,
            time=setting.time,
            ttl_s=setting.cache_ttl_s,
            metrics=shared(setting.registry, InstanceCacheMetrics),
            expected=lambda: len(setting.nodes),
        )
        seats = Seats(lambda: setting.services, instances.ephemeral_ips, refusals)
        self.instances = self._instances = instances
        self.load_balancers = FloatingIpBalancers(api, setting, carrier, seats)
        self._orphans = Orphans(api, setting, carrier, deletes=settings.deletes_orphans)
        self._scan: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Check token and project once; a failure is reported and retried with every readiness probe."""
        try:
            await self._credentials.verify()
        except CloudError as err:
            log.warning("oxide.not_verified", reason=str(err), next=err.hint or "tried again")
        if self._scan is None:
            self._scan = asyncio.create_task(self._orphans.run(), name="oxide-orphans")

    async def close(self) -> None:
        if self._scan is not None:
            self._scan.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._scan
            self._scan = None
        await self._client.close()

    def is_foreign(self, provider_id: str) -> str:
        """Every provider ID of the scheme is ours: there is one silo, and no more in the ID than the instance."""
        return ""

    async def diagnose(self, nodes: Sequence[core.Node]) -> list[Finding]:
        """For the doctor: what keeps this cloud from serving these nodes."""
        return await doctor.diagnose(self._api, self._instances, self._settings, nodes)

    async def check_ready(self) -> None:
        await self._credentials.verify()


def create(setting: Setting) -> Oxide:
    """The provider; raises `Invalid` with every problem of its configuration."""
    return Oxide(setting, config.load(setting.environ, setting.config))
