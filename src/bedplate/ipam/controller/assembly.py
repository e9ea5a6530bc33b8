"""`ipam-controller` put together: clients, caches, controllers, election, webhook, endpoints.

In: options, environment, a clock. Out: `Assembly`, whose `run` is the whole program. Probes, metrics and the webhook
are served by every replica from the start; only who leads gives blocks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from bedplate.api import meta
from bedplate.api.resources import NODES
from bedplate.core import clock, errors, logging
from bedplate.ipam import cluster, endpoints
from bedplate.ipam.commonflags import listener
from bedplate.ipam.controller import connection, kinds
from bedplate.ipam.controller.holding import Holding
from bedplate.ipam.controller.kinds import Kind
from bedplate.ipam.controller.neighbours import Neighbours
from bedplate.ipam.controller.options import Options
from bedplate.ipam.controller.pacing import Pace
from bedplate.ipam.controller.podrecords import PodRecords
from bedplate.ipam.controller.pools import PoolController
from bedplate.ipam.controller.statuses import Statuses
from bedplate.ipam.controller.telling import Teller
from bedplate.ipam.planning import Mode
from bedplate.ipam.quarantine import Policy
from bedplate.ipam.webhook import pki
from bedplate.ipam.webhook.certificates import FolderCertificates, SecretCertificates, ServingPair, Source
from bedplate.ipam.webhook.server import WebhookServer
from bedplate.kube.client import Client
from bedplate.runtime.cache import Cache
from bedplate.runtime.events import EventRecorder
from bedplate.runtime.leaderelection import Elector, Timing
from bedplate.runtime.manager import Manager
from bedplate.serving.health import Checks

__all__ = ["LEASE", "PROGRAM", "Assembly"]

log = logging.get_logger("ipam.controller")
PROGRAM = "ipam-controller"
LEASE = "dd1643cf.nvidia.com"


@dataclass(frozen=True, slots=True)
class _Caches:
    nodes: Cache[meta.PartialObject]
    pools: Mapping[str, Cache[Any]]
    """By the name of the kind."""


@dataclass(slots=True)
class _Recording:
    """Writes Events while leading; what is in hand when the work ends is written before the Lease is given back."""

    name: str
    recorder: EventRecorder

    async def run(self) -> None:
        writing = asyncio.ensure_future(self.recorder.run())
        try:
            await asyncio.shield(writing)
        finally:
            if not writing.done():
                await self.recorder.drain(timeout_s=1.5)
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)


class Assembly:
    """One controller. `run` ends when it is cancelled, and raises when a part fails or leadership is lost."""

    def __init__(
        self,
        options: Options,
        environ: Mapping[str, str],
        *,
        time: clock.Clock | None = None,
        timing: Timing | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.options = options
        self.environ = environ
        self.time = time if time is not None else clock.SystemClock()
        self.registry = CollectorRegistry()
        self.elector: Elector | None = None
        self.controllers: list[PoolController[Any]] = []
        self.webhook: WebhookServer | None = None
        self.probes: endpoints.Endpoint | None = None
        self.metrics: endpoints.Endpoint | None = None
        self._timing = timing if timing is not None else Timing()
        self._pace = pace if pace is not None else Pace()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)

    def guard(self) -> None:
        """Raise unless this process may write now."""
        if self.elector is not None:
            self.elector.guard()

    async def run(self) -> None:
        """The whole program."""
        chosen = self.options.controlling
        config = cluster.find(chosen.kubeconfig, self.environ, PROGRAM)
        is_dry_run = self.options.allocating.dry_run
        clients = connection.Clients(config, is_dry_run, self.guard, self.time, self.registry)
        async with clients:
            reader = await clients.plain()
            recorder = await self._prepare_election(clients)
            manager = Manager(reader, elector=self.elector, recorder=recorder, time=self.time)
            caches = self._caches(manager)
            await self._add_controllers(clients, manager, caches)
            if chosen.webhook:
                self._add_webhook(manager, reader, caches)
            self._add_endpoints(manager)
            await manager.run()

    async def _prepare_election(self, clients: connection.Clients) -> EventRecorder | None:
        """Make the candidate, unless there is no election; the recorder of its events."""
        chosen = self.options.controlling
        if not chosen.leader_elect or self.options.allocating.dry_run:
            return None
        client = await clients.election(self._timing.renew_s)
        recorder = EventRecorder(client, PROGRAM, time=self.time)
        self.elector = Elector(
            client,
            LEASE,
            chosen.leader_elect_namespace,
            timing=self._timing,
            time=self.time,
            registry=self.registry,
            recorder=recorder,
        )
        return recorder

    def _caches(self, manager: Manager) -> _Caches:
        namespace = self.options.controlling.ippools_namespace
        pools = {kind.name: manager.cache(kind.ref, namespace=namespace) for kind in kinds.BOTH}
        return _Caches(manager.cache(NODES.partial()), pools)

    async def _add_controllers(self, clients: connection.Clients, manager: Manager, caches: _Caches) -> None:
        client, events = await clients.leading(), await clients.events()
        chosen = self.options.allocating
        mode = Mode(chosen.allocation_mode)
        # The original's way knows nothing that is held back.
        policy = Policy(chosen.quarantine) if mode is Mode.STABLE else Policy.OFF
        holding = Holding(policy, chosen.quarantine_duration, PodRecords(client), self.time)
        neighbours = Neighbours(caches.pools)
        for kind in kinds.BOTH:
            recorder = EventRecorder(events, kind.component, time=self.time)
            made: PoolController[Any] = PoolController(
                kind,
                caches.pools[kind.name],
                caches.nodes,
                Statuses(client, kind.ref, caches.pools[kind.name], self.registry, kind.name),
                holding,
                Teller(recorder),
                neighbours.overlaps,
                mode,
                self._pace,
                self.time,
                self.registry,
            )
            self.controllers.append(made)
            for part in (_Recording(f"events of {kind.component}", recorder), *made.parts()):
                manager.add(part)

    def _add_webhook(self, manager: Manager, client: Client, caches: _Caches) -> None:
        pair, neighbours = ServingPair(), Neighbours(caches.pools)

        def warner(kind: Kind[Any]) -> Any:
            return lambda pool: neighbours.warnings(kind, pool)

        self.webhook = WebhookServer(
            pair,
            self.registry,
            self.options.webhook.webhook_port,
            warner(kinds.IPPOOL),
            warner(kinds.CIDRPOOL),
            time=self.time,
        )
        manager.serve(self._certificates(pair, client).run)
        manager.serve(self.webhook.run)

    def _certificates(self, pair: ServingPair, client: Client) -> Source:
        chosen, namespace = self.options.webhook, self.options.controlling.leader_elect_namespace
        if not chosen.webhook_self_signed:
            return FolderCertificates(pair, Path(chosen.webhook_cert_dir), self.time)
        return SecretCertificates(
            pair,
            client,
            namespace,
            chosen.webhook_secret_name,
            chosen.webhook_configuration_name,
            pki.serving_names(chosen.webhook_service_name, namespace),
            self.options.allocating.dry_run,
            self.time,
        )

    def _add_endpoints(self, manager: Manager) -> None:
        chosen = self.options.controlling
        live, ready = Checks("healthz"), Checks("readyz")
        if self.elector is not None:
            live.add("leaderElection", self.elector.check)

        def check_caches() -> None:
            if not manager.has_synced:
                raise errors.Unavailable("nodes and pools are not all known yet")

        ready.add("caches", check_caches)
        if self.webhook is not None:
            ready.add("webhook", self.webhook.check)
        address = listener(chosen.health_probe_bind_address)
        if address is not None:
            app, flag = endpoints.probes(live, ready), "--health-probe-bind-address"
            self.probes = endpoints.Endpoint("probes", flag, address, app, self.time)
            manager.serve(self.probes.run)
        address = listener(chosen.metrics_bind_address)
        if address is not None:
            app = endpoints.metrics(self.registry)
            self.metrics = endpoints.Endpoint("metrics", "--metrics-bind-address", address, app, self.time)
            manager.serve(self.metrics.run)
