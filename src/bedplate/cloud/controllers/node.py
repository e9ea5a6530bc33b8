"""The cloud node controller: gives joining nodes their provider ID, labels and addresses, and keeps them right.

In: the cache of Nodes (only those below `--node-selector`), and the clouds. Out: one patch of a Node and one of its
status, events. Each cloud has its own queue and its own refresh, so that the slow answers of one never occupy the
workers of another; nodes without a provider ID have a queue of theirs when there are several clouds to ask. What to do
is decided in `node_plan`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry

from bedplate.api import core
from bedplate.api.resources import NODES
from bedplate.cloud.controllers import node_plan, node_refusals
from bedplate.cloud.controllers.node_plan import Kind, Verdict
from bedplate.cloud.controllers.nodewrites import ASK_TIMEOUT_S, INITIALISE, RECONCILE, NodeWriter, in_parallel
from bedplate.cloud.errors import AmbiguousInstance, CloudError, InstanceNotFound, RetryError
from bedplate.cloud.interface import InstanceMetadata, Provider
from bedplate.cloud.routing import Claimed, Clouds, Contested, Foreign, Owned, Unclaimed, Waiting
from bedplate.cloud.taints import is_uninitialized
from bedplate.core import clock, errors, figures, logging
from bedplate.core.metrics import shared
from bedplate.kube.client import Client
from bedplate.runtime import events
from bedplate.runtime.cache import Cache, Change
from bedplate.runtime.controller import Controller, Result
from bedplate.runtime.leaderelection import Recorder
from bedplate.runtime.manager import Leading
from bedplate.runtime.workqueue import WorkQueue

__all__ = ["COMPONENT", "NodeController", "NodeOptions"]

COMPONENT = "cloud-node-controller"
CONTESTED_RETRY_S = 60.0
ECHO_TIMEOUT_S = 0.25
"""How long the second write, of the addresses, waits at most for the watch to show the first one."""
log = logging.get_logger("cloud.node")


class _Told(CloudError):
    """A failure that has its own Event."""


@dataclass(frozen=True, slots=True)
class _Owed:
    """The second write of an initialisation: the addresses of a node."""

    uid: str
    written: core.Node
    """As the first write left it."""
    metadata: InstanceMetadata | None
    """What the cloud said; None: the second write has failed, and the cloud is asked again."""
    due_s: float
    queue: Provider | None
    """Of the two queues that may have the node, the one whose worker made the first write."""

    def is_due(self, cached: core.Node, now_s: float) -> bool:
        """Whether the watch has shown the first write, or it is too late to wait for that. Only when the watch has it,
        does the API server's own cache: a second write before is computed from the old state, refused by etcd, and
        computed again."""
        return cached.metadata.uid == self.uid and (not is_uninitialized(cached) or now_s >= self.due_s)


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """The flags of the same names."""

    concurrent_node_syncs: int = 16
    concurrent_node_status_updates: int = 0
    node_status_update_frequency_s: float = 300.0
    reconcile_node_labels: bool = True

    @property
    def refreshers(self) -> int:
        return self.concurrent_node_status_updates or self.concurrent_node_syncs


class NodeMetrics:
    """`node_controller_*`, under Kubernetes' names."""

    def __init__(self, registry: CollectorRegistry) -> None:
        buckets = (1, 4, 16, 64, 256, 1024)
        self.taint_removal = figures.Histogram(
            "node_controller_cloud_provider_taint_removal_delay_seconds",
            "Number of seconds after node creation when NodeController removed the cloud-provider taint of a node.",
            buckets=buckets,
            registry=registry,
        )
        self.initial_sync = figures.Histogram(
            "node_controller_initial_node_sync_delay_seconds",
            "Number of seconds after node creation when NodeController finished the initial synchronization of a node.",
            buckets=buckets,
            registry=registry,
        )


class NodeController:
    """The parts that run while leading: a queue and a refresh for each cloud that has instances."""

    def __init__(
        self,
        client: Client,
        clouds: Clouds,
        nodes: Cache[core.Node],
        recorder: Recorder,
        options: NodeOptions | None = None,
        time: clock.Clock | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._clouds = clouds
        self._nodes = nodes
        self._recorder = recorder
        self._options = options if options is not None else NodeOptions()
        self._time = time if time is not None else clock.SystemClock()
        self._registry = registry if registry is not None else CollectorRegistry()
        self._metrics = shared(self._registry, NodeMetrics)
        self._writer = NodeWriter(client, COMPONENT, self._time)
        self._owing: dict[str, _Owed] = {}
        """Nodes, by name, that were initialised and still lack their addresses. No worker waits with them."""
        self._queues: list[WorkQueue[str]] = []
        """A refresh leaves the nodes alone that a worker of a queue is at."""
        self._told: set[tuple[str, str]] = set()
        """What the log has mentioned already, by uid: the same sentence at every refresh would be noise."""
        self._refusals = node_refusals.Refusals()

    def parts(self) -> list[Leading]:
        """What a manager runs while leading; nothing when no cloud has instances."""
        providers = self._clouds.with_instances()
        if not providers:
            log.warning("node_controller.skipped", reason="no cloud provider has instances")
            return []
        groups: list[Provider | None] = [*providers]
        if self._clouds.sole is None:
            groups.append(None)
        parts: list[Leading] = []
        for number, provider in enumerate(groups):
            suffix = "" if number == 0 else f"-{provider.name if provider else 'unplaced'}"
            parts += self._parts_of(provider, suffix)
        return parts

    def _parts_of(self, provider: Provider | None, suffix: str) -> list[Leading]:
        def keys(change: Change[core.Node]) -> Iterable[str]:
            is_relevant = node_plan.is_of_interest(change.old, change.new) and self._is_of(change.new, provider)
            return (change.key,) if is_relevant else ()

        def awaited(change: Change[core.Node]) -> Iterable[str]:
            return (change.key,) if self._owes(change.new, provider) else ()

        queue = Controller(
            f"Nodes{suffix}",
            partial(self._sync, provider=provider),
            workers=self._options.concurrent_node_syncs,
            time=self._time,
            registry=self._registry,
        ).watches(self._nodes, awaited, is_first=True)
        queue.watches(self._nodes, keys)
        self._queues.append(queue.queue)
        period_s = self._options.node_status_update_frequency_s
        refresh = Refresh(f"node-refresh{suffix}", partial(self._refresh_all, provider, queue), period_s, self._time)
        return [queue, refresh]

    def _is_of(self, node: core.Node | None, provider: Provider | None) -> bool:
        """Whether a node belongs to this provider's queue (None: to the queue of nodes without a provider ID)."""
        if node is None:
            return False
        match self._clouds.place(node):
            case Owned(owner):
                return provider is not None and owner.name == provider.name
            case Foreign(reason, named):
                if self._is_new(node, reason):
                    log.info("node.foreign", node=node.name, reason=reason)
                if named and is_uninitialized(node):
                    # Of one of our clouds, so that no other manager will take care of it.
                    self._tell(node, node_refusals.REASON_FOREIGN_ID, reason)
                return False
        return self._clouds.sole is provider

    def _is_new(self, node: core.Node, sentence: str) -> bool:
        """Whether this was not said of this node before."""
        key = (node.metadata.uid, sentence)
        if key in self._told:
            return False
        self._told.add(key)
        return True

    def is_behind(self) -> bool:
        """Whether nodes wait for a worker."""
        return any(len(queue) for queue in self._queues)

    def _is_in_work(self, name: str) -> bool:
        owed = self._owing.get(name)
        return (owed is not None and owed.metadata is not None) or any(q.is_processing(name) for q in self._queues)

    def _owes(self, node: core.Node | None, provider: Provider | None) -> bool:
        """Whether this queue is to make the second write of a node now."""
        owed = self._owing.get(node.name) if node is not None else None
        if node is None or owed is None or owed.metadata is None or owed.queue is not provider:
            return False
        return owed.is_due(node, self._time.monotonic())

    # One node of a queue

    async def _sync(self, name: str, provider: Provider | None) -> Result | None:
        node = self._nodes.get(name)
        if node is None or node.metadata.is_deleting:
            self._owing.pop(name, None)
            return None
        owed = self._owing.get(name)
        if owed is not None and owed.uid != node.metadata.uid:
            del self._owing[name]
        elif owed is not None and owed.metadata is not None:
            return await self._settle(node, owed)
        elif owed is not None and not is_uninitialized(node):
            await self._settle_addresses(node)
        if not self._is_of(node, provider):
            return None
        if is_uninitialized(node):
            try:
                return await self._initialise(node, provider)
            except errors.Conflict:
                raise
            except (errors.BedplateError, TimeoutError) as err:
                if (postponed := self._refused(node, err)) is None:
                    raise
                raise postponed from err
        verdict = node_plan.reconcile_beta_labels(node)
        if verdict.patch is not None:
            await self._writer.patch(
                node, verdict.patch, lambda now: node_plan.reconcile_beta_labels(now).patch, RECONCILE
            )
            log.v(2).info("node.labels_reconciled", node=name, reason=verdict.reason)
        return None

    async def _initialise(self, node: core.Node, provider: Provider | None) -> Result | None:
        metadata: InstanceMetadata | None
        queue = provider
        if provider is not None:
            metadata = await self._ask(node, provider)
        elif (claimed := await self._claim(node)) is not None:
            provider, metadata = claimed
        else:
            return Result(CONTESTED_RETRY_S)
        cloud = provider.name
        verdict = node_plan.initialise(node, metadata, self._clouds, cloud)
        if verdict.kind is Kind.REFUSE:
            self._refuse(node, verdict)
        if verdict.patch is None or metadata is None:
            log.v(2).info("node.left", node=node.name, reason=verdict.reason)
            if metadata is None:
                self._tell(node, node_refusals.REASON_NO_INSTANCE, verdict.reason)
            return None
        self._warn(node, verdict)
        written = await self._writer.patch(
            node, verdict.patch, lambda now: node_plan.initialise(now, metadata, self._clouds, cloud).patch, INITIALISE
        )
        if written is None:
            return None
        self._refusals.forget(node.metadata.uid)
        self._metrics.taint_removal.observe(self._age_s(written))
        log.info("node.initialised", node=node.name, provider=cloud, provider_id=written.spec.provider_id)
        due_s = self._time.monotonic() + ECHO_TIMEOUT_S
        owed = _Owed(node.metadata.uid, written, metadata, due_s, queue)
        self._owing[node.name] = owed
        cached = self._nodes.get(node.name)
        if cached is None:
            del self._owing[node.name]
            return None
        return await self._settle(cached, owed)

    async def _settle(self, cached: core.Node, owed: _Owed) -> Result | None:
        """The second write, if it is due; else a worker comes back when the watch or the time says so."""
        now_s = self._time.monotonic()
        if not owed.is_due(cached, now_s):
            return Result(owed.due_s - now_s)
        self._owing[cached.name] = dataclasses.replace(owed, metadata=None)
        await self._publish(owed.written, node_plan.refresh(owed.written, owed.metadata, reconciles_labels=False))
        self._finish(owed.written)
        return None

    async def _claim(self, node: core.Node) -> tuple[Provider, InstanceMetadata] | None:
        """The cloud of a node without a provider ID; None when several have it, which only an operator can resolve."""
        async with asyncio.timeout(ASK_TIMEOUT_S):
            settled = await self._clouds.claim(node)
        match settled:
            case Claimed(provider, metadata):
                return provider, metadata
            case Contested(reason):
                self._event(node, events.WARNING, node_refusals.REASON_AMBIGUOUS, reason)
                log.warning("node.contested", node=node.name, reason=reason)
                return None
            case Waiting(reason, error, claimant):
                if claimant:
                    self._event(node, events.WARNING, node_plan.REASON_WAITING, reason)
                    raise _Told(reason, retry_after_s=getattr(error, "retry_after_s", None)) from error
                raise CloudError(reason, retry_after_s=getattr(error, "retry_after_s", None)) from error
            case Unclaimed(reason, is_unknown):
                if is_unknown:
                    raise InstanceNotFound(reason)
                log.v(2).info("node.left", node=node.name, reason=reason)
                return None

    async def _ask(self, node: core.Node, provider: Provider) -> InstanceMetadata | None:
        instances = self._clouds.instances(provider)
        assert instances is not None, "only providers with instances have parts"
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                return await instances.metadata(node)
        except InstanceNotFound as err:
            raise InstanceNotFound(f"node {node.name}: {provider.name} has no such instance: {err}") from err
        except AmbiguousInstance as err:
            reason = f"node {node.name}: {provider.name} has several machines of that name: {err}"
            raise CloudError(reason, hint="set the node's provider ID") from err
        except Exception as err:
            reason = f"node {node.name}: {provider.name} could not be queried: {str(err) or type(err).__name__}"
            hint, after_s = getattr(err, "hint", ""), getattr(err, "retry_after_s", None)
            raise CloudError(reason, hint=hint, retry_after_s=after_s) from err

    def _refuse(self, node: core.Node, verdict: Verdict) -> None:
        """Say why a node stays tainted; it is tried again, because annotations and clouds change."""
        if verdict.event_reason:
            self._event(node, events.WARNING, verdict.event_reason, verdict.reason)
            raise _Told(verdict.reason)
        raise errors.Retryable(verdict.reason)

    def _refused(self, node: core.Node, error: Exception) -> RetryError | None:
        """Say on the Node why it is not initialised; when it is tried again, where the queue is not to say that."""
        refusal, uid, now = node_refusals.refusal(node, error), node.metadata.uid, self._time.monotonic()
        if not isinstance(error, _Told) and self._refusals.is_due(uid, refusal.reason, now):
            self._event(node, events.WARNING, refusal.reason, refusal.message)
        if refusal.reason != node_refusals.REASON_NO_INSTANCE:
            return None
        return RetryError(str(error), after_s=self._refusals.retry_s(uid, refusal.reason, now))

    def _tell(self, node: core.Node, reason: str, why: str) -> None:
        if self._refusals.is_due(node.metadata.uid, reason, self._time.monotonic()):
            self._event(node, events.WARNING, reason, f"{why}; {node_refusals.remedy(node, reason)}")

    async def _settle_addresses(self, node: core.Node) -> None:
        """The second write once more, after it failed."""
        place = self._clouds.place(node)
        if isinstance(place, Owned) and (metadata := await self._ask(node, place.provider)) is not None:
            await self._publish(node, node_plan.refresh(node, metadata, reconciles_labels=False))
        self._finish(node)

    def _finish(self, node: core.Node) -> None:
        self._owing.pop(node.name, None)
        self._metrics.initial_sync.observe(self._age_s(node))
        self._event(node, events.NORMAL, node_plan.REASON_SYNCED, node_plan.MESSAGE_SYNCED)

    async def _publish(self, node: core.Node, verdict: Verdict) -> None:
        self._warn(node, verdict)
        if verdict.addresses is not None:
            await self._writer.addresses(node, verdict.addresses)

    # All nodes of a cloud

    async def _refresh_all(self, provider: Provider | None, queue: Controller) -> None:
        """Compare every node with its cloud. Tainted ones join the queue: after a long outage their backoff is long."""
        await self._nodes.synced.wait()
        known = {node.metadata.uid for node in self._nodes}
        self._told = {told for told in self._told if told[0] in known}
        self._refusals.keep(known)
        work: list[str] = []
        for node in self._nodes:
            if node.metadata.is_deleting or not self._is_of(node, provider):
                continue
            if is_uninitialized(node):
                queue.queue.add(node.name)
            else:
                work.append(node.name)
        if provider is None:
            return
        failures: list[str] = []

        async def one(name: str) -> None:
            if error := await self._refresh(name, provider):
                failures.append(error)

        await in_parallel(work, self._options.refreshers, one)
        if failures:
            log.warning("nodes.refresh_failed", provider=provider.name, nodes=len(failures), error=failures[0])

    async def _refresh(self, name: str, provider: Provider) -> str:
        """Compare one node with its cloud; why that failed, or nothing."""
        node = self._nodes.get(name)
        if node is None or not self._is_of(node, provider) or is_uninitialized(node) or self._is_in_work(name):
            return ""
        try:
            metadata = await self._ask(node, provider)
            await self._correct(node, metadata)
        except InstanceNotFound as err:
            log.v(2).info("node.refresh_absent", node=name, error=str(err))
        except errors.BedplateError as err:
            log.v(2).info("node.refresh_failed", node=name, error=errors.describe(err))
            return errors.describe(err)
        except Exception as err:
            log.exception("node.refresh_bug", node=name)
            return repr(err)
        return ""

    async def _correct(self, node: core.Node, metadata: InstanceMetadata | None) -> None:
        reconciles = self._options.reconcile_node_labels
        verdict = node_plan.refresh(node, metadata, reconciles_labels=reconciles)
        if verdict.kind is Kind.CORRECT:
            # The cache may lag behind a write of our own: what it lacks may be there.
            current = await self._writer.current(node)
            if current is None or self._is_in_work(node.name):
                return
            node, verdict = current, node_plan.refresh(current, metadata, reconciles_labels=reconciles)
        if verdict.patch is not None:
            await self._writer.patch(
                node,
                verdict.patch,
                lambda now: node_plan.refresh(now, metadata, reconciles_labels=reconciles).patch,
                RECONCILE,
            )
        await self._publish(node, verdict)
        level = 2 if verdict.kind is Kind.CORRECT else 5
        log.v(level).info("node.refreshed", node=node.name, reason=verdict.reason)

    # Small things

    def _warn(self, node: core.Node, verdict: Verdict) -> None:
        for warning in verdict.warnings:
            if self._is_new(node, warning):
                log.warning("node.warning", node=node.name, reason=warning)

    def _event(self, node: core.Node, type_: str, reason: str, message: str) -> None:
        self._recorder.event(events.reference(NODES, node), type_, reason, message)

    def _age_s(self, node: core.Node) -> float:
        created = node.metadata.creation_timestamp
        return max(0.0, (self._time.now() - created).total_seconds()) if created is not None else 0.0


@dataclass(slots=True)
class Refresh:
    """The periodic refresh of one cloud's nodes; the first at once, the next a period after the last has ended."""

    name: str
    refresh: Callable[[], Awaitable[None]]
    period_s: float
    time: clock.Clock

    async def run(self) -> None:
        while True:
            await self.refresh()
            await self.time.sleep(self.period_s)
