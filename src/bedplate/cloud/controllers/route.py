"""The route controller: every node's pods are reachable through the cloud's own network.

In: the cache of Nodes. Out: routes of each provider that has them, and the condition `NetworkUnavailable` of nodes. A
node that comes, goes, moves or gets pod CIDRs leads to a run, at most one per `--route-reconciliation-period`; a full
run every `--route-full-resync-period` repairs what changed behind our back; a run that did not finish its work is
followed by another after the period. Decisions are `route_plan.plan`'s.

A node without a provider ID counts as the cloud's only if there is just one cloud; one with a foreign ID never does.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter

from bedplate.api import core
from bedplate.api.resources import NODES
from bedplate.cloud import routing
from bedplate.cloud.controllers import route_plan as plans
from bedplate.cloud.interface import Provider, Route, Routes
from bedplate.core import backoff, clock, duration, errors, logging
from bedplate.core.metrics import shared
from bedplate.core.tasks import TaskGroup
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client
from bedplate.kube.options import PatchType
from bedplate.runtime.cache import Cache, Change
from bedplate.runtime.events import WARNING, reference
from bedplate.runtime.leaderelection import Recorder
from bedplate.runtime.manager import Leading
from bedplate.runtime.workqueue import WorkQueue

__all__ = ["RouteController", "RouteOptions"]

T = TypeVar("T")
log = logging.get_logger("cloud.route")
MOST_OPERATIONS = 200
CONFLICT_TRIES, CONFLICT_WAIT_S = 5, 0.1
_ALL = "routes"


@dataclass(frozen=True, slots=True)
class RouteOptions:
    """The manager's flags that this controller reads."""

    configure_cloud_routes: bool = True
    cluster_cidr: str = ""
    cluster_name: str = "kubernetes"
    route_reconciliation_period_s: float = 10.0
    route_full_resync_period_s: float = 300.0
    node_selector: str = ""
    cloud_api_timeout_s: float = 30.0


class RouteMetrics:
    """`route_controller_*` of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.syncs = Counter(
            "route_controller_route_sync", "How often the routes of the clouds were reconciled", registry=registry
        )


@dataclass(slots=True)
class _Run:
    """One run over one provider's routes: what was done so far."""

    provider: str
    routes: Routes
    failed_nodes: set[str] = field(default_factory=set)
    undeleted: set[Route] = field(default_factory=set)


class RouteController:
    """Runs while this process leads: `run` ends with the task that calls it."""

    name = "node-route-controller"

    def __init__(
        self,
        client: Client,
        clouds: routing.Clouds,
        nodes: Cache[core.Node],
        recorder: Recorder,
        options: RouteOptions,
        time: clock.Clock,
        registry: CollectorRegistry,
        rng: random.Random | None = None,
    ) -> None:
        self._client = client
        self._clouds = clouds
        self._nodes = nodes
        self._recorder = recorder
        self._options = options
        self._time = time
        self._rng = rng if rng is not None else random.Random()
        self._routes = {cloud.name: cloud.routes for cloud in clouds if cloud.routes is not None}
        is_wanted = options.configure_cloud_routes and bool(self._routes)
        self._cidrs = plans.parse_cluster_cidrs(options.cluster_cidr) if is_wanted else ()
        self._operations = asyncio.Semaphore(MOST_OPERATIONS)
        self._metrics = shared(registry, RouteMetrics)
        self._queue: WorkQueue[str] = WorkQueue("Routes", time=time, registry=registry)
        self._seen: set[str] = set()
        """Nodes that were ours in this process: only of them a selection can tell that they are gone."""

    def parts(self) -> list[Leading]:
        """What to run while leading: nothing where routes are not wanted or no provider has them."""
        if not self._options.configure_cloud_routes:
            log.info("route.off", hint="--configure-cloud-routes=false")
            return []
        if not self._routes:
            log.warning("route.unsupported", hint="no cloud provider of this manager has routes")
            return []
        return [self]

    async def run(self) -> None:
        """Work until cancelled."""
        await self._nodes.synced.wait()
        self._nodes.on_change(self._node_changed)
        self._queue.add(_ALL)
        try:
            async with TaskGroup() as tasks:
                tasks.create_task(self._work())
                tasks.create_task(self._resync())
        finally:
            await self._queue.shut_down()

    def _node_changed(self, change: Change[core.Node]) -> None:
        old, new = change.old, change.new
        if (
            old is None
            or new is None
            or old.spec.pod_cidrs != new.spec.pod_cidrs
            or old.spec.provider_id != new.spec.provider_id
            or old.status.addresses != new.status.addresses
        ):
            self._queue.add(_ALL)

    async def _resync(self) -> None:
        while True:
            await self._time.sleep(self._options.route_full_resync_period_s)
            self._queue.add(_ALL)

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            started = self._time.monotonic()
            is_done = await self.reconcile()
            self._queue.done(key)
            if not is_done:
                self._queue.add(key)
            left_s = self._options.route_reconciliation_period_s - (self._time.monotonic() - started)
            await self._time.sleep(max(0.0, left_s))

    # One run

    async def reconcile(self) -> bool:
        """Bring every provider's routes in order; False when something is left to do."""
        self._metrics.syncs.inc()
        outcomes = await _all(self._reconcile(name, routes) for name, routes in self._routes.items())
        return all(outcomes)

    def plan(self, provider: str, routes: list[Route]) -> plans.RoutePlan:
        """What would be done with these routes of a provider now."""
        ours, spared = [], set()
        for node in sorted(self._nodes, key=lambda node: node.name):
            if self._is_of(node, provider):
                ours.append(node)
            else:
                spared.add(node.name)
        judges = None
        if self._options.node_selector:
            self._seen.update(node.name for node in ours)
            judges = self._seen
        return plans.plan(ours, routes, self._cidrs, spared=spared, judges=judges)

    def _is_of(self, node: core.Node, provider: str) -> bool:
        match self._clouds.place(node):
            case routing.Owned(owner):
                return owner.name == provider
            case routing.Unplaced():
                sole: Provider | None = self._clouds.sole
                return sole is not None and sole.name == provider
            case routing.Foreign():
                return False

    async def _reconcile(self, provider: str, routes: Routes) -> bool:
        try:
            present = list(await self._call(routes.list(self._options.cluster_name)))
        except Exception as err:
            _report("route.list_failed", err, provider=provider)
            return False
        todo = self.plan(provider, present)
        for note in todo.notes:
            log.v(4).info("route.left", provider=provider, why=note)
        run = _Run(provider, routes)
        deleting = asyncio.ensure_future(_all(self._delete(run, deletion) for deletion in todo.deletions))
        try:
            if todo.deletes_first:
                await deleting
            await _all(self._serve(run, node, had, own) for node, had, own in self._judged(todo))
            await deleting
        finally:
            deleting.cancel()
            await asyncio.gather(deleting, return_exceptions=True)
        return not run.failed_nodes and not run.undeleted

    def _judged(self, todo: plans.RoutePlan) -> Iterator[tuple[core.Node, bool, list[plans.Creation]]]:
        """Nodes of which something is to be said, with the routes to make for each."""
        creations: dict[str, list[plans.Creation]] = {}
        for creation in todo.creations:
            creations.setdefault(creation.node.name, []).append(creation)
        for name, has_cidrs in todo.judged.items():
            if (node := self._nodes.get(name)) is not None:
                yield node, has_cidrs, creations.get(name, [])

    async def _delete(self, run: _Run, step: plans.Deletion) -> None:
        route = step.route
        try:
            await self._operate(run.routes.delete(self._options.cluster_name, route))
        except Exception as err:
            run.undeleted.add(route)
            _report("route.delete_failed", err, provider=run.provider, route=route.name, cidr=route.destination_cidr)
        else:
            log.info(
                "route.deleted", provider=run.provider, route=route.name, cidr=route.destination_cidr, why=step.why
            )

    async def _serve(self, run: _Run, node: core.Node, has_cidrs: bool, creations: list[plans.Creation]) -> None:
        """Make one node's routes, then say on the node whether it has them all."""
        results = await _all(self._create(run, creation) for creation in creations)
        if not all(results):
            run.failed_nodes.add(node.name)
        condition = plans.unavailable_condition(node, has_cidrs and all(results))
        if condition is None:
            return
        try:
            await self._persist(lambda: self._say(node, condition))
        except kube_errors.NotFound:
            log.v(2).info("route.node_gone", node=node.name)
        except Exception as err:
            run.failed_nodes.add(node.name)
            _report("route.condition_failed", err, node=node.name)

    async def _create(self, run: _Run, step: plans.Creation) -> bool:
        node, route = step.node, step.route
        if step.replaces is not None and step.replaces in run.undeleted:
            return False
        started = self._time.monotonic()
        hint = node.metadata.uid
        try:
            await self._persist(lambda: self._operate(run.routes.create(self._options.cluster_name, hint, route)))
        except Exception as err:
            took = duration.format_duration(round(self._time.monotonic() - started, 3))
            message = f"Could not create route {hint} {route.destination_cidr} for node {node.name} after {took}: {err}"
            self._recorder.event(reference(NODES, node), WARNING, "FailedToCreateRoute", message)
            _report("route.create_failed", err, provider=run.provider, node=node.name, cidr=route.destination_cidr)
            return False
        log.info("route.created", provider=run.provider, node=node.name, cidr=route.destination_cidr, why=step.why)
        return True

    async def _say(self, node: core.Node, condition: tuple[str, str, str]) -> None:
        patch = plans.condition_patch(condition, self._time.now())
        await self._client.patch(NODES, node.name, patch, type=PatchType.STRATEGIC, subresource="status")

    async def _operate(self, call: Awaitable[T]) -> T:
        async with self._operations:
            return await self._call(call)

    async def _call(self, call: Awaitable[T]) -> T:
        async with asyncio.timeout(self._options.cloud_api_timeout_s):
            return await call

    async def _persist(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Try again after a conflict, and after nothing else."""
        for _ in range(CONFLICT_TRIES - 1):
            try:
                await attempt()
                return
            except errors.Conflict as err:
                log.v(4).info("route.conflict", error=str(err))
                await self._time.sleep(backoff.jitter(CONFLICT_WAIT_S, 1.0, self._rng))
        await attempt()


async def _all(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The outcomes of all, side by side; each work takes care of its own errors."""
    async with TaskGroup() as tasks:
        running = [tasks.create_task(task) for task in works]
    return [task.result() for task in running]


def _report(event: str, err: Exception, **values: object) -> None:
    if isinstance(err, errors.BedplateError | TimeoutError):
        log.warning(event, error=errors.describe(err), **values)
    else:
        log.exception(event, **values)
