"""The provider `nvidia-bmm`, put together.

In: what the manager gives a provider (`registry.Setting`). Out: a `Provider` with machines and nothing else: BMM has no
load balancers or routes. The credentials are checked at the start by asking for the tenant they speak for; when that
fails the manager runs on, `/readyz` says why, and the check is repeated.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence

from bedplate.api import core, meta
from bedplate.cloud.doctor import Finding, problem
from bedplate.cloud.errors import CloudError
from bedplate.cloud.http import errors as http_errors
from bedplate.cloud.http import tokens
from bedplate.cloud.http.client import Client, Options
from bedplate.cloud.http.oidc import ClientCredentials, OidcOptions
from bedplate.cloud.http.transport import Reach
from bedplate.cloud.instancecache import InstanceCache
from bedplate.cloud.interface import Instances, LegacyInstances, LoadBalancers, Routes
from bedplate.cloud.metrics import CloudApiMetrics, InstanceCacheMetrics
from bedplate.cloud.providers.nvidia_bmm import doctor, providerid
from bedplate.cloud.providers.nvidia_bmm.api import Api
from bedplate.cloud.providers.nvidia_bmm.config import Config, TokenFrom, load, oddities
from bedplate.cloud.providers.nvidia_bmm.instances import BmmInstances
from bedplate.cloud.providers.nvidia_bmm.source import BmmSource
from bedplate.cloud.registry import Setting
from bedplate.core import errors, metrics
from bedplate.core.logging import get_logger

__all__ = ["NvidiaBmm", "create"]

log = get_logger("cloud.nvidia-bmm")
# How long a check may take, and how long until the next one: a probe of /readyz must neither hang nor hammer.
CHECK_S = 10.0
CHECK_AGAIN_S = 15.0


class NvidiaBmm:
    """One organisation and tenant of BMM."""

    name = providerid.SCHEME
    schemes: tuple[str, ...] = (providerid.SCHEME, providerid.ALIAS)
    has_cluster_id = True
    legacy: LegacyInstances | None = None
    load_balancers: LoadBalancers | None = None
    routes: Routes | None = None

    def __init__(self, setting: Setting, config: Config) -> None:
        self.config = config
        self._setting = setting
        self._client, self._tokens = _client(setting, config)
        self._api = Api(self._client, config)
        source = BmmSource(self._api, config, self._sites, setting.time)
        cache = InstanceCache(
            source,
            provider=self.name,
            ttl_s=setting.cache_ttl_s,
            time=setting.time,
            metrics=metrics.shared(setting.registry, InstanceCacheMetrics),
        )
        self.instances: Instances | None = BmmInstances(
            self._api, source, cache, config, setting.time, terminated_grace_s=setting.terminated_grace_s
        )
        self._unready = "the credentials have not been checked yet"
        self._check_again_at = float("-inf")
        self._checking = asyncio.Lock()

    async def start(self) -> None:
        """Say what is odd in the configuration, and check the credentials once; a failure is told, not raised."""
        for oddity in oddities(self.config):
            log.warning("bmm.config", oddity=oddity)
        await self._check()
        if self._unready:
            log.warning("bmm.not_ready", reason=self._unready)
            self._tell(self._unready)
        else:
            await self._log_version()

    async def close(self) -> None:
        await self._client.close()

    def is_foreign(self, provider_id: str) -> str:
        try:
            parsed = providerid.parse(provider_id)
        except errors.Invalid:
            # Of our scheme, but not a valid ID: its use reports what is wrong with it.
            return ""
        if parsed.org == self.config.org:
            return ""
        return (
            f"its provider ID {provider_id!r} is of organisation {parsed.org}, this manager works for {self.config.org}"
        )

    async def diagnose(self, nodes: Sequence[core.Node]) -> list[Finding]:
        """For the doctor: what keeps this cloud from serving these nodes."""
        assert self.instances is not None
        try:
            token = await self._tokens.current()
        except tokens.TokenUnavailable as err:
            return [problem("credentials", self.name, f"there is no token: {err}", "check where the token comes from")]
        now = self._setting.time.now()
        return await doctor.diagnose(self._api, self.instances, self.config, token, nodes, now)

    async def check_ready(self) -> None:
        """Raise until the credentials have been verified once; try again from time to time."""
        if self._unready and not self._checking.locked() and self._setting.time.monotonic() >= self._check_again_at:
            await self._check()
            if not self._unready:
                log.info("bmm.ready", org=self.config.org)
        if self._unready:
            raise errors.Unavailable(f"nvidia-bmm: {self._unready}")

    async def _check(self) -> None:
        async with self._checking:
            try:
                async with asyncio.timeout(CHECK_S):
                    tenant = await self._api.current_tenant()
            except TimeoutError:
                self._unready = f"no answer from {self.config.endpoint} within {CHECK_S:.0f}s"
            except CloudError as err:
                self._unready = _explained(err, self.config)
            else:
                self._unready = ""
                if tenant.id != self.config.tenant_id:
                    text = f"the token belongs to tenant {tenant.id}, but tenantId is {self.config.tenant_id}"
                    log.warning("bmm.other_tenant", reason=text)
                    self._tell(text)
            self._check_again_at = self._setting.time.monotonic() + CHECK_AGAIN_S

    async def _log_version(self) -> None:
        try:
            async with asyncio.timeout(CHECK_S):
                version = await self._api.server_version()
        except (CloudError, TimeoutError) as err:
            log.debug("bmm.no_version", reason=str(err))
        else:
            log.info("bmm.connected", endpoint=self.config.endpoint, org=self.config.org, server_version=version)

    def _tell(self, text: str) -> None:
        """An event where operators look for those of the cluster's own parts."""
        if self._setting.recorder is not None:
            regarding = meta.ObjectReference(api_version="v1", kind="Namespace", name="kube-system")
            self._setting.recorder.event(regarding, "Warning", "CloudCredentials", f"nvidia-bmm: {text}"[:1000])

    def _sites(self) -> Iterator[str]:
        """The sites that nodes of this organisation name in their provider IDs."""
        for node in self._setting.nodes:
            if node.spec.provider_id.startswith((f"{providerid.SCHEME}://", f"{providerid.ALIAS}://")):
                try:
                    parsed = providerid.parse(node.spec.provider_id)
                except errors.Invalid:
                    continue
                if parsed.org == self.config.org:
                    yield parsed.site


def _explained(err: CloudError, config: Config) -> str:
    if isinstance(err, http_errors.Forbidden):
        return f"the credentials do not allow organisation {config.org} (check orgName, tenantId and the role): {err}"
    return str(err)


def _client(setting: Setting, config: Config) -> tuple[Client, tokens.TokenSource]:
    counted = metrics.shared(setting.registry, CloudApiMetrics)
    options = Options(
        provider=providerid.SCHEME,
        endpoint=config.endpoint,
        reach=Reach(config.ca_file, config.is_insecure, setting.environ),
        version=setting.version,
        qps=setting.qps,
        burst=setting.burst,
        timeout_s=setting.timeout_s,
        is_dry_run=setting.is_dry_run,
        guard=setting.guard,
    )
    source = _token_source(config.token, options, setting, counted)
    return Client(options, source, metrics=counted, time=setting.time), source


def _token_source(
    origin: TokenFrom, options: Options, setting: Setting, counted: CloudApiMetrics
) -> tokens.TokenSource:
    def reloads(result: str) -> None:
        counted.reloaded(providerid.SCHEME, result)

    if origin.oidc is not None:
        oidc = origin.oidc
        return ClientCredentials(
            OidcOptions(oidc.token_url, oidc.client_id, oidc.client_secret, oidc.client_secret_file, oidc.scopes),
            options.reach,
            time=setting.time,
            rng=random.Random(),
            reloads=reloads,
            user_agent=options.user_agent,
        )
    if origin.file is not None:
        return tokens.TokenFile(origin.file, reloads=reloads)
    if origin.config_file is not None:
        return tokens.TokenFile(origin.config_file, tokens.yaml_key("token"), reloads)
    return tokens.FixedToken(origin.value)


def create(setting: Setting) -> NvidiaBmm:
    """The provider; raises `Invalid` with every problem of the configuration."""
    return NvidiaBmm(setting, load(setting.config, setting.environ))
