"""Rows for people and data for programs: pools, blocks and allocations.

In: a `Landscape`. Out: column titles and rows for tables, plain values for JSON. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bedplate.cli import display
from bedplate.cli.ipam.holders import Holding
from bedplate.cli.ipam.landscape import Landscape
from bedplate.cli.ipam.views import Block, PoolView
from bedplate.core.clock import rfc3339
from bedplate.ipam import addresses

__all__ = ["Table", "allocations", "blocks", "count", "pools"]


@dataclass(frozen=True, slots=True)
class Table:
    """What `display.show` prints. `make_data`: the same for programs, made only for them; there may be 100,000 rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    make_data: Callable[[], Any]

    @property
    def data(self) -> Any:
        return self.make_data()


def count(number: int) -> str:
    """A number that may be very large: addresses of IPv6 come in many zeros."""
    return str(number) if number < 10**9 else f"{number:.1e}"


def pools(land: Landscape) -> Table:
    columns = ("kind", "name", "network", "gateway", "a node", "blocks", "free", "quarantined", "in use", "of", "state")
    rows = [
        (
            view.kind,
            view.name,
            view.network_text,
            view.gateway or "-",
            view.block_text,
            len(view.blocks),
            count(view.free),
            len(view.held),
            view.used,
            count(view.usable),
            _state(view, land),
        )
        for view in land.views
    ]
    return Table(columns, rows, lambda: [_pool(view, land) for view in land.views])


def _state(view: PoolView, land: Landscape) -> str:
    others = [name for name, _ in land.overlaps(view.key)]
    return f"overlaps {', '.join(others)}" if others else view.state


def _pool(view: PoolView, land: Landscape) -> dict[str, Any]:
    return {
        "kind": view.kind,
        "name": view.name,
        "namespace": view.namespace,
        "key": view.key,
        "network": view.network_text,
        "gateway": view.gateway,
        "perNode": view.grid.stride if view.grid is not None else 0,
        "blocks": {
            "total": view.total,
            "given": len(view.blocks),
            "free": view.free,
            "quarantined": len(view.held),
            "reserved": len(view.reserved),
            "excluded": view.excluded.total(),
        },
        "quarantine": [
            {"block": block.text, "node": block.node, "until": _moment(block.until), "index": block.index}
            for block in view.held
        ],
        "addresses": {"used": view.used, "usable": view.usable},
        "state": _state(view, land),
        "problems": list(view.problems),
        "overlaps": [name for name, _ in land.overlaps(view.key)],
    }


def blocks(land: Landscape, pool: str = "", node: str = "") -> Table:
    """The blocks of all pools, or of one, or of one node."""
    listed = [
        (view, block)
        for view in land.views
        if pool in ("", view.name, view.key)
        for block in view.blocks
        if node in ("", block.node)
    ]
    columns = ("pool", "kind", "node", "block", "gateway", "in use", "of")
    rows = [
        (view.name, view.kind, block.node, block.text, block.gateway or "-", block.used, count(block.usable))
        for view, block in listed
    ]
    return Table(columns, rows, lambda: [_block(view, block) for view, block in listed])


def _block(view: PoolView, block: Block) -> dict[str, Any]:
    bits = block.first.bits
    return {
        "pool": view.name,
        "kind": view.kind,
        "node": block.node,
        "block": block.text,
        "first": str(block.first),
        "last": str(block.last),
        "gateway": str(block.gateway) if block.gateway is not None else "",
        "excluded": [f"{addresses.text(bits, lo)}-{addresses.text(bits, hi)}" for lo, hi in block.excluded],
        "used": block.used,
        "usable": block.usable,
    }


def allocations(land: Landscape, *, pool: str = "", node: str = "", pod: str = "") -> Table:
    """Who holds which address of the pools."""
    pairs: list[tuple[Holding, PoolView | None]] = []
    for holding in sorted(land.holdings, key=lambda each: (each.address, each.source)):
        if node not in ("", holding.node) or pod not in ("", holding.who):
            continue
        views = _pools_of(holding, land.views)
        if not views and holding.source != "store":
            # An address of another network, such as the cluster's first one.
            continue
        if pool and pool != holding.pool and all(pool not in (view.name, view.key) for view in views):
            continue
        pairs.append((holding, views[0] if views else None))
    columns = ("address", "pool", "node", "pod", "interface", "age", "source")
    rows = [
        (
            holding.address,
            view.name if view is not None else holding.pool or "-",
            holding.node or "-",
            holding.who,
            holding.interface or "-",
            display.age((land.now - holding.since).total_seconds()) if holding.since is not None else "-",
            holding.source,
        )
        for holding, view in pairs
    ]
    return Table(columns, rows, lambda: [_holding(holding, view) for holding, view in pairs])


def _pools_of(holding: Holding, views: Iterable[PoolView]) -> list[PoolView]:
    if holding.pool:
        return [view for view in views if view.key == holding.pool]
    return [view for view in views if view.network is not None and view.network.holds(holding.address)]


def _holding(holding: Holding, view: PoolView | None) -> dict[str, Any]:
    return {
        "address": str(holding.address),
        "pool": view.name if view is not None else holding.pool,
        "kind": view.kind if view is not None else "",
        "node": holding.node,
        "namespace": holding.namespace,
        "pod": holding.pod,
        "uid": holding.uid,
        "interface": holding.interface,
        "network": holding.network,
        "container": holding.container,
        "device": holding.device,
        "since": _moment(holding.since),
        "source": holding.source,
    }


def _moment(when: datetime | None) -> str | None:
    return rfc3339(when) if when is not None else None
