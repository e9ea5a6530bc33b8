"""The manager put together: providers, caches, controllers, the HTTPS port.

In: options, environment, a clock. Out: `Assembly`, whose `run` is the whole program, in this order: connection,
providers, an API server that answers, port, leader election, controllers; and in the reverse order when it stops.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from bedplate import __version__
from bedplate.api.resources import ENDPOINT_SLICES, NODES, SERVICES
from bedplate.cloud import registry as providers
from bedplate.cloud.interface import Provider
from bedplate.cloud.manager import connection, leading, selection, serving
from bedplate.cloud.manager.metrics import ProcessMetrics, WebhookMetrics
from bedplate.cloud.manager.options import Options
from bedplate.cloud.manager.serving import ManagerServer
from bedplate.cloud.manager.wiring import Caches, Wiring, event_account
from bedplate.cloud.routing import Clouds
from bedplate.core import clock, errors
from bedplate.core.metrics import shared
from bedplate.kube.client import Client
from bedplate.kube.config import ClientConfig
from bedplate.program import assembly as program
from bedplate.program.assembly import Lease, Parts
from bedplate.runtime.cache import Cache
from bedplate.runtime.events import Recorders
from bedplate.runtime.leaderelection import Timing
from bedplate.runtime.manager import Leading, Manager

__all__ = ["Assembly", "create_clouds"]

LEADER_COMPONENT = "cloud-controller-manager"


def create_clouds(options: Options, environ: Mapping[str, str], **more: Any) -> Clouds:
    """The providers that were asked for, each with its own file and limits. `more`: further fields of their `Setting`.

    Raises with every problem of a provider's configuration; nothing is asked of a cloud here.
    """
    generic, cloud = options.generic, options.cloud
    setting = providers.Setting(
        config=None,
        environ=environ,
        qps=cloud.cloud_api_qps,
        burst=cloud.cloud_api_burst,
        timeout_s=cloud.cloud_api_timeout,
        cache_ttl_s=cloud.cloud_cache_ttl,
        terminated_grace_s=options.lifecycle.node_terminated_grace_period,
        is_dry_run=generic.dry_run,
        cluster_name=generic.cluster_name,
        version=__version__,
        **more,
    )
    chosen, _ = selection.choose_clouds(generic.cloud_provider, generic.cloud_config, providers.names())
    clouds = [providers.create(cloud.name, dataclasses.replace(setting, config=cloud.config)) for cloud in chosen]
    return Clouds(clouds, time=setting.time)


class Assembly(program.Assembly[Options]):
    """One manager."""

    def __init__(self, options: Options, environ: Mapping[str, str], *, time: clock.Clock | None = None) -> None:
        super().__init__(options, environ, time=time)
        self.caches = Caches()
        self.clouds = Clouds([])
        self.server: ManagerServer | None = None
        self._filled: list[Cache[Any]] = []
        shared(self.registry, WebhookMetrics)

    @property
    def is_dry_run(self) -> bool:
        return self.options.generic.dry_run

    def connection(self) -> ClientConfig:
        return connection.find(self.options, self.environ)

    def lease(self) -> Lease | None:
        generic = self.options.generic
        if not generic.leader_elect:
            return None
        timing = Timing(
            generic.leader_elect_lease_duration, generic.leader_elect_renew_deadline, generic.leader_elect_retry_period
        )
        return Lease(
            generic.leader_elect_resource_name, generic.leader_elect_resource_namespace, LEADER_COMPONENT, timing
        )

    async def assemble(self, parts: Parts) -> None:
        manager, generic = parts.manager, self.options.generic
        identity = leading.ClusterIdentity(parts.reader, self.time, self.caches.services)
        events = await connection.event_client(parts.clients, self.options, event_account(self.options))
        recorders = Recorders(events, self.time)
        self._create_clouds(identity, recorders)
        for provider in self.clouds:
            parts.stack.push_async_callback(provider.close)
        await leading.wait_for_answer(parts.reader, self.time)
        wiring = Wiring(self.options, self.clouds, self.caches, recorders, self.time, self.registry)
        controllers = await wiring.controllers(parts.clients)
        self._fill(manager, wiring)
        await self._open_port(parts)
        resync = leading.Resync(self._filled, generic.min_resync_period, self.time)
        startup = self._startup(parts.reader, identity, controllers)
        working: list[Leading] = [*recorders.parts(), resync, identity, startup]
        for part in working:
            manager.add(part)

    def _create_clouds(self, identity: leading.ClusterIdentity, recorders: Recorders) -> None:
        self.clouds = create_clouds(
            self.options,
            self.environ,
            nodes=self.caches.nodes,
            services=self.caches.services,
            recorder=recorders.get("cloud-provider"),
            guard=self.leadership.guard,
            cluster_id=lambda: identity.uid,
            cluster_aliases=lambda: identity.aliases,
            time=self.time,
            registry=self.registry,
        )

    def _fill(self, manager: Manager, wiring: Wiring) -> None:
        """Fill the caches that something reads: a program that may not list Services must not wait for them."""
        manager.fill(self.caches.nodes, NODES, label_selector=self.options.generic.node_selector)
        self._filled.append(self.caches.nodes)
        if wiring.has_load_balancers:
            manager.fill(self.caches.services, SERVICES)
            manager.fill(self.caches.slices, ENDPOINT_SLICES)
            self._filled += [self.caches.services, self.caches.slices]

    async def _open_port(self, parts: Parts) -> None:
        """Open the port before anybody is elected; one that is in use ends the program here."""
        if not self.options.secure_serving.secure_port:
            return
        prepared = await serving.prepare(self.options, self.environ, parts.clients, self.registry, self.time)
        self.server = prepared.server
        if self.elector is not None:
            self.server.add_live("leaderElection", self.elector.check)
        self.server.add_ready("caches", self._check_caches)
        for provider in self.clouds:
            self.server.add_ready(f"cloud-{provider.name}", self._credentials_check(provider))
        await parts.stack.enter_async_context(self.server)
        for task in prepared.tasks:
            parts.manager.serve(task)

    def _check_caches(self) -> None:
        # Without EndpointSlices, which the originals' roles do not allow to read, only Local Services wait.
        if not all(cache.synced.is_set() for cache in self._filled if cache is not self.caches.slices):
            raise errors.Unavailable("the caches are not filled yet")

    def _credentials_check(self, provider: Provider) -> Callable[[], Awaitable[None]]:
        async def check() -> None:
            if self.leadership.is_leading:
                await provider.check_ready()

        return check

    def _startup(
        self, reader: Client, identity: leading.ClusterIdentity, controllers: list[leading.Started]
    ) -> leading.Startup:
        def started(name: str) -> None:
            if self.server is not None:
                self.server.add_live(name, lambda: None)

        return leading.Startup(
            client=reader,
            identity=identity,
            providers=list(self.clouds),
            controllers=controllers,
            start_interval_s=self.options.generic.controller_start_interval,
            metrics=shared(self.registry, ProcessMetrics),
            on_started=started,
            time=self.time,
        )
