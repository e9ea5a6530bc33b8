"""Carries out the plan for one Service: cloud calls, patches of `services/status`, events.

In: a key. Out: a load balancer that is as the Service wants it, or gone. `ServiceSync` keeps what the process knows of
each Service (`memories`); losing it costs one more `ensure` per Service and nothing else, because the finalizer is on
the Service before the cloud is first called and leaves it only after the cloud has removed everything.

It decides nothing: `service_plan.plan` does. It never runs twice at once for one key: its caller's queue sees to that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from bedplate.api import core, discovery
from bedplate.api.resources import SERVICES
from bedplate.cloud.controllers import service_plan as plans
from bedplate.cloud.controllers.service_metrics import ServiceMetrics
from bedplate.cloud.controllers.targets import BY_SERVICE, Fingerprint, TargetBook, is_local, nodes_with_endpoints
from bedplate.cloud.errors import CloudError, ImplementedElsewhere, RetryError
from bedplate.cloud.interface import Carried, LoadBalancers, Target, same_status
from bedplate.core import clock, errors, logging
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client
from bedplate.kube.options import PatchType
from bedplate.runtime.cache import Cache
from bedplate.runtime.events import NORMAL, WARNING, reference
from bedplate.runtime.leaderelection import Recorder

__all__ = ["ServiceSync"]

T = TypeVar("T")
log = logging.get_logger("cloud.service")
NO_NODES = "There are no available nodes for LoadBalancer"
SHOWN_NODES = 20
SLICES_RETRY_S = 10.0


class ServiceSync:
    """What is known of each Service, and how it is made so."""

    def __init__(
        self,
        client: Client,
        balancers: Mapping[str, LoadBalancers],
        books: Mapping[str, TargetBook],
        services: Cache[core.Service],
        endpoint_slices: Cache[discovery.EndpointSlice],
        recorder: Recorder,
        *,
        ownership: plans.Ownership,
        cluster: str,
        timeout_s: float,
        metrics: ServiceMetrics,
        time: clock.Clock,
    ) -> None:
        self.memories: dict[str, plans.Memory] = {}
        self._client = client
        self._balancers = balancers
        self._carried = {
            name: balancer
            for name, balancer in balancers.items()
            if balancer.needs_ready_nodes and isinstance(balancer, Carried)
        }
        self._books = books
        self._services = services
        self._slices = endpoint_slices
        self._recorder = recorder
        self._ownership = ownership
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._metrics = metrics
        self._time = time

    # Deciding

    def plan(self, key: str) -> tuple[plans.Step, ...]:
        """What would be done about this Service now."""
        service = self._services.get(key)
        if service is None or not (provider := self._ownership.owner(service).provider):
            return plans.plan(service, self.memories.get(key), self._ownership, None)
        now, carriers = self._fingerprint(service, provider), self._carriers(service, provider)
        return plans.plan(service, self.memories.get(key), self._ownership, now, carriers)

    def is_behind(self, key: str) -> bool:
        """Whether the load balancer knows other targets than there are."""
        memory = self.memories[key]
        if memory.targets is None:
            return False
        # After a failure every change of targets is a reason to try again.
        carriers = self._carriers(memory.service, memory.provider) if memory.ensured is not None else frozenset()
        return not memory.targets.is_same(self._fingerprint(memory.service, memory.provider), carriers)

    def _carriers(self, service: core.Service, provider: str) -> frozenset[str]:
        carried = self._carried.get(provider)
        return carried.carriers(service) if carried is not None else frozenset()

    def _fingerprint(self, service: core.Service, provider: str) -> Fingerprint:
        book = self._books[provider]
        return book.fingerprint(self._endpoints(service) if book.needs_ready else None)

    def _endpoints(self, service: core.Service) -> frozenset[str] | None:
        if not is_local(service) or not self._slices.synced.is_set():
            return None
        return nodes_with_endpoints(self._slices.by_index(BY_SERVICE, f"{service.namespace}/{service.name}"))

    # Doing

    async def sync(self, key: str) -> float | None:
        """Make it so; the seconds after which to look again, if that is wanted. Raises when it did not succeed."""
        for step in self.plan(key):
            # The reason takes time to word: only for a log that shows it.
            if (detail := log.v(2)) is log:
                detail.info("service.step", service=key, step=type(step).__name__, why=step.why)
            again_s = await self._perform(key, step)
            if again_s is not None:
                return again_s
        return None

    async def _perform(self, key: str, step: plans.Step) -> float | None:
        match step:
            case plans.Release():
                await self._release(key, step)
            case plans.Delete():
                await self._reporting(key, step.service, self._delete(key, step))
            case plans.Ensure():
                await self._reporting(key, step.service, self._ensure(key, step))
            case plans.Update():
                return await self._update(key, step)
            case plans.Sweep():
                await self._sweep(key, step)
            case plans.Forget():
                self.memories.pop(key, None)
            case plans.Nothing():
                pass
        return None

    async def _reporting(self, key: str, service: core.Service, work: Awaitable[object]) -> None:
        """Do it; a failure is told on the Service, remembered, and raised."""
        try:
            await work
        except Exception as err:
            if key in self.memories:
                self.memories[key] = self.memories[key].failed()
            self._tell(service, WARNING, "SyncLoadBalancerFailed", f"Error syncing load balancer: {err}")
            raise

    async def _release(self, key: str, step: plans.Release) -> None:
        service = step.memory.service
        self._tell(service, NORMAL, "DeletingLoadBalancer", "Deleting load balancer")
        try:
            for provider in (step.memory.provider, *step.memory.unswept):
                await self._remove(provider, service)
        except Exception as err:
            self._tell(service, WARNING, "DeleteLoadBalancerFailed", f"Error deleting load balancer: {err}")
            raise
        self._tell(service, NORMAL, "DeletedLoadBalancer", "Deleted load balancer")
        self.memories.pop(key, None)

    async def _delete(self, key: str, step: plans.Delete) -> None:
        service = step.service
        had_one = False
        for provider in step.providers:
            exists = await self._exists(provider, service)
            if exists:
                had_one = True
                self._tell(service, NORMAL, "DeletingLoadBalancer", "Deleting load balancer")
            if exists or step.has_finalizer:
                # Also when there seems to be none: something half made may be left.
                await self._remove(provider, service)
        if step.has_finalizer or step.clears_status:
            patch = plans.release_patch(service, clears_status=step.clears_status)
            await self._patch("failed to remove load balancer cleanup finalizer", service, patch)
        if had_one or step.has_finalizer:
            self._tell(service, NORMAL, "DeletedLoadBalancer", "Deleted load balancer")
        self.memories.pop(key, None)

    async def _exists(self, provider: str, service: core.Service) -> bool:
        attempt = "failed to check if load balancer exists before cleanup"
        try:
            return await self._call(attempt, self._balancers[provider].get(self._cluster, service)) is not None
        except ImplementedElsewhere:
            return False

    async def _remove(self, provider: str, service: core.Service) -> None:
        try:
            await self._call("failed to delete load balancer", self._balancers[provider].delete(self._cluster, service))
        except ImplementedElsewhere as err:
            log.v(4).info("service.elsewhere", service=f"{service.namespace}/{service.name}", error=str(err))

    async def _sweep(self, key: str, step: plans.Sweep) -> None:
        """A failure is another cloud's trouble: it is tried again, and not told on a Service that is served."""
        for provider in step.providers:
            await self._remove(provider, step.service)
        if key in self.memories:
            self.memories[key] = replace(self.memories[key], unswept=())

    async def _ensure(self, key: str, step: plans.Ensure) -> None:
        service, memory = step.service, self._begin(key, step)
        if step.announces:
            self._tell(service, NORMAL, "EnsuringLoadBalancer", "Ensuring load balancer")
        if step.adds_finalizer:
            patch = plans.add_finalizer_patch(service)
            is_there = await self._patch("failed to add load balancer cleanup finalizer", service, patch)
            if not is_there:
                return
        fingerprint, targets = self._targets(service, step.provider)
        if not targets:
            self._tell(service, WARNING, "UnAvailableLoadBalancer", NO_NODES)
        self.memories[key] = memory = replace(memory, may_exist=True, targets=fingerprint)
        self._metrics.syncs.inc()
        balancer = self._balancers[step.provider]
        try:
            status = await self._call(
                "failed to ensure load balancer", balancer.ensure(self._cluster, service, targets)
            )
        except ImplementedElsewhere as err:
            log.v(2).info("service.elsewhere", service=key, error=str(err))
            self.memories[key] = replace(memory, ensured=service, owes_news=False)
            return
        if status is None:
            raise CloudError("failed to ensure load balancer: the cloud returned no status")
        await self._ensured(key, memory, status)

    def _begin(self, key: str, step: plans.Ensure) -> plans.Memory:
        """Remember what is about to be made so."""
        service, memory = step.service, self.memories.get(key)
        if memory is None or memory.service.metadata.uid != service.metadata.uid:
            memory = plans.Memory(service, step.provider)
        self.memories[key] = replace(
            memory,
            service=service,
            provider=step.provider,
            announced=service,
            ensured=None,
            owes_news=memory.owes_news or step.announces,
            unswept=step.others,
        )
        return self.memories[key]

    async def _ensured(self, key: str, memory: plans.Memory, status: core.LoadBalancerStatus) -> None:
        service = memory.service
        changes = self._is_news(memory, status)
        if memory.owes_news or changes:
            self._tell(service, NORMAL, "EnsuredLoadBalancer", "Ensured load balancer")
        if changes:
            await self._patch("failed to update load balancer status", service, plans.status_patch(service, status))
        self.memories[key] = replace(memory, ensured=service, owes_news=False, published=status)

    @staticmethod
    def _is_news(memory: plans.Memory, status: core.LoadBalancerStatus) -> bool:
        # The cache may be older than our own last write: then it cannot show that a write is needed.
        if memory.published is not None and not same_status(memory.published, status):
            return True
        return not same_status(memory.service.status.load_balancer, status)

    async def _update(self, key: str, step: plans.Update) -> float | None:
        service = step.service
        fingerprint, targets = self._targets(service, step.provider)
        memory = replace(self.memories[key], service=service, targets=fingerprint)
        self.memories[key] = memory
        self._metrics.syncs.inc()
        started = self._time.monotonic()
        balancer = self._balancers[step.provider]
        try:
            status = await self._call("", balancer.update(self._cluster, service, targets))
        except ImplementedElsewhere as err:
            log.v(4).info("service.elsewhere", service=key, error=str(err))
            return None
        except Exception as err:
            return await self._update_failed(key, step, targets, err)
        finally:
            self._metrics.host_updates.observe(self._time.monotonic() - started)
        changes = status is not None and self._is_news(memory, status)
        if not targets:
            self._tell(service, WARNING, "UnAvailableLoadBalancer", NO_NODES)
        elif changes or step.has_other_hosts:
            self._tell(service, NORMAL, "UpdatedLoadBalancer", "Updated load balancer with new hosts")
        if status is not None and changes:
            patch = plans.status_patch(service, status)
            await self._reporting(key, service, self._patch("failed to update load balancer status", service, patch))
            self.memories[key] = replace(memory, published=status)
        return None

    async def _update_failed(self, key: str, step: plans.Update, targets: tuple[Target, ...], err: Exception) -> float:
        """Have it made so as a whole, at once or when the cloud wants it; silently where the balancer has vanished."""
        service, balancer = step.service, self._balancers[step.provider]
        self.memories[key] = replace(self.memories[key], ensured=None)
        try:
            is_gone = await self._call("", balancer.get(self._cluster, service)) is None
        except Exception as second:
            log.v(2).info("service.unknown", service=key, error=str(second))
            is_gone = False
        if is_gone:
            log.info("service.vanished", service=key, error=str(err))
            return 0.0
        self._metrics.node_errors.inc()
        self.memories[key] = self.memories[key].failed()
        shown = " ".join(target.node.name for target in targets[:SHOWN_NODES])
        limited = f"[{shown}] [node names limited, total number of nodes: {len(targets)}]"
        message = f"Error updating load balancer with new hosts {limited}, error: {err}"
        self._tell(service, WARNING, "UpdateLoadBalancerFailed", message)
        if not targets:
            self._tell(service, WARNING, "UnAvailableLoadBalancer", NO_NODES)
        if isinstance(err, errors.BedplateError):
            log.warning("service.update_failed", service=key, error=errors.describe(err))
        else:
            log.exception("service.update_bug", service=key)
        return (err.retry_after_s or 0.0) if isinstance(err, RetryError) else 0.0

    def _targets(self, service: core.Service, provider: str) -> tuple[Fingerprint, tuple[Target, ...]]:
        book, endpoints = self._books[provider], self._endpoints(service)
        book.expire()
        if book.needs_ready:
            self._check_endpoints(service)
        return book.fingerprint(endpoints), book.targets(endpoints)

    def _check_endpoints(self, service: core.Service) -> None:
        """Raise while nothing is known of the endpoints that this Service's targets depend on."""
        if is_local(service) and not self._slices.synced.is_set():
            raise RetryError(
                "externalTrafficPolicy Local needs EndpointSlices, which could not be read yet: does the manager's "
                "role allow list and watch of endpointslices.discovery.k8s.io?",
                SLICES_RETRY_S,
            )

    # The two remote sides

    async def _call(self, attempt: str, call: Awaitable[T]) -> T:
        """A call of a cloud, with a limit; an error says what was attempted and keeps its kind and its delay."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await call
        except TimeoutError as err:
            raise CloudError(_said(attempt, f"no response from the cloud within {self._timeout_s:.0f} s")) from err
        except RetryError as err:
            raise RetryError(_said(attempt, str(err)), err.retry_after_s or 0.0) from err
        except ImplementedElsewhere:
            raise
        except errors.BedplateError as err:
            after_s = err.retry_after_s if isinstance(err, errors.Retryable) else None
            raise CloudError(_said(attempt, str(err)), hint=err.hint, retry_after_s=after_s) from err

    async def _patch(self, attempt: str, service: core.Service, patch: dict[str, Any]) -> bool:
        """Write to `services/status`; False when that very Service is gone, and there is nothing left to repair."""
        try:
            await self._client.patch(
                SERVICES, service.name, patch, service.namespace, type=PatchType.STRATEGIC, subresource="status"
            )
        except kube_errors.NotFound:
            return False
        except errors.BedplateError as err:
            if isinstance(err, kube_errors.Conflict | kube_errors.Invalid) and self._is_outdated(service):
                return False
            after_s = err.retry_after_s if isinstance(err, errors.Retryable) else None
            raise errors.Unavailable(_said(attempt, str(err)), hint=err.hint, retry_after_s=after_s) from err
        return True

    def _is_outdated(self, service: core.Service) -> bool:
        """Whether the Service was deleted meanwhile, or replaced by another of its name: its key comes again."""
        now = self._services.get(f"{service.namespace}/{service.name}")
        if now is None or now.metadata.uid != service.metadata.uid:
            return True
        return now.metadata.is_deleting and not service.metadata.is_deleting

    def _tell(self, service: core.Service, type: str, reason: str, message: str) -> None:
        self._recorder.event(reference(SERVICES, service), type, reason, message)


def _said(attempt: str, text: str) -> str:
    return f"{attempt}: {text}" if attempt else text
