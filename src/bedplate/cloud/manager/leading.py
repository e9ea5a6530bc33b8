"""What happens between becoming leader and the first reconcile, and how the controllers then run.

In: the API server, the providers, the controllers' parts. Out: running controllers. In turn: the API server must answer
`/healthz` (else the process ends), the cluster's identity is read, providers start, then the controllers, one after the
other. A provider whose start takes long (its cloud is down) holds up nobody: its nodes are retried, the others' go on.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bedplate.api import core
from bedplate.api.names import NAMESPACE_SYSTEM
from bedplate.api.resources import NAMESPACES
from bedplate.cloud.interface import Provider
from bedplate.cloud.manager.metrics import ProcessMetrics
from bedplate.core import backoff, clock, errors, logging
from bedplate.core.tasks import TaskGroup
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client
from bedplate.runtime.cache import Cache
from bedplate.runtime.manager import Leading

__all__ = ["ClusterIdentity", "Resync", "Started", "Startup", "wait_for_answer", "wait_for_api_server"]

log = logging.get_logger("cloud.leading")
API_PATIENCE_S = 10.0
API_PERIOD_S = 1.0
ANSWER_PATIENCE_S = 40.0
ANSWER_TRY_S = 10.0
"""Together below a minute: the longest that a program starts without an API server."""
PROVIDER_PATIENCE_S = 2.0
IDENTITY_RETRY_S = 30.0


async def wait_for_answer(client: Client, time: clock.Clock) -> None:
    """Return once the API server answers anything at all; raise after forty seconds of trying.

    Before the election, which goes on until there is an API server.
    """
    deadline = time.monotonic() + ANSWER_PATIENCE_S
    while True:
        try:
            async with asyncio.timeout(ANSWER_TRY_S):
                await client.request("GET", "/healthz", timeout_s=5.0)
            return
        except kube_errors.ApiError:
            # Whether it is healthy is asked again by the leader.
            return
        except (errors.BedplateError, TimeoutError) as err:
            reason = str(err) or "timeout"
            if time.monotonic() >= deadline:
                raise errors.Unavailable(f"the API server does not answer: {reason}") from err
            log.warning("apiserver.no_answer", error=reason)
        await time.sleep(API_PERIOD_S)


async def wait_for_api_server(client: Client, time: clock.Clock) -> None:
    """Return once `/healthz` is answered with 200; raise after ten seconds of trying."""
    deadline = time.monotonic() + API_PATIENCE_S
    while True:
        try:
            await client.request("GET", "/healthz", timeout_s=5.0)
            return
        except errors.BedplateError as err:
            if time.monotonic() >= deadline:
                raise errors.Unavailable(f"the API server is not healthy: {err}") from err
            log.v(2).info("apiserver.not_healthy", error=str(err))
        await time.sleep(API_PERIOD_S)


@dataclass(slots=True)
class ClusterIdentity:
    """The UID of the namespace kube-system: what marks a cloud resource as this cluster's.

    The originals' roles do not allow to read it. There the UID of the Service default/kubernetes takes its place, which
    whoever may list Services knows; an error other than that refusal is waited out, so that the two never mix.
    """

    client: Client
    time: clock.Clock
    services: Cache[core.Service]
    name: str = "cluster identity"
    _uid: str = ""
    _is_refused: bool = False

    @property
    def uid(self) -> str:
        """Empty while it is not known."""
        return self._uid or (self._substitute if self._is_refused else "")

    @property
    def aliases(self) -> frozenset[str]:
        """How the cluster was known while the role was the original's."""
        return frozenset({self._substitute} - {""}) if self._uid else frozenset()

    @property
    def _substitute(self) -> str:
        service = self.services.get("default/kubernetes")
        return service.metadata.uid if service is not None else ""

    async def look(self) -> None:
        """Read it; where that fails, providers see that it is not known."""
        try:
            self._uid = (await self.client.get(NAMESPACES, NAMESPACE_SYSTEM)).metadata.uid
        except errors.Denied as err:
            self._is_refused = True
            instead = "the UID of the Service default/kubernetes"
            log.info("cluster.identity_refused", error=str(err), instead=instead)
        except errors.BedplateError as err:
            log.warning("cluster.identity_unknown", error=str(err), hint="tried again")

    async def run(self) -> None:
        """Try again until it is known, then wait to be cancelled."""
        while True:
            await self.time.sleep(IDENTITY_RETRY_S)
            if not self._uid and not self._is_refused:
                await self.look()


@dataclass(slots=True)
class Resync:
    """Lets controllers look at every object again after once to twice `period_s`."""

    caches: Sequence[Cache[object]]
    period_s: float
    time: clock.Clock
    rng: random.Random = field(default_factory=random.Random)
    name: str = "resync"

    async def run(self) -> None:
        while True:
            await self.time.sleep(backoff.jitter(self.period_s, 1.0, self.rng))
            for cache in self.caches:
                cache.resync()


@dataclass(frozen=True, slots=True)
class Started:
    """A controller by the name that `--controllers` knows, and its parts."""

    name: str
    parts: Sequence[Leading]


@dataclass(slots=True)
class Startup:
    """The order in which providers and controllers start once this process leads."""

    client: Client
    identity: ClusterIdentity
    providers: Sequence[Provider]
    controllers: Sequence[Started]
    start_interval_s: float
    metrics: ProcessMetrics
    on_started: Callable[[str], None]
    time: clock.Clock
    rng: random.Random = field(default_factory=random.Random)
    name: str = "startup"

    async def run(self) -> None:
        await wait_for_api_server(self.client, self.time)
        try:
            async with TaskGroup() as tasks:
                starts = [tasks.create_task(self.identity.look(), name="look for the cluster identity")]
                starts += [tasks.create_task(cloud.start(), name=f"start {cloud.name}") for cloud in self.providers]
                await self._patiently(starts)
                await self._start_controllers(tasks)
        finally:
            for controller in self.controllers:
                self.metrics.running(controller.name, is_running=False)

    async def _patiently(self, starts: Sequence[asyncio.Task[None]]) -> None:
        """Wait for the starts, but not for those that take long."""
        patience = asyncio.ensure_future(self.time.sleep(PROVIDER_PATIENCE_S))
        everything = asyncio.ensure_future(asyncio.wait(starts))
        try:
            await asyncio.wait((everything, patience), return_when=asyncio.FIRST_COMPLETED)
        finally:
            everything.cancel()
            patience.cancel()
        for task in starts:
            if not task.done():
                log.warning("provider.slow_start", task=task.get_name(), effect="controllers start without waiting")

    async def _start_controllers(self, tasks: TaskGroup) -> None:
        for number, controller in enumerate(self.controllers):
            if number and self.start_interval_s > 0:
                await self.time.sleep(backoff.jitter(self.start_interval_s, 1.0, self.rng))
            for part in controller.parts:
                tasks.create_task(part.run(), name=f"controller {part.name}")
            self.metrics.running(controller.name, is_running=True)
            self.on_started(controller.name)
            log.info("controller.started", controller=controller.name)
