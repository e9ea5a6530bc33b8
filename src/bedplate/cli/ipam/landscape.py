"""All pools of a cluster together: their views, who holds what, which networks overlap, which nodes go without.

In: a `Survey`, and holdings of stores if some were read. Out: `Landscape`, which tables, pictures and explanations ask.
Pure; the controller's own plan says which nodes would get no block, and why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from bedplate.api import core
from bedplate.cli.ipam import build_views
from bedplate.cli.ipam.holders import Holding
from bedplate.cli.ipam.survey import Pool, Survey
from bedplate.cli.ipam.views import PoolView
from bedplate.ipam import plan_cidrpool, plan_ippool, pools, quarantine, validation, warnings
from bedplate.ipam.addresses import Address
from bedplate.ipam.planning import PlanNode, Unplaced

__all__ = ["Landscape", "oddities", "see"]


@dataclass(frozen=True, slots=True)
class Landscape:
    """What there is. `views` are those of `pools`, in the same order."""

    namespace: str
    now: datetime
    pools: tuple[Pool, ...]
    views: tuple[PoolView, ...]
    nodes: tuple[core.Node, ...]
    holdings: tuple[Holding, ...]
    has_stores: bool

    def overlaps(self, key: str) -> list[tuple[str, str]]:
        """The other pools that share addresses with this one, each with a sentence."""
        territories = {view.key: territory_of(pool) for pool, view in zip(self.pools, self.views, strict=True)}
        mine = territories.pop(key)
        if mine is None:
            return []
        others = [territory for territory in territories.values() if territory is not None]
        return [
            (overlap.other, f"{overlap}: two pods may get the same address")
            for overlap in warnings.overlaps_of(mine, others)
        ]

    def unplaced(self, key: str) -> Mapping[str, str]:
        """Nodes that the controller would leave without a block, and why: exhausted or quarantined."""
        pool = next(pool for pool, view in zip(self.pools, self.views, strict=True) if view.key == key)
        return unplaced(pool, self.nodes, self.now)


def see(survey: Survey, now: datetime, stored: Iterable[Holding] | None = None) -> Landscape:
    """Put it together. `stored`: what nodes' stores say, None when none was read."""
    holdings = list(survey.holdings)
    if stored is not None:
        known = {(holding.address, holding.uid) for holding in holdings}
        holdings += [holding for holding in stored if (holding.address, holding.uid) not in known or not holding.uid]
    used = _ordered(holding.address for holding in holdings)
    views = tuple(
        build_views.view_of(pool, used=used, quarantined=quarantined(pool, now), problems=problems_of(pool))
        for pool in survey.pools
    )
    holdings = [_placed(holding, views) for holding in holdings]
    return Landscape(
        survey.namespace,
        now,
        survey.pools,
        views,
        survey.nodes,
        tuple(holdings),
        has_stores=stored is not None,
    )


def _ordered(known: Iterable[Address]) -> list[Address]:
    """In order, each once: by numbers alone, as there may be 100,000."""
    by_family: dict[int, set[int]] = {}
    for bits, value in known:
        by_family.setdefault(bits, set()).add(value)
    return [Address(bits, value) for bits in sorted(by_family) for value in sorted(by_family[bits])]


def _placed(holding: Holding, views: Iterable[PoolView]) -> Holding:
    """A store does not name its node; whose block the address is of does."""
    if holding.node:
        return holding
    blocks = [view.block_with(holding.address) for view in views if holding.pool in ("", view.key)]
    node = next((block.node for block in blocks if block is not None), "")
    return msgspec.structs.replace(holding, node=node)


def problems_of(pool: Pool) -> list[str]:
    """What is wrong with the spec."""
    if isinstance(pool, pools.IPPool):
        return [str(problem) for problem in validation.ippool_problems(pool.name, pool.spec)]
    return [str(problem) for problem in validation.cidrpool_problems(pool.name, pool.spec)]


def territory_of(pool: Pool) -> warnings.Territory | None:
    """What a pool may give; None for an invalid one, which gives nothing."""
    if problems_of(pool):
        return None
    if isinstance(pool, pools.IPPool):
        return warnings.ippool_territory(f"IPPool {pool.name}", pool.spec)
    return warnings.cidrpool_territory(f"CIDRPool {pool.name}", pool.spec)


def oddities(pool: Pool) -> list[str]:
    """What a valid spec says that is hardly meant."""
    if isinstance(pool, pools.IPPool):
        return warnings.ippool_warnings(pool.spec)
    return warnings.cidrpool_warnings(pool.spec)


def quarantined(pool: Pool, now: datetime) -> build_views.Held:
    """The blocks that the pool's annotation still keeps back."""
    return {entry.block: (entry.node, entry.until) for entry in _entries(pool) if entry.until > now}


def unplaced(pool: Pool, nodes: Sequence[core.Node], now: datetime) -> dict[str, str]:
    """Who would get no block now, by the controller's own plan: exhausted or quarantined."""
    plan_nodes = [PlanNode(node.name, node.metadata.labels) for node in nodes]
    hold = quarantine.Hold(quarantine.Policy.ALWAYS)
    nodes_without: tuple[Unplaced, ...]
    if isinstance(pool, pools.IPPool):
        ippool = pool
        nodes_without = quarantine.plan_held(
            lambda blocks: plan_ippool.plan_ippool(ippool, plan_nodes, blocks), _entries(pool), now, hold
        ).plan.unplaced
    else:
        cidrpool = pool
        nodes_without = quarantine.plan_held(
            lambda blocks: plan_cidrpool.plan_cidrpool(cidrpool, plan_nodes, blocks), _entries(pool), now, hold
        ).plan.unplaced
    return {item.node: str(item.why) for item in nodes_without}


def _entries(pool: Pool) -> tuple[quarantine.Entry, ...]:
    return quarantine.read(pool.metadata.annotations.get(quarantine.ANNOTATION)).entries
