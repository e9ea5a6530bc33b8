"""`permissions-manager` put together: caches, controller, discovery, webhook.

In: options, environment, a clock. Out: `Assembly`, whose `run` is the whole program. Every replica answers reviews;
only who leads writes objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bedplate.api import permissions
from bedplate.api.resources import NAMESPACES
from bedplate.core import clock
from bedplate.core.tasks import TaskGroup
from bedplate.kube.config import ClientConfig, find
from bedplate.operators.permissions import controller, live, manifests
from bedplate.operators.permissions.controller import PermissionController
from bedplate.operators.permissions.discovery import Discovery
from bedplate.operators.permissions.knowledge import Cluster
from bedplate.operators.permissions.live import Live
from bedplate.operators.permissions.options import Options
from bedplate.operators.permissions.server import WebhookServer
from bedplate.operators.permissions.writing import Writer
from bedplate.program import assembly as program
from bedplate.program import webhookpki
from bedplate.program.assembly import Lease, Parts
from bedplate.program.webhookcertificates import (
    CONFIGURATIONS,
    MUTATING_CONFIGURATIONS,
    SecretCertificates,
    ServingPair,
)
from bedplate.runtime.events import Recorders
from bedplate.runtime.leaderelection import Timing
from bedplate.runtime.manager import Manager

__all__ = ["LEASE", "PROGRAM", "Assembly"]

PROGRAM = "permissions-manager"
LEASE = f"permissions-manager.{permissions.GROUP}"
SECRET = "permissions-manager-webhook"
EVENT_QPS, EVENT_BURST = 20.0, 50
_HINT = "the manager's role may patch webhook configurations; see `bedplate permissions manifests`"


@dataclass(slots=True)
class _Managing:
    """The controller, once it is known what the cluster has."""

    controller: PermissionController
    discovery: Discovery
    name: str = "permissions"

    async def run(self) -> None:
        await self.discovery.learn()
        async with TaskGroup() as tasks:
            tasks.create_task(self.discovery.run())
            tasks.create_task(self.controller.loop.run())


class Assembly(program.Assembly[Options]):
    """One manager."""

    def __init__(
        self,
        options: Options,
        environ: Mapping[str, str],
        *,
        time: clock.Clock | None = None,
        timing: Timing | None = None,
    ) -> None:
        super().__init__(options, environ, time=time)
        self.controller: PermissionController | None = None
        self.webhook: WebhookServer | None = None
        self._timing = timing if timing is not None else Timing()

    def connection(self) -> ClientConfig:
        # What limits the rate is the number of workers: a wait here would only delay somebody's rights.
        config = find(self.options.managing.kubeconfig, self.environ)
        return config.with_rate(-1, 1).with_user_agent(PROGRAM)

    def lease(self) -> Lease | None:
        chosen = self.options.managing.leader_elect
        return Lease(LEASE, permissions.SYSTEM_NAMESPACE, PROGRAM, self._timing) if chosen else None

    async def assemble(self, parts: Parts) -> None:
        manager = parts.manager
        world = Live({kind: self._followed(manager, kind) for kind in live.REFS}, manager.cache(NAMESPACES.partial()))
        uses_policies = self.options.managing.admission_policies == "auto"
        client = await parts.clients.leading()
        discovery = Discovery(client, world, uses_policies, self.time)
        cluster = self._known(manager, world)
        await self._add_controller(parts, world, discovery, cluster)
        self._add_webhook(parts, world, cluster)

    def _followed(self, manager: Manager, kind: str) -> Any:
        namespace = permissions.NAMESPACE if kind == "Secret" else None
        return manager.cache(live.REFS[kind], namespace=namespace, label_selector=live.SELECTOR)

    def _known(self, manager: Manager, world: Live) -> Cluster:
        """What the webhook and removals know of storage."""
        return Cluster(
            world.namespaces,
            manager.cache(permissions.CLAIMS),
            manager.cache(permissions.PERSISTENT_VOLUMES),
            manager.cache(permissions.STORAGE_CLASSES),
            time=self.time,
        )

    async def _add_controller(self, parts: Parts, world: Live, discovery: Discovery, cluster: Cluster) -> None:
        manager = parts.manager
        resources = {
            ref.kind: manager.cache(ref, namespace=permissions.NAMESPACE, indexes=controller.INDEXES)
            for ref in permissions.KINDS
        }
        guards = manager.cache(MUTATING_CONFIGURATIONS.partial(), field_selector=f"metadata.name={manifests.MUTATING}")
        recorders = Recorders(await parts.clients.events(EVENT_QPS, EVENT_BURST), self.time)
        self.controller = PermissionController(
            discovery.client,
            resources,
            world,
            Writer(discovery.client, world, self.time),
            recorders.get(PROGRAM),
            is_guarded=lambda: manifests.MUTATING in guards,
            claims_of=cluster.claims_of,
            time=self.time,
            registry=self.registry,
        )
        discovery.on_facts, discovery.on_release = self.controller.use, self.controller.look_again
        discovery.on_repaired = self.controller.tell_repaired
        again = self.controller.look_again
        guards.on_change(lambda change: again())
        for part in recorders.parts():
            manager.add(part)
        manager.add(_Managing(self.controller, discovery))

    def _add_webhook(self, parts: Parts, world: Live, cluster: Cluster) -> None:
        manager, pair = parts.manager, ServingPair()
        needed = (cluster.namespaces, cluster.claims, cluster.persistent, cluster.classes)
        self.webhook = WebhookServer(
            pair,
            cluster,
            parts.reader,
            lambda: all(cache.synced.is_set() for cache in needed),
            self.registry,
            self.options.managing.webhook_port,
            self.time,
        )
        names = webhookpki.serving_names(manifests.NAME, permissions.SYSTEM_NAMESPACE)
        certificates = SecretCertificates(
            pair,
            parts.reader,
            permissions.SYSTEM_NAMESPACE,
            SECRET,
            ((MUTATING_CONFIGURATIONS, manifests.MUTATING), (CONFIGURATIONS, manifests.VALIDATING)),
            names,
            time=self.time,
            authority="permissions-manager-webhook-ca",
            hint=_HINT,
        )
        manager.serve(certificates.run)
        manager.serve(self.webhook.run)

        async def learn() -> None:
            # Every replica answers reviews, so each has to know the server's version.
            cluster.has_strict_groups = await Discovery(parts.reader, world, time=self.time).has_strict_groups()
            await asyncio.Event().wait()

        manager.serve(learn)
