"""Blocks that are held back: what the plan needs to know of pods, and the annotation it is remembered in.

In: a pool, a planner. Out: a plan that keeps blocks of nodes that went away from others for a while, and what the
pool's annotation shall say. `quarantine.py` decides; here pods are asked for, and what the role does not allow is
told once: without the right to list pods nothing is held back, without the right to patch pools it is remembered in
memory alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from bedplate.core import clock, errors, logging
from bedplate.ipam import quarantine
from bedplate.ipam.controller.podrecords import PodRecords, uses_of
from bedplate.ipam.planning import NOTHING, FreedWhy, Held, Plan
from bedplate.ipam.pools import CIDRPool, IPPool
from bedplate.ipam.quarantine import ANNOTATION, Entry, Policy

__all__ = ["Holding", "HoldingPlan"]

log = logging.get_logger("ipam.quarantine")
LOOK_AGAIN_S = 15.0
"""How often the pods of nodes that went away are looked for again."""

Planner = Callable[[Held], Plan[Any]]
Pool = IPPool | CIDRPool


@dataclass(frozen=True, slots=True)
class HoldingPlan:
    """A plan, what is held back with it, and after how long that is to be looked at again."""

    plan: Plan[Any]
    entries: tuple[Entry, ...] = ()
    again_s: float | None = None

    @property
    def annotation(self) -> str:
        """What the pool's annotation shall be; empty: none."""
        return quarantine.write(self.entries)


class _Asked:
    """Says no for every node, and knows afterwards which were asked for: their pods are then looked for."""

    def __init__(self) -> None:
        self.nodes: set[str] = set()

    def __call__(self, node: str) -> bool:
        self.nodes.add(node)
        return False


@dataclass(slots=True)
class Holding:
    """Holds blocks back for all pools of the program."""

    policy: Policy
    period_s: float
    pods: PodRecords
    time: clock.Clock = field(default_factory=clock.SystemClock)
    _is_told: set[str] = field(default_factory=set)
    _memory: dict[str, tuple[Entry, ...]] = field(default_factory=dict)
    """By pool's uid: what could not be written down."""
    _looked_at: dict[str, float] = field(default_factory=dict)
    """By pool's uid: when the pods of its held blocks were last looked for."""

    async def plan(self, pool: Pool, planner: Planner, exists: Callable[[str], bool]) -> HoldingPlan:
        """Plan the pool. `exists`: whether there is a node of that name."""
        if self.policy is Policy.OFF:
            return HoldingPlan(planner(NOTHING))
        before = await self._still_used(pool, self._entries(pool), exists)
        if not before:
            plan = planner(NOTHING)
            if not any(freed.why is FreedWhy.NODE_GONE for freed in plan.freed):
                return HoldingPlan(plan)
        hold = quarantine.Hold(self.policy, timedelta(seconds=self.period_s))
        asked = _Asked()
        if self.policy is Policy.PODS:
            hold = replace(hold, has_pods=asked)
        quarantined = quarantine.plan_held(planner, before, self.time.now(), hold)
        if asked.nodes:
            using = await self._using(pool, quarantined.plan, asked.nodes, exists)
            if using:
                hold = replace(hold, has_pods=using.__contains__)
                quarantined = quarantine.plan_held(planner, before, self.time.now(), hold)
        if quarantined.left_out:
            log.warning("quarantine.too_many", pool=pool.name, left_out=len(quarantined.left_out))
        return HoldingPlan(quarantined.plan, quarantined.entries, self._again_s(quarantined))

    async def remember(self, statuses: Any, key: str, pool: Pool, holding: HoldingPlan) -> bool:
        """Write down what is held back, before the status that gives it up; whether that was needed."""
        annotation = holding.annotation
        if annotation == pool.metadata.annotation(ANNOTATION) or holding.plan.problems:
            return False
        if "patch" in self._is_told:
            self._memory[pool.metadata.uid] = holding.entries
            return False
        try:
            await statuses.annotate(key, pool, ANNOTATION, annotation or None)
        except errors.Denied as err:
            self._tell("patch", "blocks are held back in memory only and are lost on restart", err)
            self._memory[pool.metadata.uid] = holding.entries
            return False
        return True

    def forget(self, uid: str) -> None:
        """The pool is gone."""
        self._memory.pop(uid, None)
        self._looked_at.pop(uid, None)

    def _entries(self, pool: Pool) -> tuple[Entry, ...]:
        reading = quarantine.read(pool.metadata.annotation(ANNOTATION))
        if reading.complaint:
            log.v(1).warning("quarantine.unreadable", pool=pool.name, problem=reading.complaint)
        kept = {entry.block: entry for entry in self._memory.get(pool.metadata.uid, ())}
        return tuple((kept | {entry.block: entry for entry in reading.entries}).values())

    async def _still_used(
        self, pool: Pool, entries: tuple[Entry, ...], exists: Callable[[str], bool]
    ) -> tuple[Entry, ...]:
        """Without those whose pods have gone meanwhile; looked at now and then."""
        uid, now = pool.metadata.uid, self.time.monotonic()
        last = self._looked_at.get(uid)
        if not entries or self.policy is not Policy.PODS:
            self._looked_at.pop(uid, None)
            return entries
        if last is not None and now - last < LOOK_AGAIN_S:
            return entries
        self._looked_at[uid] = now
        pods = await self._pods({entry.node for entry in entries})
        if pods is None:
            return entries
        used = uses_of(((entry.node, entry.block) for entry in entries), pods, exists)
        return tuple(entry for entry in entries if (entry.node, entry.block) in used)

    async def _using(
        self, pool: Pool, plan: Plan[Any], nodes: set[str], exists: Callable[[str], bool]
    ) -> frozenset[str]:
        pods = await self._pods(nodes)
        if pods is None:
            return frozenset()
        self._looked_at[pool.metadata.uid] = self.time.monotonic()
        gone = ((freed.node, freed.block) for freed in plan.freed if freed.why is FreedWhy.NODE_GONE)
        using = uses_of(gone, pods, exists)
        for node, block in sorted(using):
            log.info("quarantine.held", pool=pool.name, node=node, block=block, for_s=self.period_s)
        return frozenset(node for node, _ in using)

    async def _pods(self, nodes: set[str]) -> Any:
        if "list" in self._is_told:
            return None
        try:
            return await self.pods.of(nodes)
        except errors.Denied as err:
            self._tell("list", "no block is held back, as with the original", err)
            return None

    def _again_s(self, quarantined: quarantine.Quarantined[Any]) -> float | None:
        end = quarantined.next_end()
        if end is None:
            return None
        left_s = max(0.1, (end - self.time.now()).total_seconds())
        return min(left_s, LOOK_AGAIN_S) if self.policy is Policy.PODS else left_s

    def _tell(self, what: str, effect: str, err: errors.Denied) -> None:
        self._is_told.add(what)
        hint = "grant the role in the shipped manifests, or disable it with --quarantine=off"
        log.warning("quarantine.denied", effect=effect, error=str(err), hint=hint)
