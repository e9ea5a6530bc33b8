"""Everything put together: providers, caches, controllers, leader election, serving.

In: options, environment, a clock. Out: `Assembly`, whose `run` is the whole program, in the order of §7.2: connection,
providers, port, leader election, controllers; and in the reverse order when it stops.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from bedplate import __version__
from bedplate.api.resources import ENDPOINT_SLICES, NODES, SERVICES, ResourceRef
from bedplate.cloud import registry as providers
from bedplate.cloud.interface import Provider
from bedplate.cloud.manager import connection, leading, port, selection
from bedplate.cloud.manager.metrics import ProcessMetrics, WebhookMetrics
from bedplate.cloud.manager.options import Options
from bedplate.cloud.manager.serving import ManagerServer
from bedplate.cloud.manager.wiring import Caches, Recorders, Wiring
from bedplate.cloud.routing import Clouds
from bedplate.core import clock, errors
from bedplate.core.metrics import shared
from bedplate.kube.client import Client
from bedplate.runtime.cache import Cache
from bedplate.runtime.events import EventRecorder
from bedplate.runtime.leaderelection import Elector, Timing
from bedplate.runtime.manager import Manager
from bedplate.runtime.reflector import Reflector

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
        is_dry_run=generic.dry_run,
        cluster_name=generic.cluster_name,
        version=__version__,
        **more,
    )
    chosen, _ = selection.choose_clouds(generic.cloud_provider, generic.cloud_config, providers.names())
    made = [providers.create(one.name, dataclasses.replace(setting, config=one.config)) for one in chosen]
    return Clouds(made, time=setting.time)


class Assembly:
    """One manager. `run` ends when it is cancelled, and raises when a part fails or leadership is lost."""

    def __init__(self, options: Options, environ: Mapping[str, str], *, time: clock.Clock | None = None) -> None:
        self.options = options
        self.environ = environ
        self.time = time if time is not None else clock.SystemClock()
        self.registry = CollectorRegistry()
        self.caches = Caches()
        self.clouds = Clouds([])
        self.elector: Elector | None = None
        self.server: ManagerServer | None = None
        self._filled: list[Cache[Any]] = []
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        shared(self.registry, WebhookMetrics)

    def guard(self) -> None:
        """Raise unless this process may write now (S8)."""
        if self.elector is not None:
            self.elector.guard()

    @property
    def is_leading(self) -> bool:
        """Whether this process may write now."""
        return self.elector is None or self.elector.is_leading

    async def run(self) -> None:
        """The whole program."""
        config = connection.find(self.options, self.environ)
        clients = connection.Clients(config, self.options, self.guard, self.time, self.registry)
        async with clients, contextlib.AsyncExitStack() as stack:
            reader = await clients.plain()
            identity = leading.ClusterIdentity(reader, self.time, self.caches.services)
            recorders = Recorders(await clients.events(), self.time)
            self._create_clouds(identity, recorders)
            for provider in self.clouds:
                stack.push_async_callback(provider.close)
            lease_recorder = await self._prepare_election(clients)
            manager = Manager(reader, elector=self.elector, recorder=lease_recorder, time=self.time)
            wiring = Wiring(self.options, self.clouds, self.caches, recorders, self.time, self.registry)
            controllers = await wiring.controllers(clients)
            self._reflect(reader, manager, wiring)
            await self._open_port(clients, stack, manager)
            manager.add(self._work(reader, identity, controllers, recorders))
            await manager.run()

    def _create_clouds(self, identity: leading.ClusterIdentity, recorders: Recorders) -> None:
        self.clouds = create_clouds(
            self.options,
            self.environ,
            nodes=self.caches.nodes,
            services=self.caches.services,
            recorder=recorders.get("cloud-provider"),
            guard=self.guard,
            cluster_id=lambda: identity.uid,
            cluster_aliases=lambda: identity.aliases,
            time=self.time,
            registry=self.registry,
        )

    async def _prepare_election(self, clients: connection.Clients) -> EventRecorder | None:
        """Make the candidate, unless there is no election; the recorder of its events."""
        generic = self.options.generic
        if generic.dry_run or not generic.leader_elect:
            return None
        client = await clients.election()
        recorder = EventRecorder(client, LEADER_COMPONENT, time=self.time)
        self.elector = Elector(
            client,
            generic.leader_elect_resource_name,
            generic.leader_elect_resource_namespace,
            timing=Timing(
                generic.leader_elect_lease_duration,
                generic.leader_elect_renew_deadline,
                generic.leader_elect_retry_period,
            ),
            time=self.time,
            registry=self.registry,
            recorder=recorder,
        )
        return recorder

    def _reflect(self, reader: Client, manager: Manager, wiring: Wiring) -> None:
        """Fill the caches that something reads: a program that may not list Services must not wait for them."""
        selector = self.options.generic.node_selector
        wanted: list[tuple[ResourceRef[Any], Cache[Any], str]] = [(NODES, self.caches.nodes, selector)]
        if wiring.has_load_balancers:
            wanted += [(SERVICES, self.caches.services, ""), (ENDPOINT_SLICES, self.caches.slices, "")]
        for ref, cache, labels in wanted:
            manager.serve(Reflector(reader, ref, cache, label_selector=labels, time=self.time).run)
            self._filled.append(cache)

    async def _open_port(self, clients: connection.Clients, stack: contextlib.AsyncExitStack, manager: Manager) -> None:
        """Open the port before anybody is elected; one that is taken ends the program here."""
        if not self.options.secure_serving.secure_port:
            return
        prepared = await port.prepare(self.options, self.environ, clients, self.registry, self.time)
        self.server = prepared.server
        if self.elector is not None:
            self.server.add_live("leaderElection", self.elector.check)
        self.server.add_ready("caches", self._check_caches)
        for provider in self.clouds:
            self.server.add_ready(f"cloud-{provider.name}", self._credentials_check(provider))
        await stack.enter_async_context(self.server)
        for task in prepared.tasks:
            manager.serve(task)

    def _check_caches(self) -> None:
        # Without EndpointSlices, which the originals' roles do not allow to read, only Local Services wait.
        if not all(cache.synced.is_set() for cache in self._filled if cache is not self.caches.slices):
            raise errors.Unavailable("the caches are not filled yet")

    def _credentials_check(self, provider: Provider) -> Callable[[], Awaitable[None]]:
        async def check() -> None:
            if self.is_leading:
                await provider.check_ready()

        return check

    def _work(
        self,
        reader: Client,
        identity: leading.ClusterIdentity,
        controllers: list[leading.Started],
        recorders: Recorders,
    ) -> leading.Work:
        resync = leading.Resync(self._filled, self.options.generic.min_resync_period, self.time)

        def started(name: str) -> None:
            if self.server is not None:
                self.server.add_live(name, lambda: None)

        return leading.Work(
            client=reader,
            identity=identity,
            providers=list(self.clouds),
            controllers=controllers,
            helpers=[*recorders.parts(), resync],
            start_interval_s=self.options.generic.controller_start_interval,
            metrics=shared(self.registry, ProcessMetrics),
            on_started=started,
            time=self.time,
        )
