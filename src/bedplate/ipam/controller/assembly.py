"""`ipam-controller` put together: caches, controllers, webhook, endpoints.

In: options, environment, a clock. Out: `Assembly`, whose `run` is the whole program. Probes, metrics and the webhook
are served by every replica from the start; only who leads gives blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bedplate.api import meta
from bedplate.api.resources import NODES
from bedplate.core import clock, errors
from bedplate.ipam.controller import kinds
from bedplate.ipam.controller.holding import Holding
from bedplate.ipam.controller.kinds import Kind, Neighbours
from bedplate.ipam.controller.options import Options
from bedplate.ipam.controller.pacing import Pace
from bedplate.ipam.controller.podrecords import PodRecords
from bedplate.ipam.controller.pools import PoolController
from bedplate.ipam.controller.statuses import Statuses
from bedplate.ipam.controller.telling import Teller
from bedplate.ipam.planning import Mode
from bedplate.ipam.quarantine import Policy
from bedplate.ipam.webhook.server import WebhookServer
from bedplate.kube.client import Client
from bedplate.kube.config import ClientConfig, find
from bedplate.program import assembly as program
from bedplate.program import endpoints
from bedplate.program import webhookpki as pki
from bedplate.program.assembly import Lease, Parts
from bedplate.program.webhookcertificates import (
    CONFIGURATIONS,
    FolderCertificates,
    SecretCertificates,
    ServingPair,
    Source,
)
from bedplate.runtime.cache import Cache
from bedplate.runtime.events import Recorders
from bedplate.runtime.leaderelection import Timing
from bedplate.runtime.manager import Manager
from bedplate.serving.health import Checks

__all__ = ["LEASE", "PROGRAM", "Assembly"]

PROGRAM = "ipam-controller"
LEASE = "dd1643cf.nvidia.com"
QPS, BURST = 50.0, 100
EVENT_QPS, EVENT_BURST = 10.0, 25


@dataclass(frozen=True, slots=True)
class _Caches:
    nodes: Cache[meta.PartialObject]
    pools: Mapping[str, Cache[Any]]
    """By the name of the kind."""


class Assembly(program.Assembly[Options]):
    """One controller."""

    def __init__(
        self,
        options: Options,
        environ: Mapping[str, str],
        *,
        time: clock.Clock | None = None,
        timing: Timing | None = None,
        pace: Pace | None = None,
    ) -> None:
        super().__init__(options, environ, time=time)
        self.controllers: list[PoolController[Any]] = []
        self.webhook: WebhookServer | None = None
        self.probes: endpoints.Endpoint | None = None
        self.metrics: endpoints.Endpoint | None = None
        self._timing = timing if timing is not None else Timing()
        self._pace = pace if pace is not None else Pace()

    @property
    def is_dry_run(self) -> bool:
        return self.options.allocating.dry_run

    def connection(self) -> ClientConfig:
        config = find(self.options.controlling.kubeconfig, self.environ)
        return config.with_rate(QPS, BURST).with_user_agent(PROGRAM)

    def lease(self) -> Lease | None:
        chosen = self.options.controlling
        return Lease(LEASE, chosen.leader_elect_namespace, PROGRAM, self._timing) if chosen.leader_elect else None

    async def assemble(self, parts: Parts) -> None:
        caches = self._caches(parts.manager)
        await self._add_controllers(parts, caches)
        if self.options.controlling.webhook:
            self._add_webhook(parts.manager, parts.reader, caches)
        self._add_endpoints(parts.manager)

    def _caches(self, manager: Manager) -> _Caches:
        namespace = self.options.controlling.ippools_namespace
        pools = {kind.name: manager.cache(kind.ref, namespace=namespace) for kind in kinds.BOTH}
        return _Caches(manager.cache(NODES.partial()), pools)

    async def _add_controllers(self, parts: Parts, caches: _Caches) -> None:
        client = await parts.clients.leading()
        recorders = Recorders(await parts.clients.events(EVENT_QPS, EVENT_BURST), self.time)
        chosen = self.options.allocating
        mode = Mode(chosen.allocation_mode)
        # The original's way knows nothing that is held back.
        policy = Policy(chosen.quarantine) if mode is Mode.STABLE else Policy.OFF
        holding = Holding(policy, chosen.quarantine_duration, PodRecords(client), self.time)
        neighbours = Neighbours(caches.pools)
        for kind in kinds.BOTH:
            controller: PoolController[Any] = PoolController(
                kind,
                caches.pools[kind.name],
                caches.nodes,
                Statuses(client, kind.ref, caches.pools[kind.name], self.registry, kind.name),
                holding,
                Teller(recorders.get(kind.component)),
                neighbours.overlaps,
                mode,
                self._pace,
                self.time,
                self.registry,
            )
            self.controllers.append(controller)
        for part in (*recorders.parts(), *(part for controller in self.controllers for part in controller.parts())):
            parts.manager.add(part)

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
            ((CONFIGURATIONS, chosen.webhook_configuration_name),),
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
                raise errors.Unavailable("nodes and pools have not all been listed yet")

        ready.add("caches", check_caches)
        if self.webhook is not None:
            ready.add("webhook", self.webhook.check)
        self.probes = endpoints.serve_probes(manager, live, ready, chosen.health_probe_bind_address, self.time)
        self.metrics = endpoints.serve_metrics(manager, self.registry, chosen.metrics_bind_address, self.time)
