"""What is said about a pool beside the others; a pool that makes no sense must not disturb its neighbours."""

from __future__ import annotations

import random
from typing import Any

import msgspec
from tests.ipam import generators

from bedplate.ipam.controller import kinds
from bedplate.ipam.controller.neighbours import Neighbours
from bedplate.ipam.planning import NOTHING, Mode
from bedplate.ipam.pools import CIDRPool, IPPool
from bedplate.runtime.cache import Cache

MODELS: dict[str, Any] = {"IPPool": (kinds.IPPOOL, IPPool), "CIDRPool": (kinds.CIDRPOOL, CIDRPool)}


class Place:
    def __init__(self) -> None:
        self.pools: dict[str, Cache[Any]] = {"ippool": Cache(), "cidrpool": Cache()}
        self.neighbours = Neighbours(self.pools)

    def put(self, kind: str, name: str, spec: Any) -> Any:
        pool = msgspec.convert({"metadata": {"name": name, "namespace": "ns"}, "spec": spec}, MODELS[kind][1])
        self.pools[kind.lower()].put(pool, "1")
        return pool


def test_pools_of_both_kinds_that_share_addresses_are_named() -> None:
    place = Place()
    one = place.put("IPPool", "p", {"subnet": "10.0.0.0/16", "perNodeBlockSize": 4})
    two = place.put("CIDRPool", "p", {"cidr": "10.0.4.0/24", "perNodeNetworkPrefix": 26})
    place.put("IPPool", "far", {"subnet": "10.1.0.0/16", "perNodeBlockSize": 4})
    assert len(place.neighbours.overlaps(kinds.IPPOOL, one)) == 1
    (text,) = place.neighbours.warnings(kinds.CIDRPOOL, two)
    assert "CIDRPool p" in text and "IPPool p" in text


def test_a_changed_or_deleted_neighbour_is_noticed() -> None:
    place = Place()
    one = place.put("IPPool", "one", {"subnet": "10.0.0.0/16", "perNodeBlockSize": 4})
    two = place.put("IPPool", "two", {"subnet": "10.0.1.0/24", "perNodeBlockSize": 4})
    assert place.neighbours.overlaps(kinds.IPPOOL, one)
    place.put("IPPool", "two", {"subnet": "10.9.1.0/24", "perNodeBlockSize": 4})
    assert not place.neighbours.overlaps(kinds.IPPOOL, one)
    place.put("IPPool", "two", {"subnet": "10.0.1.0/24", "perNodeBlockSize": 4})
    assert place.neighbours.overlaps(kinds.IPPOOL, one)
    place.pools["ippool"].remove(two, "2")
    assert not place.neighbours.overlaps(kinds.IPPOOL, one)


def test_pools_that_make_no_sense_disturb_nobody() -> None:
    place = Place()
    for seed in range(1500):
        rng = random.Random(seed)
        kind = rng.choice(sorted(MODELS))
        model = MODELS[kind][0]
        pool = place.put(kind, f"p{seed % 30}", generators.wild(rng, kind)[1])
        place.neighbours.overlaps(model, pool)
        if not model.plan(pool, (), NOTHING, Mode.STABLE).problems:
            place.neighbours.warnings(model, pool)
            assert model.capacity(pool) >= 0, pool.spec
