"""How many blocks a pool has: as many nodes as get one."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from tests.ipam import generators

from bedplate.ipam.controller import kinds
from bedplate.ipam.planning import NOTHING, Mode, PlanNode
from bedplate.ipam.pools import CIDRPool, IPPool

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
