"""What is odd about a pool, by itself and beside the others.

In: the pools that are known, and one that is looked at or is about to be stored. Out: sentences, for Events and for
the webhook's warnings. What the sentences say is decided by `warnings.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bedplate.ipam import warnings
from bedplate.ipam.controller.kinds import Kind
from bedplate.ipam.warnings import Territory
from bedplate.runtime.cache import Cache

__all__ = ["Neighbours"]

_TERRITORIES: Mapping[str, Callable[[str, Any], Territory | None]] = {
    "ippool": warnings.ippool_territory,
    "cidrpool": warnings.cidrpool_territory,
}
_WARNINGS: Mapping[str, Callable[[Any], list[str]]] = {
    "ippool": warnings.ippool_warnings,
    "cidrpool": warnings.cidrpool_warnings,
}
_KINDS = {"ippool": "IPPool", "cidrpool": "CIDRPool"}


class Neighbours:
    """The pools of both kinds."""

    def __init__(self, pools: Mapping[str, Cache[Any]]) -> None:
        self._pools = pools
        self._known: dict[tuple[str, str], tuple[Any, Territory | None]] = {}
        """By kind and key: a spec and what it may give."""

    def overlaps(self, kind: Kind[Any], pool: Any) -> list[str]:
        """With which other pools this one shares addresses."""
        own = _territory(kind.name, pool)
        if own is None:
            return []
        return [str(overlap) for overlap in warnings.overlaps_of(own, self._territories())]

    def warnings(self, kind: Kind[Any], pool: Any) -> list[str]:
        """What to say about a pool that may be stored."""
        return [*_WARNINGS[kind.name](pool.spec), *self.overlaps(kind, pool)]

    def _territories(self) -> list[Territory]:
        """What every known pool may give; computed again only where a spec changed."""
        before, self._known = self._known, {}
        for kind, cache in self._pools.items():
            for pool in cache:
                place = (kind, pool.name)
                known = before.get(place)
                if known is None or known[0] != pool.spec:
                    known = (pool.spec, _territory(kind, pool))
                self._known[place] = known
        return [territory for _, territory in self._known.values() if territory is not None]


def _territory(kind: str, pool: Any) -> Territory | None:
    return _TERRITORIES[kind](f"{_KINDS[kind]} {pool.name}", pool.spec)
