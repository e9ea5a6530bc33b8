"""One pass over one pool: read, plan, tell, write.

In: a pool's key; caches of nodes and pools. Out: the pool's status, Events, metrics. Every decision is made by the
plans; here it is only found out whether anything is to be done:

    a node came, went or has other labels      the pools whose set of nodes changed, together with others of the moment
    a pool's spec or annotations changed       that pool, at once
    a pool's status changed                    that pool, unless it is what the last pass planned
    anything else, such as a heartbeat         nothing: what a pool asks of a node is its name and its labels
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry

from bedplate.api import meta
from bedplate.core import clock, logging
from bedplate.core.metrics import shared
from bedplate.ipam import selectors, validation
from bedplate.ipam.controller import telling
from bedplate.ipam.controller.holding import Holding, HoldingPlan
from bedplate.ipam.controller.kinds import Kind
from bedplate.ipam.controller.metrics import PoolMetrics, Usage
from bedplate.ipam.controller.pacing import Pace, Pacer
from bedplate.ipam.controller.statuses import Statuses
from bedplate.ipam.planning import Held, Mode, Plan, PlanNode, Unplaced, UnplacedWhy
from bedplate.ipam.pools import CIDRPool, IPPool, NodeSelector
from bedplate.kube import errors as kube_errors
from bedplate.runtime import events
from bedplate.runtime.cache import Cache, Change
from bedplate.runtime.controller import Controller, Result
from bedplate.runtime.manager import Leading
from bedplate.runtime.workqueue import RateLimit

__all__ = ["PoolController"]

P = TypeVar("P", bound=IPPool | CIDRPool)
WORKERS = 4
RECONCILE_TIMEOUT_S = 120.0
# A node waits for its block: an API server that recovers is not left alone for a quarter of an hour.
RETRIES = RateLimit(first_s=0.02, cap_s=15.0)


class _Roster:
    """The nodes of a cache as plans want them, and selectors as tests; both are made once and kept."""

    def __init__(self, cache: Cache[meta.PartialObject]) -> None:
        self._cache = cache
        self._nodes: tuple[PlanNode, ...] | None = None
        self._tests: dict[str, tuple[NodeSelector | None, selectors.Test]] = {}

    def note(self, change: Change[Any]) -> bool:
        """Hear of a change; whether it is news."""
        if not _is_news(change):
            return False
        self._nodes = None
        return True

    def nodes(self) -> tuple[PlanNode, ...]:
        """Every node there is."""
        if self._nodes is None:
            self._nodes = tuple(PlanNode(node.name, node.metadata.labels) for node in self._cache)
        return self._nodes

    def has(self, name: str) -> bool:
        """The node exists."""
        return name in self._cache

    def test(self, key: str, selector: NodeSelector | None) -> selectors.Test:
        """The test of a pool's selector; `key` is the pool's, under which it is kept while it stays the same."""
        known = self._tests.get(key)
        # Pools are decoded again with every change, so equal selectors are rarely the same object.
        if known is None or known[0] != selector:
            known = self._tests[key] = (selector, selectors.matcher(selector))
        return known[1]

    def forget(self, key: str) -> None:
        """The pool is gone."""
        self._tests.pop(key, None)


@dataclass(slots=True)
class PoolController(Generic[P]):
    """Serves the pools of one kind. `parts` run while leading."""

    kind: Kind[P]
    pools: Cache[P]
    nodes: Cache[meta.PartialObject]
    statuses: Statuses[P]
    holding: Holding
    teller: telling.Teller
    overlaps: Callable[[Kind[Any], Any], Sequence[str]]
    mode: Mode = Mode.STABLE
    pace: Pace = field(default_factory=Pace)
    time: clock.Clock = field(default_factory=clock.SystemClock)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    passes: int = 0
    """How often a pool was looked at."""
    _roster: _Roster = field(init=False)
    _pacer: Pacer = field(init=False)
    _controller: Controller = field(init=False)
    _metrics: PoolMetrics = field(init=False)
    _planned: dict[str, tuple[Any, ...] | None] = field(init=False, default_factory=dict)
    """What each pool's status shall be, by the last pass; None while the first one is under way."""
    _uids: dict[str, str] = field(init=False, default_factory=dict)
    _log: logging.Logger = field(init=False)

    def __post_init__(self) -> None:
        self._roster = _Roster(self.nodes)
        self._metrics = shared(self.registry, PoolMetrics)
        self._log = logging.get_logger("ipam.pool", kind=self.kind.ref.kind)
        self._controller = Controller(
            self.kind.name,
            self.reconcile,
            workers=WORKERS,
            limit=RETRIES,
            timeout_s=RECONCILE_TIMEOUT_S,
            time=self.time,
            registry=self.registry,
        )
        self._controller.watches(self.pools, self._pool_changed).watches(self.nodes, self._node_changed)
        self._pacer = Pacer(f"{self.kind.name} joins", self._controller.queue.add, pace=self.pace, time=self.time)

    def parts(self) -> list[Leading]:
        """What runs while leading."""
        return [self._controller, self._pacer]

    # What concerns whom

    def _pool_changed(self, change: Change[Any]) -> Iterable[str]:
        old, new = change.old, change.new
        planned = self._planned.get(change.key)
        if old is None or new is None or planned is None or old.metadata.uid != new.metadata.uid:
            return (change.key,)
        is_same = old.spec == new.spec and old.metadata.annotations == new.metadata.annotations
        if is_same and new.status.allocations == planned:
            return ()
        return (change.key,)

    def _node_changed(self, change: Change[Any]) -> Iterable[str]:
        concerned = False
        if self._roster.note(change):
            # A pool without a plan has not been looked at yet, and will be: with all nodes there are then.
            for key in self._planned:
                pool = self.pools.get(key)
                if pool is not None and _matters(change, self._roster.test(key, pool.spec.node_selector)):
                    self._pacer.touch(key)
                    concerned = True
        self._metrics.changes.labels(self.kind.name, "yes" if concerned else "no").inc()
        return ()

    # One pass

    async def reconcile(self, key: str) -> Result | None:
        """Bring one pool up to date."""
        pool = self.statuses.present(key)
        if pool is None:
            self._forget(key)
            return None
        if self._uids.get(key) not in (None, pool.metadata.uid):
            # Deleted and created again between two passes.
            self._forget(key)
        self._uids[key] = pool.metadata.uid
        self.passes += 1
        # From here on changes of nodes concern this pool; those until now are part of the plan.
        self._planned.setdefault(key, None)
        about = events.reference(self.kind.ref, pool)
        self.teller.state(about, key, telling.OVERLAP, self.overlaps(self.kind, pool))
        holding = await self.holding.plan(pool, functools.partial(self._plan, pool), self._roster.has)
        plan = holding.plan
        self._planned[key] = plan.allocations
        self._tell(key, pool, about, holding)
        if await self.holding.remember(self.statuses, key, pool, holding):
            self._log.v(1).info("pool.quarantine_written", pool=key, blocks=len(holding.entries))
            pool = self.statuses.present(key) or pool
        if plan.allocations != pool.status.allocations:
            await self._write(key, pool, about, plan)
            self._log.v(1).info("pool.status_written", pool=key, blocks=len(plan.allocations))
            if plan.unplaced:
                # What this plan freed may be allocated in the next one.
                return Result(requeue_after_s=0.0)
        return Result(requeue_after_s=holding.again_s)

    async def _write(self, key: str, pool: P, about: meta.ObjectReference, plan: Plan[Any]) -> None:
        """Write the status. A server that refuses it for good (too large for its store, say) is told about: the nodes
        without a block would otherwise never learn why."""
        try:
            await self.statuses.write(key, pool, plan.allocations)
        except kube_errors.Conflict:
            raise
        except kube_errors.ApiError as refused:
            text = f"the status with {len(plan.allocations)} blocks could not be written: {refused}"
            if _is_too_large(refused):
                text += "; make several pools that select fewer nodes each"
            self.teller.state(about, key, telling.NOT_WRITTEN, [text])
            raise
        self.teller.state(about, key, telling.NOT_WRITTEN, [])

    def _plan(self, pool: P, quarantined: Held) -> Plan[Any]:
        return self.kind.plan(pool, self._roster.nodes(), quarantined, self.mode)

    def _tell(self, key: str, pool: P, about: meta.ObjectReference, holding: HoldingPlan) -> None:
        plan = holding.plan
        text = validation.summary(plan.problems)
        self.teller.state(about, key, telling.INVALID_SPEC, [text] if text else [])
        if not plan.problems:
            has_blocks = not plan.unplaced or self.kind.capacity(pool) > 0
            reasons = {node.node: _why(node, has_blocks=has_blocks) for node in plan.unplaced}
            self.teller.nodes(about, key, self.kind.exhausted, reasons)
        usage = Usage(
            capacity=0 if plan.problems else self.kind.capacity(pool),
            used=len(plan.allocations),
            quarantined=len(holding.entries),
            nodes_without_block=len(plan.unplaced),
            is_valid=not plan.problems,
            usable=functools.partial(self.kind.usable, pool.spec, plan.allocations),
        )
        self._metrics.show(self.kind.name, pool.name, usage)

    def _forget(self, key: str) -> None:
        self.holding.forget(self._uids.pop(key, ""))
        self._planned.pop(key, None)
        self._roster.forget(key)
        self.statuses.forget(key)
        self.teller.forget(key)
        self._metrics.forget(self.kind.name, key.rpartition("/")[2])


def _is_too_large(refused: kube_errors.ApiError) -> bool:
    # etcd's own refusal comes through as an internal error of the API server.
    return refused.code == 413 or "too large" in refused.message


def _why(node: Unplaced, *, has_blocks: bool) -> str:
    if not has_blocks:
        return f"no block for node {node.node}: spec.exclusions and what is reserved leave none of the pool"
    if node.why is UnplacedWhy.QUARANTINED:
        return f"no free block for node {node.node}: the remaining blocks are held back for nodes that were removed"
    return f"no free block for node {node.node}: the pool is exhausted"


def _is_news(change: Change[meta.PartialObject]) -> bool:
    """The node is new, gone, or has other labels."""
    if change.old is None or change.new is None:
        return True
    return change.old.metadata.labels != change.new.metadata.labels


def _matters(change: Change[meta.PartialObject], test: selectors.Test) -> bool:
    """The pool with this selector has another node now, or one less."""
    return _is_selected(change.old, test) != _is_selected(change.new, test)


def _is_selected(node: meta.PartialObject | None, test: selectors.Test) -> bool:
    return node is not None and test(node.name, node.metadata.labels)
