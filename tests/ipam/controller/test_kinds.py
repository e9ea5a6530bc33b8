"""How many blocks and addresses pools have, and what is said about one beside the others."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from tests.ipam import generators

from bedplate.ipam.controller import kinds
from bedplate.ipam.planning import NOTHING, Mode, PlanNode
from bedplate.ipam.pools import CIDRAllocation, CIDRPool, CIDRPoolSpec, IPAllocation, IPPool, IPPoolSpec
from bedplate.runtime.cache import Cache

MODELS: dict[str, Any] = {"IPPool": (kinds.IPPOOL, IPPool), "CIDRPool": (kinds.CIDRPOOL, CIDRPool)}
MOST = 600


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_capacity_is_how_many_nodes_get_a_block(kind: str) -> None:
    checked = 0
    for seed in range(600):
        rng = random.Random(seed)
        spec = generators.ippool_spec(rng) if kind == "IPPool" else generators.cidrpool_spec(rng)
        spec.pop("nodeSelector", None)
        model, pool_type = MODELS[kind]
        pool = msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, pool_type)
        capacity = model.capacity(pool)
        if capacity > MOST:
            continue
        # Every node that has a static prefix, and more others than there can be blocks.
        named = {entry.get("nodeName", "") for entry in spec.get("staticAllocations", ())} - {""}
        names = sorted(named | {f"other-{number:04}" for number in range(capacity + 5)})
        plan = model.plan(pool, [PlanNode(name) for name in names], NOTHING, Mode.STABLE)
        assert not plan.problems and len(plan.allocations) == capacity, spec
        checked += 1
    assert checked > 300


@pytest.mark.parametrize(
    ("kind", "spec", "capacity"),
    [
        ("IPPool", {"subnet": "192.168.0.0/24", "perNodeBlockSize": 64}, 3),
        ("IPPool", {"subnet": "10.0.0.0/32", "perNodeBlockSize": 1, "gateway": "10.0.0.0"}, 0),
        ("IPPool", {"subnet": "fd00::/64", "perNodeBlockSize": 1}, 2**64 - 1),
        ("CIDRPool", {"cidr": "10.0.0.0/16", "perNodeNetworkPrefix": 24}, 256),
        ("CIDRPool", {"cidr": "fd00::/8", "perNodeNetworkPrefix": 128}, 2**120),
    ],
)
def test_known_capacities(kind: str, spec: dict[str, Any], capacity: int) -> None:
    model, pool_type = MODELS[kind]
    assert model.capacity(msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, pool_type)) == capacity


# Addresses for pods: never the excluded ones, never the gateway


def blocks(*ends: tuple[str, str]) -> list[IPAllocation]:
    return [IPAllocation(node_name=f"n{at}", start_ip=low, end_ip=high) for at, (low, high) in enumerate(ends)]


TWO = blocks(("192.168.0.1", "192.168.0.10"), ("192.168.0.11", "192.168.0.20"))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, [10, 10]),
        ({"gateway": "192.168.0.1"}, [9, 10]),
        ({"gateway": "192.168.0.200"}, [10, 10]),
        ({"gateway": "fd00::1"}, [10, 10]),
        ({"exclusions": [{"startIP": "192.168.0.9", "endIP": "192.168.0.12"}]}, [8, 8]),
        ({"perNodeExclusions": [{"startIndex": 0, "endIndex": 3}]}, [6, 6]),
        # The gateway is excluded already: it is not taken away twice.
        ({"gateway": "192.168.0.1", "perNodeExclusions": [{"startIndex": 0, "endIndex": 0}]}, [9, 9]),
    ],
)
def test_a_block_is_counted_without_what_pods_never_get(more: dict[str, Any], expected: list[int]) -> None:
    spec = msgspec.convert({"subnet": "192.168.0.0/24", "perNodeBlockSize": 10, **more}, IPPoolSpec)
    assert kinds.IPPOOL.usable(spec, TWO) == expected


@pytest.mark.parametrize(
    ("prefix", "gateway", "more", "expected"),
    [
        ("10.0.0.0/24", "", {}, 254),
        ("10.0.0.0/24", "10.0.0.1", {}, 253),
        ("10.0.0.0/31", "", {}, 2),
        ("10.0.0.0/32", "", {}, 1),
        ("10.0.0.0/24", "10.0.0.1", {"perNodeExclusions": [{"startIndex": 0, "endIndex": 10}]}, 244),
        ("fd00::/64", "", {}, 2**64 - 1),
    ],
)
def test_a_prefix_is_counted_without_what_pods_never_get(
    prefix: str, gateway: str, more: dict[str, Any], expected: int
) -> None:
    wide = "fd00::/48" if ":" in prefix else "10.0.0.0/16"
    spec = msgspec.convert({"cidr": wide, "perNodeNetworkPrefix": int(prefix.split("/")[1]), **more}, CIDRPoolSpec)
    assert kinds.CIDRPOOL.usable(spec, [CIDRAllocation(node_name="n", prefix=prefix, gateway=gateway)]) == [expected]


def test_an_entry_that_means_nothing_counts_nothing() -> None:
    assert kinds.IPPOOL.usable(IPPoolSpec(subnet="10.0.0.0/24"), blocks(("x", "10.0.0.9"))) == []
    assert kinds.CIDRPOOL.usable(CIDRPoolSpec(cidr="10.0.0.0/8"), [CIDRAllocation(prefix="10.0.0")]) == []


# A pool beside the others: one that makes no sense must not disturb its neighbours


class Place:
    def __init__(self) -> None:
        self.pools: dict[str, Cache[Any]] = {"ippool": Cache(), "cidrpool": Cache()}
        self.neighbours = kinds.Neighbours(self.pools)

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


def test_an_invalid_pool_overlaps_with_nobody() -> None:
    place = Place()
    good = place.put("IPPool", "good", {"subnet": "10.0.0.0/16", "perNodeBlockSize": 4})
    bad = place.put("IPPool", "bad", {"subnet": "10.0.0.0/16", "perNodeBlockSize": 0})
    assert place.neighbours.overlaps(kinds.IPPOOL, good) == []
    assert place.neighbours.overlaps(kinds.IPPOOL, bad) == []


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
